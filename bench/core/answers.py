"""The results that ``python -m bench outer`` expects of left, semi, anti and nearest joins in every epoch.

``outer-equi`` expects those of left joins with an equality.

inner and left form the pairs of ``bench.core.check``. In epoch k, a tuple of the left stream

    is an answer of the semi join     if its first partner or itself is in file k
    is decided                        if its event time plus the window is at or before the watermark

Spark's own left join decides a tuple if its event time plus the window is before the watermark.

The watermark is the event time of the last tuple of epoch k - 1. DuckDB counts the tuples.
"""

from typing import Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from bench.core.data import Shape
from bench.core.engines.duckdb_batch import connect, select

KINDS = ("left", "semi", "anti", "nearest")
"""The joins that answer each tuple of the left stream; their names are those of engines."""
SPARK_LEFT = "spark-left"
"""The engine of Spark's own left join."""
NEAREST_BY = "abs(r.x - s.a)"
Times = npt.NDArray[np.int64]


def count_answers(shape: Shape, kind: str, pairs: list[int]) -> list[int]:
    """Count the results of each epoch, given the numbers of its pairs. ``kind`` is the name of an engine."""
    side: Literal["left", "right"] = "left" if kind == SPARK_LEFT else "right"
    kind = kind.removeprefix("spark-")
    connection = connect()
    if kind == "semi":
        return [_count_first(shape, connection, epoch) for epoch in range(len(pairs))]
    times = _read_times(shape, len(pairs))
    found = []
    for epoch, n_pairs in enumerate(pairs):
        decided = _list_decided(shape, times, epoch, side)
        if kind == "nearest":
            found.append(_count_nearest(shape, connection, times, decided, epoch))
            continue
        lonely = len(decided) - _count_matched(shape, connection, times, decided, epoch)
        found.append(lonely + (n_pairs if kind == "left" else 0))
    return found


def _read_times(shape: Shape, epochs: int) -> Times:
    """Read the event times of the left stream in order, in microseconds; both streams have the same."""
    files = [pq.read_table(shape.file(0, epoch), columns=["ts"]) for epoch in range(epochs)]
    return np.concatenate([file.column("ts").to_numpy().astype("M8[us]").astype(np.int64) for file in files])


def _list_decided(shape: Shape, times: Times, epoch: int, side: Literal["left", "right"]) -> range:
    """List the numbers of the left tuples that an epoch decides.

    With the side "right", the last one has the latest event time that the watermark allows.
    """

    def count(before: int) -> int:
        if before < 1:
            return 0
        horizon = times[before * shape.epoch - 1] - shape.window_us
        return int(np.searchsorted(times, horizon, side=side))

    return range(count(epoch - 1), count(epoch))


def _name_time(shape: Shape) -> str:
    return f"{shape.spec.aliases[0]}.ts AS ts"


def _pairs(shape: Shape, columns: str, left: range, right: range) -> str:
    files = (
        [shape.file(0, number) for number in left if number >= 0],
        [shape.file(1, number) for number in right if number >= 0],
    )
    return select(shape, columns, files)


def _reach(shape: Shape) -> int:
    return -(-shape.window // shape.epoch)


def _count_first(shape: Shape, connection: duckdb.DuckDBPyConnection, epoch: int) -> int:
    """Count the left tuples whose first partner is known in this epoch."""

    def count(until: int) -> int:
        if until < 0:
            return 0
        # The same left files in both counts, so that the difference is what this epoch adds.
        first = max(0, epoch - _reach(shape))
        left, right = range(first, until + 1), range(max(0, first - _reach(shape)), until + 1)
        if not len(left):
            return 0
        text = f"SELECT count(DISTINCT ts) FROM ({_pairs(shape, _name_time(shape), left, right)})"
        return int(connection.execute(text).fetchall()[0][0])

    return count(epoch) - count(epoch - 1)


def _decided_pairs(shape: Shape, times: Times, decided: range, epoch: int, columns: str) -> str:
    first, last = times[decided[0]], times[decided[-1]]
    files = range(decided[0] // shape.epoch, decided[-1] // shape.epoch + 1)
    right = range(max(0, files[0] - _reach(shape)), epoch)
    pairs = _pairs(shape, columns, files, right)
    return f"(SELECT * FROM ({pairs}) WHERE ts BETWEEN {first} AND {last})"


def _count_matched(
    shape: Shape, connection: duckdb.DuckDBPyConnection, times: Times, decided: range, epoch: int
) -> int:
    if not decided:
        return 0
    pairs = _decided_pairs(shape, times, decided, epoch, _name_time(shape))
    return int(connection.execute(f"SELECT count(DISTINCT ts) FROM {pairs}").fetchall()[0][0])


def _count_nearest(
    shape: Shape, connection: duckdb.DuckDBPyConnection, times: Times, decided: range, epoch: int
) -> int:
    if not decided:
        return 0
    pairs = _decided_pairs(shape, times, decided, epoch, f"{_name_time(shape)}, {NEAREST_BY} AS d")
    ranks = f"SELECT rank() OVER (PARTITION BY ts ORDER BY d) AS n FROM {pairs}"
    text = f"SELECT count(*) FROM ({ranks}) WHERE n = 1"
    return int(connection.execute(text).fetchall()[0][0])
