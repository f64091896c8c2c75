"""Behind another stateful operator, the join finds the same results as Spark's own join and as a batch join.

In epoch e, a stateful operator emits tuples whose event times are between the watermarks of e - 1 and e. No
input below is late, so all tuples that the operators before ours emit must be joined.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import thetastream as th
from tests.support.streams import outcome
from tests.support.ticks import make_ticks, stream_ticks
from tests.support.truth import configured

ROWS, EPOCH = 160, 40
"""Number of tuples of a stream, about one per 20 seconds of event time, and number of tuples per epoch."""
BAND = "c.t BETWEEN a.t - INTERVAL 5 MINUTES AND a.t + INTERVAL 5 MINUTES"
ON = "a.k = c.k"


class Passing(StatefulProcessor):
    """A stateful operator of a user that emits its input unchanged."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(  # type: ignore[override]
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            yield frame[["id", "t", "k"]]

    def close(self) -> None:
        pass


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pass_through(s: DataFrame) -> DataFrame:
    out = s.select("id", "t", "k").groupBy("k")
    return out.transformWithStateInPandas(
        Passing(), "id long, t timestamp, k int", "Append", "EventTime", eventTimeColumnName="t"
    )


def join_pairs(s: DataFrame, how: str) -> DataFrame:
    a, b = s.alias("a"), s.where("id % 5 < 3").alias("b")
    on = F.expr("a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL 1 MINUTE AND a.id <> b.id")
    return a.join(b, on, how).selectExpr("a.id * 1000 + coalesce(b.id, 999) AS id", "a.t", "a.k")


def join_itself(s: DataFrame) -> DataFrame:
    pairs = th.join({"x": s, "y": s}, on="x.k = y.k AND x.id < y.id", within="1 minute")
    return pairs.select(F.expr("x.id * 1000 + y.id AS id"), F.col("result_time").alias("t"), "x.k")


def aggregate(s: DataFrame) -> DataFrame:
    groups = th.aggregate(
        {"x": s, "y": s},
        on="x.k = y.k AND x.id < y.id",
        within="1 minute",
        group_by=["window(result_time, '2 minutes')", "x.k"],
        aggs={"id": "count(*)"},
    )
    return groups.select("id", F.window_time("window").alias("t"), "k")


UPSTREAMS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "window": lambda s: (
        s.groupBy(F.window("t", "2 minutes").alias("w"), "k")
        .agg(F.count("*").alias("id"))
        .select("id", F.window_time("w").alias("t"), "k")
    ),
    "session": lambda s: (
        s.groupBy(F.session_window("t", "45 seconds").alias("w"), "k")
        .agg(F.count("*").alias("id"))
        .select("id", F.window_time("w").alias("t"), "k")
    ),
    "deduplicated": lambda s: s.dropDuplicatesWithinWatermark(["id"]).select("id", "t", "k"),
    "inner": lambda s: join_pairs(s, "inner"),
    "left": lambda s: join_pairs(s, "left"),
    "stateful processor": pass_through,
    "joined": join_itself,
    "aggregated": aggregate,
}
MODELS: dict[str, Any] = {
    "biclique": th.Biclique((2, 2)),
    "split": th.Split(2),
    "matrix": th.Matrix(2, 2),
    "ring": th.Ring(2),
    "atr": th.ATR(2, segment="2 minutes"),
    "ctr": th.CTR(2),
    "chain": th.Chain(2),
    "fast forward": th.Chain(2, fast_forward=True),
}


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    """Spark's own join opens four state stores for each partition; one partition is enough here."""
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return make_ticks(spark, ROWS)


def stream(frame: DataFrame, folder: Path) -> DataFrame:
    return stream_ticks(frame, folder, ROWS, EPOCH)


def check(frame: DataFrame, folder: Path, upstream: str, models: list[str]) -> None:
    """Compare our join in each model with Spark's own join, in one query."""
    before = UPSTREAMS[upstream]
    s = stream(frame, folder)
    a, c = before(s), s.select("id", "t", "k")
    ours = [
        th.join({"a": a, "c": c}, on=ON, within="5 minutes", model=MODELS[model]).select("a", "c")
        for model in models
    ]
    keys = ("a.id AS a", "a.t", "a.k", "c.id AS c")
    spark_s = a.alias("a").join(c.alias("c"), F.expr(f"{ON} AND {BAND}"))
    pairs = [spark_s.selectExpr("0 AS n", *keys)]
    pairs += [one.selectExpr(f"{n} AS n", *keys) for n, one in enumerate(ours, 1)]
    together = pairs[0]
    for one in pairs[1:]:
        together = together.unionByName(one)
    found = outcome(together, ["*"], folder)
    truth, *answers = parts(found.rows, 1 + len(models))
    for model, answer in zip(models, answers, strict=True):
        assert answer == truth, model
    assert sum(epoch["late"] for epoch in found.metrics) == 0
    # The batch answer also has results that the stream emits only when the watermark moves on.
    end = max(found.watermarks_ms.values()) - 10 * 60_000
    if upstream in ("window", "session", "inner", "left"):
        batch = before(frame).alias("a").join(frame.alias("c"), F.expr(f"{ON} AND {BAND}")).selectExpr(*keys)
        whole = Counter(tuple(row) for row in batch.collect() if row["t"].timestamp() * 1000 < end)
        settled = Counter({row: n for row, n in truth.items() if row[1].timestamp() * 1000 < end})
        assert settled == whole
    assert len(truth) > 50


def parts(rows: Counter[tuple[Any, ...]], n: int) -> list[Counter[tuple[Any, ...]]]:
    found: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(n)]
    for (number, *row), times in rows.items():
        found[number][tuple(row)] += times
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("upstream", "models"),
    [
        ("window", ["biclique"]),
        pytest.param("inner", ["biclique"], marks=pytest.mark.slow),
        pytest.param("joined", ["biclique"], marks=pytest.mark.slow),
    ],
)
def test_behind_a_stateful_operator(
    frame: DataFrame, tmp_path: Path, upstream: str, models: list[str]
) -> None:
    check(frame, tmp_path, upstream, models)


@pytest.mark.slow
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_every_model_behind_every_stateful_operator(frame: DataFrame, tmp_path: Path, upstream: str) -> None:
    for model in MODELS:
        check(frame, tmp_path, upstream, [model])
