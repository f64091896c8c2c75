"""Compares the answers of the soak with a join by sorted search over the same files.

    for each stream behind a, its tuples are sorted by (x, ts)
    for each a and each x within the reach: those with  max(ts) - window <= ts <= min(ts) + window

where max and min are those of the tuples that are joined already. What is left is ``a.y > y`` of the last
one.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset

from bench.core.soak.queries import QUERIES, Query
from bench.core.soak.streams import START_US

Ints = npt.NDArray[np.int64]
SPAN_US = 1 << 50
"""More than the event times of a soak, and than its longest window: 35 years."""
AT_ONCE = 20_000
"""Tuples of the stream a that are joined at a time."""


def has_watermarks(folder: Path) -> bool:
    """Whether every query has a watermark, so that a tuple of yesterday is late."""
    for name in QUERIES:
        commits = folder / "checkpoints" / name / "commits"
        numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
        if len(numbers) < 3 or '"nextBatchWatermarkMs":0' in (commits / str(max(numbers))).read_text():
            return False
    return True


def compare(folder: Path, name: str) -> tuple[int, int]:
    """Compare an answer with the expected one: the number of rows, and of rows
    that are too many or too few."""
    query = QUERIES[name]
    streams = [read_stream(folder / alias) for alias in query.aliases]
    ids = [np.sort(stream["id"].to_numpy()) for stream in streams]
    expected = number_rows(ids, join(streams, query))
    found = number_rows(ids, [read_answer(folder / "results" / name, query.aliases)])
    rows, places = np.unique(np.concatenate([expected, found]), return_inverse=True)
    n_expected = np.bincount(places[: len(expected)], minlength=len(rows))
    n_found = np.bincount(places[len(expected) :], minlength=len(rows))
    return len(found), int(np.abs(n_expected - n_found).sum())


def read_stream(folder: Path) -> pa.Table:
    """Read the tuples that are not late: id, x, y and ts, which is in microseconds since START_US."""
    table = pq.read_table(folder).filter(~pc.field("late"))
    ts = pc.subtract(table["ts"].cast("int64"), START_US)
    return table.select(["id", "x", "y"]).append_column("ts", ts)


def read_answer(folder: Path, aliases: str) -> list[Ints]:
    """Read the ids of the rows that Spark has committed, a column for each stream."""
    paths = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "_spark_metadata").iterdir()
        if log.name.removesuffix(".compact").isdecimal()
        for line in log.read_text().splitlines()[1:]
    }
    table = dataset.dataset(sorted(paths)).to_table(list(aliases))
    return [column.to_numpy() for column in table.columns]


def join(streams: Sequence[pa.Table], query: Query) -> Iterator[list[Ints]]:
    """Join streams; yield the ids of rows, a column for each stream."""
    within_us = int(query.within.removesuffix(" minutes")) * 60_000_000
    first, *others = [{name: stream[name].to_numpy() for name in stream.column_names} for stream in streams]
    for other in others:
        order = np.lexsort((other["ts"], other["x"]))
        other.update({name: values[order] for name, values in other.items()})
    for begin in range(0, len(first["id"]), AT_ONCE):
        a = {name: values[begin : begin + AT_ONCE] for name, values in first.items()}
        ids, rows, least, most = [a["id"]], np.arange(len(a["id"])), a["ts"], a["ts"]
        for other in others:
            # 1. The ranges of partners, one for each row and each x within the reach.
            key = other["x"] * SPAN_US + other["ts"]
            x = a["x"][rows] + np.arange(-query.reach, query.reach + 1)[:, None]
            start = np.searchsorted(key, (x * SPAN_US + most - within_us).ravel(), "left")
            stop = np.searchsorted(key, (x * SPAN_US + least + within_us).ravel(), "right")
            # 2. Each range becomes its rows.
            n = stop - start
            left = np.repeat(np.tile(np.arange(len(rows)), len(x)), n)
            right = np.arange(n.sum()) + np.repeat(start - (np.cumsum(n) - n), n)
            ids = [*(column[left] for column in ids), other["id"][right]]
            rows, ts, y = rows[left], other["ts"][right], other["y"][right]
            least, most = np.minimum(least[left], ts), np.maximum(most[left], ts)
        chosen = a["y"][rows] > y
        yield [column[chosen] for column in ids]


def number_rows(ids: Sequence[Ints], chunks: Iterable[Sequence[Ints]]) -> Ints:
    """Number rows by the places of their ids among all ids, so that different rows have different numbers.

    A row with an unknown id has the number -1.
    """
    found = [np.empty(0, np.int64)]
    for columns in chunks:
        numbers, is_known = np.zeros(len(columns[0]), np.int64), np.ones(len(columns[0]), bool)
        for every, column in zip(ids, columns, strict=True):
            places = np.minimum(np.searchsorted(every, column), len(every) - 1)
            numbers = numbers * len(every) + places
            is_known &= every[places] == column
        found.append(np.where(is_known, numbers, -1))
    return np.concatenate(found)
