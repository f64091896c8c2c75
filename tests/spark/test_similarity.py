"""Joins by the similarity of vectors answer what Spark's own functions answer, bit for bit."""

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.index.measures import REGISTRY

pytestmark = pytest.mark.skipif(
    not hasattr(F, "vector_l2_distance"), reason="needs a Spark with functions of vectors"
)
NEAR = "vector_cosine_similarity(a.v, b.v) >= 0.9"
CONDITIONS = {
    NEAR: "tiles",
    "vector_cosine_similarity(b.v, a.v) < 0.2 AND a.k = b.k": "hash_tiles",
    "vector_l2_distance(a.v, b.v) <= 2 AND abs(a.x - b.x) <= 9": "sorted",
    "vector_inner_product(a.v, b.v) BETWEEN -1 AND 1.5": "tiles",
    "3.5F < vector_l2_distance(a.v, b.v) AND a.x < b.x AND a.id <> b.id": "tiles",
    "0.95 <= vector_cosine_similarity(transform(a.v, e -> e * 2F), b.v)": "tiles",
    "NOT vector_inner_product(a.v, b.v) <= 3 AND a.k = b.k AND a.x >= b.x": "hash_tiles",
}
SIZE = 19


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


def draw_frame(spark: SparkSession, seed: int, n: int, is_odd: bool = True) -> DataFrame:
    """Draw rows whose vectors are near a few centres; some are NULL, zero, or have odd elements."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(4, SIZE))
    rows: list[tuple[Any, ...]] = []
    for number in range(n):
        spread = random.choice([0.0, 0.1, 1.0])
        vector = centres[random.integers(4)] + random.normal(size=SIZE) * spread
        values: list[float | None] | None = [float(x) for x in vector.astype(np.float32)]
        odd = random.integers(12) if is_odd else 9
        if odd == 0:
            values = None
        elif odd == 1 and values:
            values[random.integers(SIZE)] = (None, float("nan"), float("inf"), 3e38, 1e-44)[
                random.integers(5)
            ]
        elif odd == 2:
            values = [0.0] * SIZE
        rows.append((number, int(random.integers(3)), int(random.integers(40)), values, number))
    frame = spark.createDataFrame(rows, "id BIGINT, k INT, x INT, v ARRAY<FLOAT>, ts BIGINT")
    return frame.withColumn("ts", F.col("ts").cast("timestamp"))


def test_units_compute_the_bits_of_spark(spark: SparkSession) -> None:
    a, b = (draw_frame(spark, seed, 60) for seed in (1, 2))
    calls = [F.expr(f"{name}(a.v, b.v)").alias(name) for name in REGISTRY]
    pairs = a.alias("a").crossJoin(b.alias("b")).select("a.id", F.col("b.id").alias("bid"), *calls).toArrow()
    left, right = (frame.orderBy("id").toArrow()["v"].combine_chunks() for frame in (a, b))
    left, right = (column.cast(pa.list_(pa.float32())) for column in (left, right))
    for name, measure in REGISTRY.items():
        found = measure.compute(left, pairs["id"].to_numpy(), right, pairs["bid"].to_numpy())
        wanted = pairs[name]
        assert found.is_null.tolist() == wanted.is_null().to_pylist()
        values = wanted.to_numpy()[~found.is_null].astype(np.float32)
        mine = found.values[~found.is_null].astype(np.float32)
        assert np.array_equal(mine, values, equal_nan=True)
        assert len({*values.tolist()}) > 500


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_batch(spark: SparkSession, how: str) -> None:
    a, b = (draw_frame(spark, seed, 150) for seed in (3, 4))
    bid = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    ours, own = [], []
    for on in CONDITIONS:
        columns = [F.lit(on), "a.id", bid.alias("bid")]
        ours.append(th.join({"a": a, "b": b}, on=on, how=how).select(*columns))
        own.append(a.alias("a").join(b.alias("b"), F.expr(on), how).select(*columns))
    found, wanted = (Counter(map(tuple, reduce(DataFrame.union, joins).collect())) for joins in (ours, own))
    assert found == wanted
    assert len({on for on, *_ in found}) == len(CONDITIONS)


def test_the_index_and_the_explanation(spark: SparkSession) -> None:
    a, b = (draw_frame(spark, seed, 10) for seed in (3, 4))
    for on, shape in CONDITIONS.items():
        plan = th.plan({"a": a, "b": b}, on=on)
        assert plan.join.planned.physical.indexes[0].shape.name == shape, on
        assert plan.join.planned.physical.residual == (() if "<>" not in on else ("a.id <> b.id",))
    assert (
        "units compute vector_cosine_similarity as Spark does" in th.plan({"a": a, "b": b}, on=NEAR).explain()
    )


MODELS = [None, th.Biclique((2, 2)), th.Split(2), th.Chain(2)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("how", "model"), [*(("inner", model) for model in MODELS), ("left", None)], ids=repr
)
def test_stream(spark: SparkSession, tmp_path: Path, how: str, model: Any) -> None:
    a, b = (draw_frame(spark, seed, 120) for seed in (5, 6))
    given = {
        alias: replay(frame, [range(50), range(50, 90), range(90, 120)], tmp_path).withWatermark(
            "ts", "0 seconds"
        )
        for alias, frame in (("a", a), ("b", b))
    }
    joined = th.join(given, on=NEAR, within="30 seconds", how=how, model=model)
    found = outcome(joined, ["a.id", F.col("b.id").alias("bid")], tmp_path).rows
    on = F.expr(f"{NEAR} AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= 30")
    rows = a.alias("a").join(b.alias("b"), on, how).select("a.id", F.col("b.id")).collect()
    if how == "inner":
        assert found == Counter(map(tuple, rows))
    else:
        assert not found - Counter(map(tuple, rows))
        assert any(bid is None for _, bid in found)


@pytest.mark.parametrize(
    "how", ["inner", *(pytest.param(how, marks=pytest.mark.slow) for how in ("left", "semi", "anti"))]
)
def test_a_stream_beside_a_table(spark: SparkSession, tmp_path: Path, how: str) -> None:
    a, b = (draw_frame(spark, seed, 80) for seed in (11, 12))
    s = replay(a, [range(50), range(50, 80)], tmp_path)
    bid = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    ours, own = [], []
    for on in CONDITIONS:
        # Spark evaluates a part of one condition.
        if how != "inner" and "<>" in on:
            continue
        columns = [F.lit(on), "a.id", bid.alias("bid")]
        plan = th.plan({"a": s, "b": b}, on=on, how=how)
        assert "by an index of the table" in plan.explain(), on
        ours.append(plan.dataframe().select(*columns))
        own.append(a.alias("a").join(b.alias("b"), F.expr(on), how).select(*columns))
    found = outcome(reduce(DataFrame.union, ours), ["*"], tmp_path).rows
    assert found == Counter(map(tuple, reduce(DataFrame.union, own).collect()))
    assert len({on for on, *_ in found}) == len(ours)


def test_rows_of_a_join_beside_a_table(spark: SparkSession, tmp_path: Path) -> None:
    a, b, t = (draw_frame(spark, seed, 40) for seed in (13, 14, 15))
    given = {
        alias: replay(frame, [range(40)], tmp_path).withWatermark("ts", "0 seconds")
        for alias, frame in (("a", a), ("b", b))
    }
    on = "a.k = b.k AND a.x = b.x AND vector_cosine_similarity(t.v, b.v) > 0.8"
    plan = th.plan({**given, "t": t}, on=on, within="1 hour")
    assert "by an index of the table: tiles" in plan.explain()
    found = outcome(plan.dataframe(), ["a.id", F.col("b.id"), F.col("t.id")], tmp_path).rows
    pairs = a.alias("a").join(b.alias("b")).join(t.alias("t")).where(on)
    assert found == Counter(map(tuple, pairs.selectExpr("a.id", "b.id", "t.id").collect()))
    assert found


def test_nearest_among_similar_rows(spark: SparkSession) -> None:
    a, b = (draw_frame(spark, seed, 100) for seed in (7, 8))
    joined = th.join({"a": a, "b": b}, on=NEAR, how=th.Nearest(1, by="abs(a.x - b.x)"))
    found = Counter(map(tuple, joined.select("a.id", "b.id").collect()))
    pairs = (
        a.alias("a").join(b.alias("b"), F.expr(NEAR)).selectExpr("a.id", "b.id", "abs(a.x - b.x)").collect()
    )
    least: dict[int, int] = {}
    for mine, _, distance in pairs:
        least[mine] = min(distance, least.get(mine, distance))
    assert found == Counter((mine, theirs) for mine, theirs, distance in pairs if distance == least[mine])


def test_tasks_that_measure_expressions(spark: SparkSession) -> None:
    a, b = (draw_frame(spark, seed, 60) for seed in (9, 10))
    on = {"near": NEAR, "twice": "vector_inner_product(transform(a.v, e -> e * 2F), b.v) >= 9 AND a.k = b.k"}
    together = th.join_many({"a": a, "b": b}, {name: {"on": text} for name, text in on.items()}).together
    found = Counter(map(tuple, together.select("task", "a.id", "b.id").collect()))
    wanted: Counter[tuple[Any, ...]] = Counter()
    for name, text in on.items():
        pairs = a.alias("a").join(b.alias("b"), F.expr(text)).select(F.lit(name), "a.id", F.col("b.id"))
        wanted.update(map(tuple, pairs.collect()))
    assert found == wanted
    assert {name for name, *_ in found} == {*on}


def test_vectors_of_two_sizes(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(n, [1.0, 2.0, 2.0][: 2 + n % 2], n) for n in range(8)], "id BIGINT, v ARRAY<FLOAT>, s BIGINT"
    ).selectExpr("id", "v", "CAST(s AS TIMESTAMP) AS ts")
    a, b = (replay(frame, [range(8)], tmp_path).withWatermark("ts", "0 seconds") for _ in "ab")
    with pytest.raises(StreamingQueryException, match=r"VECTOR_DIMENSION.*size\(\.\.\.\) = size\(\.\.\.\)"):
        outcome(th.join({"a": a, "b": b}, on=NEAR, within="1 hour"), ["a.id"], tmp_path)
    apart = th.join({"a": a, "b": b}, on=f"size(a.v) = size(b.v) AND {NEAR}", within="1 hour")
    assert sum(outcome(apart, ["a.id"], tmp_path).rows.values()) == 32
