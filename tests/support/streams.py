"""Replay a batch DataFrame as a stream, epoch by epoch, and collect the outcome of a streaming join.

    replay(frame, [[1, 2], [], [3]])  =  a stream whose epoch e brings the rows with the e-th list of ids

Files contain the rows if Parquet can hold their types. Otherwise they contain only ids, and a join with the
frame adds the rows, so that values of any Spark type arrive unchanged; that costs a broadcast per epoch.
"""

import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from thetastream.spark.observe.metrics import metrics
from thetastream.spark.sources.parquet import read_parquet

_NAMES = count()
_FIRST_FILE_S = 1_600_000_000
"""Modification time of the first file. Spark reads files in the order of their modification times."""

_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
_PLAIN = _NUMBERS | {"string", "boolean", "date", "timestamp", "timestamp_ntz"}
"""Types whose values PyArrow writes to Parquet as Spark reads them."""


@dataclass(frozen=True)
class Outcome:
    """The rows of a finished query, and its metrics and watermarks by epoch."""

    rows: Counter[tuple[Any, ...]]
    metrics: list[dict[str, Any]]
    watermarks_ms: dict[int, int]
    """The watermark of each epoch, by the number of the epoch."""

    def late_ms(self, epoch: int) -> int:
        """Return the watermark that decides which tuples of an epoch are late: that of the previous epoch, or
        0."""
        return self.watermarks_ms.get(epoch - 1, 0)


def replay(
    frame: DataFrame,
    epochs: Sequence[Iterable[int]],
    folder: str | os.PathLike[str],
    key: str = "id",
    by_key: bool = False,
) -> DataFrame:
    """Build a stream of the rows of ``frame``, one epoch per list of ids. An id that is listed twice comes
    twice. With ``by_key`` the files are CSV files of ids, and a test may add one.

    Half of the streams with Parquet files are read by ``th.read_parquet``."""
    folder = Path(tempfile.mkdtemp(prefix="stream-", dir=folder))
    reader = frame.sparkSession.readStream.option("maxFilesPerTrigger", 1)
    if by_key or not _is_plain(frame.schema):
        for number, ids in enumerate(epochs):
            path = folder / f"epoch-{number:04}.csv"
            path.write_text("".join(f"{row}\n" for row in ids))
            _age(path, number)
        kind = frame.schema[key].dataType.simpleString()
        listed = reader.schema(f"{key} {kind}").csv(str(folder))
        return listed.join(F.broadcast(frame), key).select(*frame.columns)
    rows = frame.toArrow()
    places: dict[Any, int] = {value: place for place, value in enumerate(rows[key].to_pylist())}
    for number, ids in enumerate(epochs):
        path = folder / f"epoch-{number:04}.parquet"
        pq.write_table(rows.take(pa.array([places[one] for one in ids], pa.int64())), path)
        _age(path, number)
    if zlib.crc32(repr((frame.columns, [list(ids) for ids in epochs])).encode()) % 2:
        return read_parquet(frame.sparkSession, str(folder), frame.schema, maxFilesPerTrigger=1)
    return reader.schema(frame.schema).parquet(str(folder))


def add_ids(source: Path, ids: range) -> None:
    """Add a file of ids to a stream of ``replay`` with ``by_key``. Spark finds it when it is complete."""
    path = source / f".epoch-{ids.start + 1:05}.csv"  # Spark does not read names that begin with a dot.
    path.write_text("".join(f"{row}\n" for row in ids))
    path.rename(source / path.name[1:])


def _age(path: Path, number: int) -> None:
    os.utime(path, (_FIRST_FILE_S + number, _FIRST_FILE_S + number))


def _is_plain(kind: DataType) -> bool:
    """Return whether Parquet files hold all values of the type."""
    if isinstance(kind, StructType):
        return all(_is_plain(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    return kind.simpleString().partition("(")[0] in _PLAIN


def outcome(joined: DataFrame, columns: Sequence[str | Column], folder: str | os.PathLike[str]) -> Outcome:
    """Run a streaming join until its input is used up, and collect these columns of the result."""
    name = f"thetastream_outcome_{next(_NAMES)}"
    query = (
        joined.select(*columns)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="checkpoint-", dir=folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        rows = Counter(tuple(row) for row in joined.sparkSession.table(name).collect())
        return Outcome(rows, metrics(query), dict(read_watermarks(query)))
    finally:
        query.stop()
        joined.sparkSession.catalog.dropTempView(name)


def read_watermarks(query: Any) -> Iterable[tuple[int, int]]:
    """Yield the number and the watermark of each epoch of a query, in milliseconds."""
    for progress in query.recentProgress:
        text = (progress.get("eventTime") or {}).get("watermark")
        if text is not None:
            yield progress["batchId"], _millis(text)


def _millis(text: str) -> int:
    """Convert an ISO instant to milliseconds since 1970.

    >>> _millis("1970-01-01T00:00:01.500Z")
    1500
    """
    instant = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
