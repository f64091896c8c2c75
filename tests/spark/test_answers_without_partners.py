"""Tuples without partners are answered, as the batch join answers them, whatever the watermark does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import differences

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")

How = str | th.Nearest
NEAREST = th.Nearest(1, by="a.k - b.k", keep_unmatched=True)


def make_rows(spark: SparkSession, first: str, last: str) -> DataFrame:
    """Return six rows, one per second from ``first`` on, and a row at ``last`` that moves the watermark."""
    return spark.sql(
        f"SELECT id, id % 3 AS k, timestamp'{first}' + make_dt_interval(0, 0, 0, id) AS ts FROM range(6) "
        f"UNION ALL SELECT 9 AS id, 7 AS k, timestamp'{last}' AS ts"
    ).localCheckpoint()


def read_streams(rows: DataFrame, folder: Path, epochs: Sequence[Sequence[int]]) -> dict[str, DataFrame]:
    return {alias: replay(rows, epochs, folder).withWatermark("ts", "2 seconds") for alias in "ab"}


def answer(
    streams: Mapping[str, DataFrame], cases: Sequence[tuple[str, How]], **options: Any
) -> list[DataFrame]:
    """Return the answers of each case with its number, in the order of ``cases``."""
    joined = []
    for n, (on, how) in enumerate(cases):
        pairs = th.join(streams, on=on, within="3 seconds", how=how, **options)
        joined.append(pairs.select(F.lit(n).alias("n"), *_name_ids(pairs), F.unix_micros("result_time")))
    return joined


def _name_ids(pairs: DataFrame) -> list[Column]:
    ids = [F.col(f"{alias}.id") if alias in pairs.columns else F.lit(None) for alias in "ab"]
    return [column.cast("long").alias(name) for column, name in zip(ids, "ab", strict=True)]


def union(joined: Sequence[DataFrame]) -> DataFrame:
    first, *others = joined
    for other in others:
        first = first.unionAll(other)
    return first


EMPTY = "b.ts BETWEEN a.ts + INTERVAL 10 SECONDS AND a.ts + INTERVAL 5 SECONDS"
BEYOND = "a.k = b.k AND b.ts > a.ts + INTERVAL 4 SECONDS"
"""It contradicts the window of 3 seconds."""


@pytest.mark.slow
def test_an_empty_window_decides_at_once(spark: SparkSession, tmp_path: Path) -> None:
    cases: list[tuple[str, How]] = [(EMPTY, "left"), (BEYOND, "right"), (EMPTY, "anti"), (BEYOND, NEAREST)]
    rows = make_rows(spark, "2024-03-10 00:00:00", "2024-03-10 00:00:05")
    # One epoch, of which the watermark passes no tuple.
    live = outcome(union(answer(read_streams(rows, tmp_path, [range(6)]), cases)), ["*"], tmp_path)
    found = _split(live.rows, len(cases))
    batch = _collect(answer(dict.fromkeys("ab", rows.where("id < 6")), cases), cases)
    assert not differences(cases, found, batch)
    # No tuple waits, so its result time is its event time.
    times = {row["id"]: row["us"] for row in rows.select("id", F.unix_micros("ts").alias("us")).collect()}
    wanted = Counter((n, None, times[n]) for n in range(6))
    assert found[0] == found[2] == found[3] == wanted
    assert found[1] == Counter((None, n, times[n]) for n in range(6))


CONTRADICTORY: list[tuple[str, How]] = [
    ("a.k = b.k AND b.k > 5 AND b.k < 3", "left"),
    ("a.k > 5 AND a.k < 3", "right"),
    ("b.k > 5 AND b.k < 3", "anti"),
    ("b.k IS NULL AND b.k = a.k", NEAREST),
]


@pytest.mark.slow
def test_filters_that_no_tuple_passes_hold_back_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    rows = make_rows(spark, "2024-03-10 00:00:00", "2024-03-10 00:01:00")
    streams = read_streams(rows, tmp_path, [range(3), range(3, 6), [9]])
    live = outcome(union(answer(streams, CONTRADICTORY)), ["*"], tmp_path)
    found = _split(live.rows, len(CONTRADICTORY))
    batch = _collect(answer(dict.fromkeys("ab", rows), CONTRADICTORY), CONTRADICTORY)
    # The last tuple is not decided yet.
    assert not differences(CONTRADICTORY, found, [_leave_out(each, 9) for each in batch])
    assert [sum(each.values()) for each in found] == [6] * len(CONTRADICTORY)


HISTORY: list[tuple[str, How]] = [("a.k = b.k AND a.id <> b.id", "left"), ("a.k + 1 = b.k", "anti")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("1899-12-31 23:59:55Z", "1900-01-01 00:01:00Z"),
        ("1969-12-31 23:59:00Z", "1969-12-31 23:59:57.999999Z"),
        # The watermark of the last epoch is Spark's own.
        ("1969-12-31 23:59:57Z", "1970-01-01 00:01:00Z"),
        # The watermark is exactly 0, which Spark does not tell from none.
        ("1969-12-31 23:59:50Z", "1970-01-01 00:00:02Z"),
    ],
)
def test_outer_rows_before_1970(spark: SparkSession, tmp_path: Path, first: str, last: str) -> None:
    rows = make_rows(spark, first, last)
    streams = read_streams(rows, tmp_path, [range(3), range(3, 6), [9]])
    live = outcome(union(answer(streams, HISTORY)), ["*"], tmp_path)
    found = _split(live.rows, len(HISTORY))
    batch = _collect(answer(dict.fromkeys("ab", rows), HISTORY), HISTORY)
    wanted = [_leave_out(each, 9) for each in batch]
    assert not differences(HISTORY, found, wanted)
    assert all(wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("last", ["1969-12-31 23:59:30Z", "1970-01-01 00:01:00Z"])
def test_late_rows_before_1970_are_dropped(spark: SparkSession, tmp_path: Path, last: str) -> None:
    """A partner that comes after its tuple was answered is late, as it is after 1970."""
    rows = make_rows(spark, "1969-12-31 23:59:00Z", last)
    streams = read_streams(rows, tmp_path, [range(1, 6), [9], [0]])
    joined = union(answer(streams, [("a.k = b.k AND a.id <> b.id", "left")]))
    live = outcome(joined, ["a", "b"], tmp_path)
    assert live.rows == Counter({(1, 4): 1, (2, 5): 1, (4, 1): 1, (5, 2): 1, (3, None): 1})
    assert sum(epoch["late"] for epoch in live.metrics) == 2


def _split(rows: Counter[tuple[Any, ...]], n: int) -> list[Counter[tuple[Any, ...]]]:
    parts: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(n)]
    for (number, *row), times in rows.items():
        parts[number][tuple(row)] += times
    return parts


def _leave_out(answers: Counter[tuple[Any, ...]], last: int) -> Counter[tuple[Any, ...]]:
    return Counter({row: times for row, times in answers.items() if last not in row[:2]})


def _collect(joined: Sequence[DataFrame], cases: Sequence[tuple[str, How]]) -> list[Counter[tuple[Any, ...]]]:
    return _split(Counter(tuple(row) for row in union(joined).collect()), len(cases))
