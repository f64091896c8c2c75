"""Measures that are compared with a threshold of each row, or in other forms, answer what Spark answers."""

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.core.measure import PairMeasure
from thetastream.index.measures import REGISTRY
from thetastream.index.measures.subtraction import Subtraction

pytestmark = pytest.mark.skipif(
    not hasattr(F, "vector_l2_distance"), reason="needs a Spark with functions of vectors"
)
JACCARD = "try_divide(size(array_intersect(a.s, b.s)), size(array_union(a.s, b.s)))"
NEAR = {
    "vector_cosine_similarity(a.v, b.v) >= a.c": "tiles",
    "levenshtein(a.w, b.w) <= b.e": "tiles",
    f"{JACCARD} >= a.j AND a.k = b.k": "hash_tiles",
}
OTHERS = {
    "vector_cosine_similarity(b.v, a.v) BETWEEN a.c AND a.c + 0.25D": "tiles",
    "b.p < vector_inner_product(a.v, b.v)": "tiles",
    "vector_l2_distance(a.v, b.v) < 2 * b.r AND a.x < b.x": "tiles",
    "NOT vector_l2_distance(a.v, b.v) < try_cast(a.r AS DECIMAL(20, 6)) AND a.k = b.k": "hash_tiles",
    "levenshtein(a.w, upper(b.w)) > CAST(a.e AS BIGINT)": "tiles",
    "bit_count(a.m ^ b.m) <= b.h": "tiles",
    "bit_count(a.m ^ b.m) > a.k + 60L": "tiles",
    "size(array_intersect(a.s, b.s)) >= b.k": "tiles",
    f"{JACCARD} < CAST(b.j AS FLOAT)": "tiles",
    "abs(a.x - b.x) <= a.k": "tiles",
    "abs(a.y - b.y) < b.d AND a.k = b.k": "hash_tiles",
    "abs(a.y - b.y) >= a.d": "tiles",
}
FORMS = {
    "1 - vector_cosine_similarity(a.v, b.v) <= a.u": "tiles",
    "b.u >= 1F - vector_cosine_similarity(b.v, a.v)": "tiles",
    "1.0 - vector_cosine_similarity(a.v, b.v) < 0.25 AND a.k = b.k": "hash_tiles",
    "NOT 1 - vector_cosine_similarity(a.v, b.v) < b.u": "tiles",
    "CAST(vector_cosine_similarity(a.v, b.v) AS DOUBLE) > a.c": "tiles",
    f"1 - {JACCARD} <= 0.4": "tiles",
    f"0.5D <= 1 - {JACCARD} AND a.k = b.k": "hash_tiles",
    "2 - levenshtein(a.w, b.w) >= 0": "tiles",
    "levenshtein(a.w, b.w, 1) >= 0": "tiles",
    "-1 < levenshtein(b.w, a.w, b.e)": "tiles",
    "bit_count(a.m ^ b.m) + bit_count(b.x ^ a.x) <= 3": "tiles",
    "bit_count(a.m ^ b.m) + bit_count(a.x ^ b.x) + bit_count(b.k ^ a.k) > a.h + 1": "tiles",
    "5 - (bit_count(a.m ^ b.m) + bit_count(a.x ^ b.x)) > 1 AND a.k = b.k": "hash_tiles",
    "abs(a.x - b.m) > 30": "tiles",
    "size(array_intersect(a.s, CAST(b.s AS ARRAY<BIGINT>))) >= 2": "tiles",
}
"""Forms that people write, and casts that Catalyst adds."""
LEFT_TO_SPARK = ["bit_count(a.m ^ b.m) < try_cast(b.h AS DECIMAL(10, 1))", "abs(a.m - b.m) <= a.h"]
"""Comparisons in types that units do not compare in."""
SCHEMA = """id BIGINT, ts BIGINT, k INT, x INT, y DOUBLE, v ARRAY<FLOAT>, w STRING, m BIGINT, s ARRAY<INT>,
    c FLOAT, u DOUBLE, p DOUBLE, r FLOAT, e INT, j DOUBLE, h BIGINT, d DOUBLE"""
SIZE = 19
THRESHOLDS: dict[str, tuple[PairMeasure | str, str, Any]] = {
    "c": ("vector_cosine_similarity", "v", np.float32),
    "u": (Subtraction(REGISTRY["vector_cosine_similarity"], 1.0, is_single=False), "v", np.float64),
    "p": ("vector_inner_product", "v", np.float64),
    "r": ("vector_l2_distance", "v", np.float32),
    "e": ("levenshtein", "w", np.int32),
    "j": ("try_jaccard", "s", np.float64),
    "h": ("bit_count", "m", np.int64),
    "d": ("abs", "y", np.float64),
}
"""For each column of thresholds, the measure and the column whose values it is near, and its type."""


def draw_values(random: np.random.Generator, n: int) -> dict[str, list[Any]]:
    """Draw values of which many pairs are near each other. Some are NULL or have odd elements."""
    centres = np.random.default_rng(0).normal(size=(4, SIZE))
    vectors: list[Any] = []
    for _ in range(n):
        spread = random.choice([0.0, 0.1, 1.0])
        found = centres[random.integers(4)] + random.normal(size=SIZE) * spread
        vector: list[Any] = found.astype(np.float32).tolist()
        odd = random.integers(12)
        if odd == 1:
            vector[3] = (None, float("nan"), float("inf"), 3e38)[random.integers(4)]
        vectors.append(None if odd == 0 else [0.0] * SIZE if odd == 2 else vector)
    texts = ["".join(random.choice([*"abcé"], random.integers(8))) for _ in range(n)]
    sets = [random.integers(6, size=random.integers(5)).tolist() for _ in range(n)]
    return {
        "id": [*range(n)],
        "ts": [*range(n)],
        "k": random.integers(2, size=n).tolist(),
        "x": random.integers(40, size=n).tolist(),
        "y": [*(random.integers(-9, 9, n - 1) / 10).tolist(), float("nan")],
        "v": vectors,
        "w": [None if random.random() < 0.05 else text for text in texts],
        "m": random.integers(-16, 16, n).tolist(),
        "s": [None if random.random() < 0.05 else found for found in sets],
    }


def plant(side: dict[str, list[Any]], other: dict[str, list[Any]], random: np.random.Generator) -> None:
    """Add thresholds: the value of a pair, or one or two numbers beside it. Some are odd numbers."""
    n, types = len(side["id"]), {"v": pa.list_(pa.float32()), "s": pa.list_(pa.int32())}
    for name, (measure, column, kind) in THRESHOLDS.items():
        arrays = [pa.array(one[column], types.get(column)) for one in (side, other)]
        one = REGISTRY[measure] if isinstance(measure, str) else measure
        found = one.compute(arrays[0], np.arange(n), arrays[1], random.integers(n, size=n))
        values = np.where(found.is_null, 0, found.values).astype(kind)
        steps = random.integers(-2, 3, n)
        if issubclass(kind, np.integer):
            rows = [int(value + step) for value, step in zip(values, steps, strict=True)]
            odd = [None, -3, 2_000_000_000]
        else:
            towards = np.where(steps < 0, -np.inf, np.inf).astype(kind)
            for step in range(2):
                values = np.where(np.abs(steps) > step, np.nextafter(values, towards), values)
            rows, odd = values.tolist(), [None, float("nan"), float("inf"), float("-inf"), -1e30, 1e30]
        side[name] = [odd[random.integers(len(odd))] if random.random() < 0.1 else row for row in rows]


def draw_frames(spark: SparkSession, seed: int, n: int) -> tuple[DataFrame, DataFrame]:
    random = np.random.default_rng(seed)
    a, b = (draw_values(random, n) for _ in range(2))
    plant(a, b, random)
    plant(b, a, random)
    names = [part.split()[0] for part in SCHEMA.split(",")]
    left, right = (
        spark.createDataFrame([*zip(*(side[name] for name in names), strict=True)], SCHEMA)
        .withColumn("ts", F.col("ts").cast("timestamp"))
        .localCheckpoint()
        for side in (a, b)
    )
    return left, right


def join_both(
    frames: tuple[Any, Any], rows: tuple[DataFrame, DataFrame], on: str, how: str
) -> tuple[DataFrame, DataFrame, Any]:
    """Return the answers of the engine and of Spark's own join, and the plan."""
    other = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
    columns = [F.lit(on), "a.id", other.alias("bid")]
    plan = th.plan({"a": frames[0], "b": frames[1]}, on=on, how=how)
    own = rows[0].alias("a").join(rows[1].alias("b"), F.expr(on), how).select(*columns)
    return plan.dataframe().select(*columns), own, plan


@pytest.mark.parametrize(
    ("conditions", "how"),
    [
        pytest.param([*NEAR], "inner", marks=pytest.mark.slow),
        pytest.param([*FORMS], "inner", marks=pytest.mark.slow),
        pytest.param([*FORMS], "left", marks=pytest.mark.slow),
        *(
            pytest.param([*OTHERS, *LEFT_TO_SPARK], how, marks=pytest.mark.slow)
            for how in ("inner", "left", "full", "semi", "anti")
        ),
    ],
    ids=["near", "forms", "forms left", "inner", "left", "full", "semi", "anti"],
)
def test_batch(spark: SparkSession, conditions: list[str], how: str) -> None:
    frames = draw_frames(spark, 1, 150)
    answers = [join_both(frames, frames, on, how) for on in conditions]
    found, wanted = (
        Counter(map(tuple, reduce(DataFrame.union, [one[n] for one in answers]).collect())) for n in (0, 1)
    )
    assert found == wanted
    if how != "anti":  # Under some conditions, every tuple has a partner.
        assert {on for on, *_ in wanted} == {*conditions}
    for on, (_, _, plan) in zip(conditions, answers, strict=True):
        physical = plan.join.planned.physical
        assert physical.indexes[0].shape.name == {**NEAR, **OTHERS, **FORMS}.get(on, "scan"), on
        assert bool(physical.residual) == (on in LEFT_TO_SPARK), on
        assert on in FORMS or ("has its own threshold" in plan.explain()) == (on not in LEFT_TO_SPARK)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_stream_beside_a_table(spark: SparkSession, tmp_path: Path, how: str) -> None:
    a, b = draw_frames(spark, 2, 120)
    s = replay(a, [range(70), range(70, 120)], tmp_path)
    conditions = [*NEAR, *OTHERS, *FORMS]
    answers = [join_both((s, b), (a, b), on, how) for on in conditions]
    ours, own = (reduce(DataFrame.union, [one[n] for one in answers]) for n in (0, 1))
    assert outcome(ours, ["*"], tmp_path).rows == Counter(map(tuple, own.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, th.Biclique((2, 2)), th.Chain(2)], ids=repr)
def test_streams(spark: SparkSession, tmp_path: Path, model: Any) -> None:
    """Each side probes the other one, so thresholds are those of probes and of stored rows."""
    frames = draw_frames(spark, 3, 120)
    a, b = (
        replay(frame, [range(60), range(60, 120)], tmp_path).withWatermark("ts", "0 seconds")
        for frame in frames
    )
    window = "abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= 50"
    for on in ("vector_cosine_similarity(a.v, b.v) >= a.c", "levenshtein(a.w, b.w) <= b.e"):
        joined = th.join({"a": a, "b": b}, on=on, within="50 seconds", model=model)
        found = outcome(joined, ["a.id", F.col("b.id").alias("bid")], tmp_path).rows
        own = frames[0].alias("a").join(frames[1].alias("b"), F.expr(f"{on} AND {window}"))
        assert found == Counter(map(tuple, own.select("a.id", F.col("b.id")).collect()))
