"""Equalities that take NULL for a value, and equalities of collated texts, in each model and kind of join."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import split, table, tagged, truths

COLUMNS = {
    "k": ("int", ["1", "2", "NULL", "2"]),
    "l": ("bigint", ["9223372036854775807", "NULL", "5"]),
    "s": ("string", ["'abcdefghij'", "NULL", "'é'", "''", "'abcdefghik'"]),
    "w": ("decimal(38,18)", ["1.5", "NULL", "0.000000000000000001"]),
    "c": ("string collate UTF8_LCASE", ["'ὈΔΥΣΣΕΎΣ'", "NULL", "'ὀδυσσεύς'", "'a'", "'A '", "'A'"]),
    "r": ("string collate UTF8_BINARY_RTRIM", ["'a'", "'a  '", "NULL", "'A'"]),
    "z": ("struct<x:double>", ["named_struct('x', 0.0D)", "NULL", "named_struct('x', -0.0D)"]),
}
CONDITIONS = [
    "a.k <=> b.k",
    "a.k + 1 <=> b.k",
    "a.l IS NOT DISTINCT FROM b.l",
    "equal_null(a.s, b.s) AND a.k <= b.k",
    "NOT (a.w IS DISTINCT FROM b.w)",
    "a.c = b.c",
    "a.c <=> b.c",
    "a.r = b.r AND a.k <=> b.k",
    "a.s COLLATE UTF8_LCASE = b.c",
    "a.z <=> b.z",
]
MODELS = [
    th.Biclique((2, 2), subgroups=2, routing="hash"),
    th.Matrix(2, 1, subgroups=2, routing="hash"),
    th.Split(2),
    th.Chain(2),
]


def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    backwards = {name: (kind, values[::-1]) for name, (kind, values) in COLUMNS.items()}
    return table(spark, COLUMNS, 9), table(spark, backwards, 8)


def test_each_is_a_key_that_routes(spark: SparkSession) -> None:
    """The index answers what subgroups need: before, all of these were NOT_ROUTABLE."""
    a, b = frames(spark)
    for on in CONDITIONS:
        plan = th.plan({"a": a, "b": b}, on=on, model=MODELS[0])
        assert plan.join.planned.physical.indexes[0].shape.name in ("hash", "hash_sorted"), on
    with pytest.raises(th.QueryError, match="NOT_ROUTABLE"):
        th.plan({"a": a, "b": b}, on="a.k IS DISTINCT FROM b.k", model=MODELS[0])


@pytest.mark.slow
def test_models_agree(spark: SparkSession) -> None:
    a, b = frames(spark)
    joins = [th.join({"a": a, "b": b}, on=on, model=MODELS[n % 3]) for n, on in enumerate(CONDITIONS)]
    rows = Counter(tuple(row) for row in tagged(joins).collect())
    assert dict(zip(CONDITIONS, split(rows, len(joins)), strict=True)) == dict(
        zip(CONDITIONS, truths(a, b, CONDITIONS), strict=True)
    )


def count_rows(joined: DataFrame, how: str, n: int) -> DataFrame:
    other = F.lit(None).cast("bigint") if how in ("semi", "anti") else F.col("b.id").cast("bigint")
    return joined.select(F.lit(n).alias("n"), F.col("a.id").cast("bigint").alias("a"), other.alias("b"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@pytest.mark.slow
def test_kinds_of_joins(spark: SparkSession, how: str) -> None:
    a, b = frames(spark)
    ours = theirs = None
    for n, on in enumerate(CONDITIONS):
        mine = count_rows(th.join({"a": a, "b": b}, on=on, how=how), how, n)
        own = count_rows(a.alias("a").join(b.alias("b"), F.expr(on), how), how, n)
        ours, theirs = (
            mine if ours is None else ours.unionAll(mine),
            own if theirs is None else theirs.unionAll(own),
        )
    assert ours is not None
    assert theirs is not None
    assert Counter(map(tuple, ours.collect())) == Counter(map(tuple, theirs.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_streams(spark: SparkSession, tmp_path: Path, model: Any) -> None:
    conditions = CONDITIONS[2:7:2]
    a, b = frames(spark)
    parts = [
        replay(frame.withColumn("ts", F.lit("2026-01-05").cast("timestamp")), epochs, tmp_path).withWatermark(
            "ts", "1 hour"
        )
        for frame, epochs in ((a, [range(5), range(5, 9)]), (b, [range(3), [], range(3, 8)]))
    ]
    joins = [
        th.join({"a": parts[0], "b": parts[1]}, on=on, within="1 hour", model=model) for on in conditions
    ]
    found = outcome(tagged(joins), ["*"], tmp_path)
    assert split(found.rows, len(joins)) == truths(a, b, conditions)


@pytest.mark.slow
def test_three_streams(spark: SparkSession) -> None:
    a, b = frames(spark)
    on = "a.l <=> b.l AND b.s <=> c.s AND a.c = c.c"
    wanted = Counter(
        tuple(row)
        for row in a.alias("a")
        .join(b.alias("b"), F.expr("a.l <=> b.l"))
        .join(a.alias("c"), F.expr("b.s <=> c.s AND a.c = c.c"))
        .select("a.id", "b.id", "c.id")
        .collect()
    )
    for model in (None, th.Ring(2)):
        joined = th.join({"a": a, "b": b, "c": a}, on=on, model=model)
        assert Counter(map(tuple, joined.select("a.id", "b.id", "c.id").collect())) == wanted


def test_a_table_beside_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    a, b = frames(spark)
    on = "a.c = b.c AND a.k <=> b.k"
    plan = th.plan({"a": replay(a, [range(9)], tmp_path), "b": b}, on=on)
    assert "by its equality" in plan.explain()
    assert outcome(plan.dataframe(), ["a.id", "b.id"], tmp_path).rows == truths(a, b, [on])[0]
