"""``th.Replicated`` and ``th.Matrix(n, 1, subgroups=n)`` say how tuples are looked up in a table."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.core.errors import QueryError

DIVIDED = th.Matrix(3, 1, subgroups=3)
PAIRS = ["a.id", "t.n"]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return spark.range(0, 60, 1, 2).selectExpr("id AS n", "id * 3 AS low", "id * 3 + id % 7 AS high")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 40, 1, 1).selectExpr("id", "id * 7 % 190 AS x")


def make_stream(frame: DataFrame, folder: Path) -> DataFrame:
    return replay(frame, [range(20), range(20, 40)], folder)


@pytest.mark.parametrize("how", ["inner", pytest.param("left", marks=pytest.mark.slow)])
def test_the_results_are_the_same(frame: DataFrame, table: DataFrame, tmp_path: Path, how: Any) -> None:
    stream, on = make_stream(frame, tmp_path), "a.x >= t.low AND a.x < t.high"
    expected = th.join({"a": frame, "t": table}, on, how=how, model="spark").select(*PAIRS).collect()
    for model in (th.Replicated(), DIVIDED):
        plan = th.plan({"a": stream, "t": th.Table(table)}, on, model=model, how=how)
        assert ("divided among 3 tasks" in plan.explain()) == (model is DIVIDED)
        found = outcome(plan.dataframe(), PAIRS, tmp_path).rows
        assert sorted(map(str, found.elements())) == sorted(str(tuple(row)) for row in expected)


def test_what_is_refused(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    stream = make_stream(frame, tmp_path)
    one_sided = {"a": stream, "t": table}
    with pytest.raises(QueryError, match=r"NOT_ROUTABLE.*equality or a band"):
        th.join(one_sided, "a.x >= t.low", model=DIVIDED)
    with pytest.raises(QueryError, match=r"TABLE_INDEX.*model is for tables"):
        th.join(one_sided, "hash(a.x, t.low) % 2 = 0", model=th.Replicated())
    with pytest.raises(QueryError, match=r"MIXED_INPUTS.*model needs two streams"):
        th.join(one_sided, "a.x >= t.low", model=th.Biclique(units=(1, 1)))
    with pytest.raises(QueryError, match=r"MIXED_INPUTS.*no input is a batch"):
        th.join({"a": stream, "b": stream}, "a.x >= b.x", model=th.Replicated())
