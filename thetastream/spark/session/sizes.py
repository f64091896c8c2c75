"""Asks Spark how large it estimates a batch DataFrame to be."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from thetastream.lowering.domains import quote

UNKNOWN_BYTES = 1 << 56
"""Spark takes an input of unknown size for 2 to the power of 63 bytes, and its columns for a part of that."""


def estimate_bytes(frame: DataFrame, columns: Sequence[str]) -> int | None:
    """Estimate the bytes of some columns of a batch DataFrame, as Spark's optimizer does. No job runs.

    The result is None on Spark Connect, which has no estimates, and for a DataFrame of which Spark knows
    nothing, as one that comes from an RDD.
    """
    narrow: Any = frame.select(*map(quote, columns))
    jframe = getattr(narrow, "_jdf", None)
    if jframe is None:
        return None
    nbytes = int(str(jframe.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return nbytes if nbytes < UNKNOWN_BYTES else None
