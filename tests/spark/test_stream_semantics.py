"""Streams are compared with Spark's own batch join, inside the window and without late tuples."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import Outcome, outcome, replay
from tests.support.truth import ZONE, configured, differences, made, split, table, tagged, truths
from thetastream.core.condition import TIME
from thetastream.index import REGISTRY, Indexable

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")


# Streams


@dataclass(frozen=True)
class Timed:
    """A streaming join, and the equivalent batch condition."""

    on: Any
    within: Any
    text: str
    options: dict[str, Any]


MINUTES = [0, 1, -3, 5, 2, 9, 20, 21, 12, 19, 8, 40, 45, 39, 37, 60, 38, 0]
"""Event times in the order of arrival: early, late, before 1970 and exactly at the start of 1970."""
CUTS = [
    [range(5), range(5, 9), [], range(9, 14), range(14, 18)],
    [range(3), range(3, 9), range(9, 12), [], range(12, 18)],
]


def timed_frame(spark: SparkSession, side: int, kind: str = "timestamp") -> DataFrame:
    start = "timestamp_ntz'1970-01-01'" if kind == "timestamp_ntz" else "timestamp_micros(0)"
    rows = [
        f"SELECT {i} AS id, {start} + INTERVAL '{minute * 60 + side * (i % 3 == 2) / 1e6:.6f}' SECOND AS ts, "
        f"{(i * (3 + side)) % 5} AS k, {(i * (2 + side)) % 7}.5D AS v"
        for i, minute in enumerate(MINUTES)
    ]
    return made(spark, rows)


def late(frame: DataFrame, epochs: Sequence[Sequence[int]], found: Outcome) -> set[int]:
    """Find the ids of late tuples, at or before the watermark of the previous epoch; 0 means no watermark."""
    stamp = F.expr("unix_micros(CAST(ts AS TIMESTAMP))").alias("us")
    micros = {row["id"]: row["us"] for row in frame.select("id", stamp).collect()}
    return {
        i for epoch, ids in enumerate(epochs) for i in ids if 0 < found.late_ms(epoch) * 1000 >= micros[i]
    }


def window(low: str, high: str) -> str:
    return f"a.ts >= b.ts + INTERVAL {low} AND a.ts <= b.ts + INTERVAL {high}"


def stream_truth(
    spark: SparkSession, joins: Sequence[Timed], tmp_path: Path, kind: str = "timestamp"
) -> None:
    """All joins in one query, over disorder and lateness, equal the batch answer over the timely tuples."""
    left, right = (timed_frame(spark, side, kind) for side in (0, 1))
    a, b = (
        replay(frame, epochs, tmp_path).withWatermark("ts", delay)
        for frame, epochs, delay in zip((left, right), CUTS, ("5 minutes", "2 minutes"), strict=True)
    )
    joined = [th.join({"a": a, "b": b}, on=join.on, within=join.within, **join.options) for join in joins]
    result = outcome(tagged(joined), ["*"], tmp_path)
    gone = [late(frame, epochs, result) for frame, epochs in zip((left, right), CUTS, strict=True)]
    assert all(gone), "this test needs late tuples in both streams"
    assert not {0, 17} <= gone[0]
    assert 0 not in gone[0] | gone[1], "a tuple at the start of 1970 must not be late"
    kept = [frame.where(~F.col("id").isin(*ids)) for frame, ids in zip((left, right), gone, strict=True)]
    texts = [join.text for join in joins]
    assert not differences(
        [(join.text, join.options) for join in joins], split(result.rows, len(joins)), truths(*kept, texts)
    )
    counted: Counter[str] = Counter()
    for epoch in result.metrics:
        counted[epoch["join"]] += epoch.get("late", 0)
    assert len(counted) == len(joins)
    assert set(counted.values()) == {len(gone[0]) + len(gone[1])}


@pytest.mark.slow
def test_windows_on_streams(spark: SparkSession, tmp_path: Path) -> None:
    ten = window("-10 MINUTES", "10 MINUTES")
    uneven = window("-10 MINUTES", "1 MINUTE")
    small = th.Biclique((1, 1))
    wide = th.Biclique((2, 3))
    stream_truth(
        spark,
        [
            Timed("abs(a.v - b.v) <= 1.0", "10 minutes", f"abs(a.v - b.v) <= 1 AND {ten}", {"model": wide}),
            Timed(
                "a.k = b.k", {"a": "10 minutes", "b": "1 minute"}, f"a.k = b.k AND {uneven}", {"model": small}
            ),
            Timed("a.k <> b.k", None, "a.k <> b.k", {"model": small}),
            Timed(
                "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES",
                None,
                "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES",
                {"model": wide},
            ),
            Timed(
                "a.v < b.v AND a.ts > b.ts AND a.ts < b.ts + INTERVAL 8 MINUTES",
                "1 hour",
                "a.v < b.v AND a.ts > b.ts AND a.ts < b.ts + INTERVAL 8 MINUTES",
                {"model": wide, "archive_period": "1 minute"},
            ),
            Timed(
                "a.ts > b.ts + INTERVAL 3 MINUTES AND a.k >= b.k",
                None,
                "a.ts > b.ts + INTERVAL 3 MINUTES AND a.k >= b.k",
                {"model": small},
            ),
        ],
        tmp_path,
    )


@pytest.mark.slow
def test_index_shapes_agree_on_streams(spark: SparkSession, tmp_path: Path) -> None:
    on = "a.k = b.k AND abs(a.v - b.v) <= 3 AND a.v BETWEEN b.v - 2 AND b.v + 4"
    text = f"{on} AND {window('-10 MINUTES', '10 MINUTES')}"
    timed = (TIME,)
    offer = Indexable(equalities=(0,), bands=(0, 1), comparisons=(0, 1), window=timed, window_bands=timed)
    shapes = [name for name, shape in REGISTRY.items() if shape.fit(offer, is_asked=True) is not None]
    assert {"hash", "sorted", "grid", "scan"} <= {*shapes}
    joins = [
        Timed(on, "10 minutes", text, {"index": shape, "model": th.Biclique((1, n))})
        for n, shape in enumerate(shapes, 1)
    ]
    stream_truth(spark, joins, tmp_path)


@pytest.mark.slow
def test_days_of_23_hours(spark: SparkSession, tmp_path: Path) -> None:
    """Bounds of a day on event time, on a day on which the clock changes."""
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        frame = spark.sql(
            "SELECT id, timestamp'2024-03-09' + make_dt_interval(0, CAST(id AS INT) * 7) AS ts FROM range(10)"
        )
        a, b = (
            replay(frame, epochs, tmp_path).withWatermark("ts", "4 hours")
            for epochs in ([range(5), range(5, 10)], [range(6), range(6, 10)])
        )
        texts = [
            "a.ts = b.ts + INTERVAL 1 DAY",
            "a.ts BETWEEN b.ts + INTERVAL 1 DAY AND b.ts + INTERVAL 36 HOURS",
            "abs(a.ts - b.ts) < INTERVAL 1 DAY",
            "a.ts - INTERVAL 1 DAY < b.ts AND a.ts >= b.ts",
        ]
        joins = [th.join({"a": a, "b": b}, on=text) for text in texts]
        result = outcome(tagged(joins), ["*"], tmp_path)
        assert not differences(texts, split(result.rows, len(texts)), truths(frame, frame, texts))


def test_by_arrival(spark: SparkSession, tmp_path: Path) -> None:
    frame = table(spark, {"x": ("int", ["1", "2", "3"])}, 9)
    a, b = (
        th.by_arrival(replay(frame, epochs, tmp_path))
        for epochs in ([range(4), range(4, 9)], [range(6), range(6, 9)])
    )
    result = outcome(th.join({"a": a, "b": b}, on="a.x < b.x", within="1 hour"), ["a.id", "b.id"], tmp_path)
    assert result.rows == truths(frame, frame, ["a.x < b.x"])[0]
