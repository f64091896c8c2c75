"""Similarities at a limit and one or two floats beside it join exactly as in Spark's own join."""

from collections import Counter
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from thetastream.index.measures import REGISTRY

MEASURES = ("vector_cosine_similarity", "vector_inner_product", "vector_l2_distance")
SIZES = (3, 17, 64, 384)
ROWS = 34
"""Vectors of each side. With fewer of them, all pairs would be computed, without products of matrices."""
OFFSETS = (-2, -1, 0, 1, 2)


def plant(name: str, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """Make vectors, of which many have the limit as their value with the first one, or a float beside it."""
    left, right = (random.normal(size=(ROWS, size)).astype(np.float32) for _ in range(2))
    right[: ROWS // 2] = left[0] + 0.3 * random.normal(size=size).astype(np.float32)
    limit = compute(name, left[:1], right[:1])[0]
    # Vectors that differ in the last bits of some floats have values beside each other.
    steps = random.integers(-3, 4, (20_000, size)) * (random.random((20_000, size)) < 4 / size)
    tried = right[0] + steps * np.spacing(right[0])
    offsets = find_offsets(compute(name, left[:1], tried.astype(np.float32)), limit)
    found = [np.flatnonzero(offsets == offset)[:3] for offset in OFFSETS]
    chosen = np.concatenate(found)
    right[: len(chosen)] = tried[chosen]
    return left, right, limit


def compute(name: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compute the values of a left vector with right ones. Another test compares them with Spark."""
    columns = [pa.array([*side], pa.list_(pa.float32())) for side in (left, right)]
    rows = np.arange(len(right))
    return REGISTRY[name].compute(columns[0], np.zeros_like(rows), columns[1], rows).values.astype(np.float32)


def find_offsets(values: np.ndarray, limit: np.float32) -> np.ndarray:
    """Return how many floats lie between each value and the limit."""
    return values.view(np.int32).astype(np.int64) - int(limit.view(np.int32))


@pytest.mark.slow
def test_pairs_at_the_limit(spark: SparkSession) -> None:
    """More than 50,000 pairs of vectors, by three measures, four sizes and four comparisons."""
    random = np.random.default_rng(31)
    frames, conditions = [], []
    planted: Counter[int] = Counter()
    for number, (name, size) in enumerate((name, size) for name in MEASURES for size in SIZES):
        left, right, limit = plant(name, size, random)
        planted.update(find_offsets(compute(name, left[:1], right), limit).tolist())
        frames.append(
            [
                (number, side, row, vector.tolist())
                for side, vectors in enumerate((left, right))
                for row, vector in enumerate(vectors)
            ]
        )
        for op in ("<", "<=", ">", ">="):
            conditions.append((number, f"{name}(a.v, b.v) {op} CAST({limit!s}F AS DOUBLE)", op))
    rows = spark.createDataFrame(
        [row for frame in frames for row in frame], "n INT, side INT, id INT, v ARRAY<FLOAT>"
    ).localCheckpoint()
    assert min(planted[offset] for offset in OFFSETS) >= 12
    for start in range(0, len(conditions), 12):
        ours, own = [], []
        for number, on, op in conditions[start : start + 12]:
            a, b = (rows.where(f"n = {number} AND side = {side}") for side in (0, 1))
            columns = [F.lit(number), F.lit(op), "a.id", F.col("b.id").alias("bid")]
            plan = th.plan({"a": a, "b": b}, on=on)
            assert not plan.join.planned.physical.residual
            ours.append(plan.dataframe().select(*columns))
            own.append(a.alias("a").join(b.alias("b"), F.expr(on)).select(*columns))
        found, wanted = (
            Counter(map(tuple, reduce(DataFrame.union, parts).collect())) for parts in (ours, own)
        )
        assert found == wanted
