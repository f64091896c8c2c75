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
PARTS = [[*CONDITIONS][n : n + 2] for n in range(0, len(CONDITIONS), 2)]
PART_NAMES = [str(n) for n in range(len(PARTS))]
SIZE = 19
OF_VECTORS = {name: measure for name, measure in REGISTRY.items() if name.startswith("vector")}


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
    calls = [F.expr(f"{name}(a.v, b.v)").alias(name) for name in OF_VECTORS]
    pairs = a.alias("a").crossJoin(b.alias("b")).select("a.id", F.col("b.id").alias("bid"), *calls).toArrow()
    left, right = (frame.orderBy("id").toArrow()["v"].combine_chunks() for frame in (a, b))
    left, right = (column.cast(pa.list_(pa.float32())) for column in (left, right))
    for name, measure in OF_VECTORS.items():
        found = measure.compute(left, pairs["id"].to_numpy(), right, pairs["bid"].to_numpy())
        wanted = pairs[name]
        assert found.is_null.tolist() == wanted.is_null().to_pylist()
        values = wanted.to_numpy()[~found.is_null].astype(np.float32)
        mine = found.values[~found.is_null].astype(np.float32)
        assert np.array_equal(mine, values, equal_nan=True)
        assert len({*values.tolist()}) > 500


@pytest.mark.sampled(11)
@pytest.mark.parametrize("conditions", PARTS, ids=PART_NAMES)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_batch(spark: SparkSession, how: str, conditions: list[str]) -> None:
    a, b = (draw_frame(spark, seed, 150) for seed in (3, 4))
    bid = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    ours, own = [], []
    for on in conditions:
        columns = [F.lit(on), "a.id", bid.alias("bid")]
        ours.append(th.join({"a": a, "b": b}, on=on, how=how).select(*columns))
        own.append(a.alias("a").join(b.alias("b"), F.expr(on), how).select(*columns))
    found, wanted = (Counter(map(tuple, reduce(DataFrame.union, joins).collect())) for joins in (ours, own))
    assert found == wanted
    assert {on for on, *_ in found} == {*conditions}


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


@pytest.mark.sampled(5)
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


@pytest.mark.sampled(9)
@pytest.mark.parametrize("conditions", PARTS, ids=PART_NAMES)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_stream_beside_a_table(
    spark: SparkSession, tmp_path: Path, how: str, conditions: list[str]
) -> None:
    a, b = (draw_frame(spark, seed, 80) for seed in (11, 12))
    s = replay(a, [range(50), range(50, 80)], tmp_path)
    bid = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    ours, own = [], []
    for on in conditions:
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


@pytest.mark.slow
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


RANKINGS = [
    ("true", "vector_cosine_similarity(a.v, b.v)", "similarity"),
    ("a.k = b.k", "vector_l2_distance(b.v, a.v)", "distance"),
    ("a.x < b.x", "vector_inner_product(transform(a.v, e -> e * 2F), b.v)", "similarity"),
    (f"a.k = b.k AND {NEAR}", "vector_cosine_similarity(a.v, b.v) DESC", "distance"),
    ("true", "1 - vector_cosine_similarity(a.v, b.v)", "distance"),
    ("a.k = b.k", "bit_count(a.x ^ b.x) + bit_count(a.id ^ b.k)", "similarity"),
]


def rank_pairs(a: DataFrame, b: DataFrame, on: str, by: str, is_greatest: bool, k: int) -> Counter[Any]:
    """Rank the values that Spark computes: NaN comes last, and then NULL."""
    pairs = a.alias("a").join(b.alias("b"), F.expr(on)).select("a.id", F.col("b.id"), F.expr(by)).collect()
    ranked: dict[int, list[tuple[int, float, int]]] = {}
    for mine, theirs, value in pairs:
        place = 2 if value is None else int(value != value)
        number = 0.0 if place else -value if is_greatest else value
        ranked.setdefault(mine, []).append((place, number, theirs))
    found: Counter[Any] = Counter()
    for mine, partners in ranked.items():
        worst = sorted(partners)[: k + 1][min(k, len(partners)) - 1][:2]
        found.update((mine, theirs) for *rank, theirs in partners if tuple(rank) <= worst)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", [0, 2, 4])
def test_the_nearest_by_a_measure(spark: SparkSession, tmp_path: Path, first: int) -> None:
    a, b = (draw_frame(spark, seed, 90).localCheckpoint() for seed in (16, 17))
    s = replay(a, [range(60), range(60, 90)], tmp_path)
    joins: dict[str, list[DataFrame]] = {"batch": [], "table": []}
    wanted: Counter[Any] = Counter()
    for n, (on, by, direction) in enumerate(RANKINGS[first : first + 2]):
        how = th.Nearest(3, by=by, direction=direction)
        for kind, left in (("batch", a), ("table", s)):
            joined = th.join({"a": left, "b": b}, on=on, how=how)
            joins[kind].append(joined.select(F.lit(n), "a.id", F.col("b.id")))
        is_greatest = direction == "similarity" or by.endswith("DESC")
        pairs = rank_pairs(a, b, on, by.removesuffix(" DESC"), is_greatest, 3)
        wanted.update({(n, *pair): count for pair, count in pairs.items()})
    assert Counter(map(tuple, reduce(DataFrame.union, joins["batch"]).collect())) == wanted
    assert outcome(reduce(DataFrame.union, joins["table"]), ["*"], tmp_path).rows == wanted
    assert {n for n, *_ in wanted} == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("residual", ["", " AND a.id <> b.id"])
def test_the_nearest_of_a_stream_in_a_statement(spark: SparkSession, tmp_path: Path, residual: str) -> None:
    """Behind the units, Spark evaluates the residual, and second units decide."""
    a, b = (draw_frame(spark, seed, 60) for seed in (18, 19))
    given = {
        alias: replay(frame, [range(30), range(30, 60)], tmp_path).withWatermark("ts", "0 seconds")
        for alias, frame in (("a", a), ("b", b))
    }
    by, on = "vector_inner_product(a.v, b.v)", f"a.k = b.k{residual}"
    text = (
        f"SELECT ONLINE a.id, b.id AS bid FROM a JOIN b NEAREST 2 BY SIMILARITY {by} ON {on} WITHIN 9 seconds"
    )
    found = outcome(th.sql(spark, text, given), ["*"], tmp_path).rows
    window = "abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= 9"
    wanted = rank_pairs(a, b, f"{on} AND {window}", by, True, 2)
    # The watermark decides all but the last tuples.
    assert found <= wanted
    assert {a for a, _ in found} >= {a for a, _ in wanted if a < 45}


def test_the_nearest_are_those_of_sparks_own_join(spark: SparkSession) -> None:
    a, b = (draw_frame(spark, seed, 120, is_odd=False) for seed in (20, 21))
    # Without equal vectors, there are no ties.
    a, b = (frame.where("v[0] <> 0").dropDuplicates(["v"]).localCheckpoint() for frame in (a, b))
    for by, direction in (("vector_cosine_similarity", "similarity"), ("vector_l2_distance", "distance")):
        own = a.nearestByJoin(b, F.call_function(by, a.v, b.v), 4, "exact", direction).select(a.id, b.id)
        how = th.Nearest(4, by=f"{by}(a.v, b.v)", direction=direction)
        joined = th.join({"a": a, "b": b}, on="true", how=how).select("a.id", F.col("b.id"))
        assert Counter(map(tuple, joined.collect())) == Counter(map(tuple, own.collect()))


def test_rankings_that_are_refused(spark: SparkSession) -> None:
    a = draw_frame(spark, 22, 3)
    d = a.withColumn("v", F.expr("CAST(v AS ARRAY<DOUBLE>)"))
    cosine = "vector_cosine_similarity(a.v, b.v)"
    for by, other, direction, what in (
        (
            cosine,
            d,
            "similarity",
            "takes two values of type ARRAY<FLOAT>, not ARRAY<FLOAT> and ARRAY<DOUBLE>",
        ),
        (f"{cosine} DESC", a, "similarity", "leave out what stands behind"),
        (f"{cosine} NULLS FIRST", a, "distance", "NULL is the last of the values of a measure"),
        ("levenshtein(a.t, b.t, 2)", a, "distance", r"rank by levenshtein\(a\.t, b\.t\), and write"),
    ):
        with pytest.raises(th.QueryError, match=rf"\[NEAREST\].*{what}"):
            th.plan({"a": a, "b": other}, on="true", how=th.Nearest(1, by=by, direction=direction))
    with pytest.raises(th.QueryError, match=r"direction of th\.Nearest must be 'distance'"):
        th.Nearest(1, by=cosine, direction="near")


DISTANCES = [
    "bit_count(a.h ^ b.h) <= 2",
    "bit_count(b.n ^ (a.h)) > 61 AND a.x < b.x",
    "levenshtein(a.t, b.t) <= 2 AND a.n = b.n",
    "3 > levenshtein(upper(b.t), a.t)",
    "size(array_intersect(a.s, b.s)) / size(array_union(a.s, b.s)) >= 0.5 AND size(a.s) > 0",
    "try_divide(size(array_intersect(b.w, a.w)), size(array_union(a.w, b.w))) > 0.4D AND a.n = b.n",
]
FAR = [
    "levenshtein(a.t, b.t) > 4 AND a.n = b.n",
    "NOT abs(a.x - b.n) <= 5",
    "abs((a.x / 4D) - (b.n / 4D)) > 0.75D",
    "a.h NOT BETWEEN b.h AND b.h + 5",
    "NOT (b.x / 4D > a.n / 4D AND b.x / 4D < a.x / 4D)",
    "a.ts < b.ts OR b.ts + INTERVAL 5 SECONDS < a.ts",
    "size(array_intersect(a.s, b.s)) / size(array_union(a.s, b.s)) < 0.5 AND size(a.s) > 0",
    "NOT array_contains(a.s, b.n)",
    "NOT arrays_overlap(b.w, a.w)",
]
"""Comparisons that most pairs satisfy."""
SHARES = [
    "size(array_intersect(a.s, b.s)) / size(b.s) >= 0.6 AND size(b.s) > 0",
    "size(array_intersect(b.w, a.w)) / size(b.w) > 0.5D AND size(b.w) > 0",
    "try_divide(size(array_intersect(a.s, b.s)), least(size(b.s), size(a.s))) >= 1",
    "2 * size(array_intersect(a.s, b.s)) / (size(a.s) + size(b.s)) > 0.6 AND size(a.s) > 0",
    "size(array_intersect(a.s, b.s)) / (size(b.s) + size(a.s) - size(array_intersect(a.s, b.s))) >= 0.4 "
    "AND size(b.s) > 0",
    "size(array_intersect(a.s, b.s)) >= 3",
    "array_contains(b.s, a.n)",
    "arrays_overlap(a.s, b.s) AND a.n = b.n",
]
"""What two arrays share."""
LEFT_TO_SPARK = ["levenshtein(a.c, b.c) < 2", "bit_count(a.h | 1 ^ b.h) < 2", "bit_count(a.h ^ b.h) < 2.5BD"]
"""A collation, another function of the bits, and a comparison of decimals."""


def draw_values(spark: SparkSession, seed: int, n: int) -> DataFrame:
    """Draw numbers of few bits, some of them negative, and short texts."""
    random = np.random.default_rng(seed)
    rows = [
        (
            number,
            None if number % 11 == 5 else int(random.integers(-9, 9)) * (1 << 40),
            int(random.integers(-3, 3)),
            int(random.integers(9)),
            None if number % 9 == 4 else "".join(random.choice([*"Ab é日"], random.integers(0, 6))),
            None if number % 8 == 3 else [[1, 2, 3, 4, None][n] for n in random.integers(0, 5, number % 6)],
        )
        for number in range(n)
    ]
    frame = spark.createDataFrame(rows, "id BIGINT, h BIGINT, n INT, x INT, t STRING, s ARRAY<INT>")
    more = (
        "t COLLATE UTF8_LCASE AS c",
        "transform(s, e -> repeat('é', e)) AS w",
        "timestamp_seconds(id) AS ts",
    )
    return frame.selectExpr("*", *more).localCheckpoint()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conditions", "with_a_table"),
    [
        (DISTANCES[:3], False),
        (DISTANCES, True),
        (FAR, True),
        (SHARES, True),
    ],
    ids=["near", "near with a table", "far", "shares"],
)
def test_bits_edits_and_sets(
    spark: SparkSession, tmp_path: Path, conditions: list[str], with_a_table: bool
) -> None:
    a, b = (draw_values(spark, seed, 80) for seed in (23, 24))
    s = replay(a, [range(80)], tmp_path)
    batch, table, own = [], [], []
    for on in [*conditions, *LEFT_TO_SPARK]:
        columns = [F.lit(on), "a.id", F.col("b.id")]
        plan = th.plan({"a": a, "b": b}, on=on)
        is_measured = on in conditions
        assert bool(plan.join.planned.physical.condition.measured) == is_measured, on
        assert plan.join.planned.physical.indexes[0].shape.name == (
            "hash_tiles" if " = " in on else "tiles" if is_measured else "scan"
        )
        batch.append(plan.dataframe().select(*columns))
        if is_measured and with_a_table:
            table.append(th.join({"a": s, "b": b}, on=on).select(*columns))
        own.append(a.alias("a").join(b.alias("b"), F.expr(on)).select(*columns))
    wanted = Counter(map(tuple, reduce(DataFrame.union, own).collect()))
    assert Counter(map(tuple, reduce(DataFrame.union, batch).collect())) == wanted
    assert {on for on, *_ in wanted} == {*conditions, *LEFT_TO_SPARK}
    if with_a_table:
        found = outcome(reduce(DataFrame.union, table), ["*"], tmp_path).rows
        assert found == Counter({row: n for row, n in wanted.items() if row[0] in conditions})
    by = "levenshtein(a.t, b.t)"
    top = th.join({"a": a, "b": b}, on="a.n = b.n", how=th.Nearest(2, by=by)).select("a.id", F.col("b.id"))
    assert Counter(map(tuple, top.collect())) == rank_pairs(a, b, "a.n = b.n", by, False, 2)


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


@pytest.mark.slow
def test_vectors_of_two_sizes(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(n, [1.0, 2.0, 2.0][: 2 + n % 2], n) for n in range(8)], "id BIGINT, v ARRAY<FLOAT>, s BIGINT"
    ).selectExpr("id", "v", "CAST(s AS TIMESTAMP) AS ts")
    a, b = (replay(frame, [range(8)], tmp_path).withWatermark("ts", "0 seconds") for _ in "ab")
    with pytest.raises(StreamingQueryException, match=r"VECTOR_DIMENSION.*size\(\.\.\.\) = size\(\.\.\.\)"):
        outcome(th.join({"a": a, "b": b}, on=NEAR, within="1 hour"), ["a.id"], tmp_path)
    apart = th.join({"a": a, "b": b}, on=f"size(a.v) = size(b.v) AND {NEAR}", within="1 hour")
    assert sum(outcome(apart, ["a.id"], tmp_path).rows.values()) == 32
