"""Reads rows without a statement, and stops as soon as they are more than an answer may have.

A snapshot may have far more rows than an answer, so they are read in small batches.
"""

import time
from typing import Any

import pyarrow as pa

from thetastream.core.stopping import Stop
from thetastream.errors import QueryError
from thetastream.service.limits import Limits
from thetastream.stores.frugal_rows import FrugalRows
from thetastream.stores.question import make_many, make_slow


def read_bounded(rows: Any, limits: Limits, first: int | None = None, stop: Stop | None = None) -> pa.Table:
    """Read rows that a store has opened, all of them or the first ones.

    Raises
    ------
    QueryError
        TOO_MANY_ROWS, TOO_LARGE or TOO_SLOW.
    """
    if isinstance(rows, pa.Table):
        batches = iter(rows.slice(0, first).to_batches())
    else:
        batches = FrugalRows(rows).scanner().to_batches()
    kept: list[pa.RecordBatch] = []
    n, nbytes, most_bytes = 0, 0, limits.question_bytes
    until = time.monotonic() + limits.seconds
    for batch in batches:
        batch = batch.slice(0, None if first is None else first - n)
        kept.append(batch)
        n, nbytes = n + batch.num_rows, nbytes + batch.nbytes
        if n > limits.rows:
            raise make_many(limits.rows)
        if nbytes > most_bytes:
            raise make_large(most_bytes)
        if time.monotonic() > until or (stop is not None and stop.is_set):
            raise make_slow(limits.seconds)
        if n == first:
            break
    return pa.Table.from_batches(kept, rows.schema)


def make_large(most_bytes: int) -> QueryError:
    """Make the error of an answer that needs too much memory."""
    what = f"an answer may have {most_bytes / 1e6:,.0f} MB, and these rows have more"
    return QueryError("TOO_LARGE", f"{what}: ask for fewer rows or columns")
