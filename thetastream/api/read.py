"""``th.read_results`` reads the results of a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetastream.stores import ParquetStore
from thetastream.stores.base import SnapshotChoice


def read_results(
    path: str | Path,
    snapshot: SnapshotChoice = None,
    since: Any = None,
    until: Any = None,
    key: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read the results that ``th.write`` has put into a folder of Parquet files.

    It reads the files that commits have named, and no file of an attempt that failed. The same rows as a
    DataFrame of Spark are ``spark.read.parquet(*th.ParquetStore(path).files())``.

    Parameters
    ----------
    path : str or Path
        The folder, as a path or URI.
    snapshot : int, Snapshot, datetime or str, optional
        The results of all snapshots up to this one, by its number or as of a time.
    since, until : datetime or str, optional
        The time range, ``since`` <= time < ``until``. A time without a zone is UTC.
    key : mapping of column to value, optional
        For each key column a value, or a pair of the least and the greatest value, both inclusive.

    Returns
    -------
    pyarrow.Table
        All results that are committed, unless fewer are asked for. ``to_pandas()`` makes a table of pandas of
        it, and DuckDB reads it by the name of its variable.

    Raises
    ------
    StoreError
        NO_STORE or STORE_DAMAGED.
    QueryError
        UNKNOWN_SNAPSHOT, NO_TIME_COLUMN, STORE_KEY or BAD_VALUE.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.read_results("out/pairs", since="2026-01-05 09:30")  # doctest: +SKIP
    """
    return ParquetStore(str(path)).read(snapshot, since, until, key)
