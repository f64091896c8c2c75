"""Replay a batch DataFrame as a stream, epoch by epoch, and collect the outcome of a streaming join.

    replay(frame, [[1, 2], [], [3]])  =  a stream whose epoch e brings the rows with the e-th list of ids

Files contain only ids. A join with the frame adds the rows, so that values of any Spark type arrive
unchanged.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.spark.metrics import metrics

_NAMES = count()
_FIRST_FILE_S = 1_600_000_000
"""Modification time of the first file. Spark reads files in the order of their modification times."""


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
    frame: DataFrame, epochs: Sequence[Iterable[int]], folder: str | os.PathLike[str], key: str = "id"
) -> DataFrame:
    """Build a stream of the rows of ``frame``, one epoch per list of ids. An id that is listed twice comes
    twice."""
    folder = Path(tempfile.mkdtemp(prefix="stream-", dir=folder))
    for number, ids in enumerate(epochs):
        path = folder / f"epoch-{number:04}.csv"
        path.write_text("".join(f"{row}\n" for row in ids))
        os.utime(path, (_FIRST_FILE_S + number, _FIRST_FILE_S + number))
    kind = frame.schema[key].dataType.simpleString()
    reader = frame.sparkSession.readStream.schema(f"{key} {kind}").option("maxFilesPerTrigger", 1)
    return reader.csv(str(folder)).join(F.broadcast(frame), key).select(*frame.columns)


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
        return Outcome(rows, metrics(query), dict(_watermarks(query)))
    finally:
        query.stop()
        joined.sparkSession.catalog.dropTempView(name)


def _watermarks(query: Any) -> Iterable[tuple[int, int]]:
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
