"""Two batch DataFrames are joined by an index of one of them, and the answer is that of Spark's own join."""

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import replay
from thetastream.joins.compose import batches

HOWS = ["inner", "left", "right", "full", "semi", "anti"]
CONDITIONS = [
    "a.x >= t.low AND a.x < t.high AND a.id > 3",
    "a.f <= t.f AND a.x <=> t.low AND t.n <> 5",
    "a.ts BETWEEN t.since AND t.since + INTERVAL 30 SECONDS",
    "abs(a.x - t.low) <= 1 AND abs(a.id - t.n) <= 6",
]
CATALYST = "a.x <= t.high AND coalesce(a.name, t.name) <> 'n3'"


@th.predicate(a=["x"], t=["low"])
def same_parity(a: Any, t: Any) -> Any:
    return np.asarray(a.x) % 2 == np.asarray(t.low) % 2


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return (
        spark.range(0, 40, 1, 2)
        .selectExpr(
            "id",
            "timestamp_seconds(nullif(1700000000 + id * 10, 1700000070)) AS ts",
            "nullif(id * 7 % 11, 5) AS x",
            "CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0 ELSE id % 5 END AS f",
            "concat('n', id % 6) AS name",
        )
        .localCheckpoint()
    )


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return (
        spark.range(0, 25, 1, 1)
        .selectExpr(
            "id AS n",
            "nullif(id % 9, 4) AS low",
            "id % 9 + id % 4 - 1 AS high",
            "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') ELSE id % 3 END AS f",
            "timestamp_seconds(1700000000 + id * 25) AS since",
            "concat('n', id % 4) AS name",
            "array(id, NULL) AS nested",
        )
        .localCheckpoint()
    )


@pytest.fixture
def stages_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the staging of a table of a few rows cost nothing."""
    monkeypatch.setattr(batches, "STAGING_S", 0.0)


def join_by_spark(a: DataFrame, t: DataFrame, on: str, how: str) -> DataFrame:
    """Join without Thetastream. Rows have one struct column per input, which is NULL without a partner."""
    left, right = (
        one.select(F.struct("*").alias(alias), F.lit(alias).alias(f"is_{alias}"))
        for alias, one in (("a", a), ("t", t))
    )
    return left.join(right, F.expr(on), how)


def list_columns(how: str) -> list[str]:
    return ["a.id", "a.f", *([] if how in ("semi", "anti") else ["t.n", "t.nested", "t.since"])]


def count_rows(frames: list[DataFrame]) -> Counter[tuple[Any, ...]]:
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return Counter(tuple(map(str, row)) for row in rows.collect())


def is_lookup(plan: th.Plan) -> bool:
    return "staged as files" in plan.explain()


@pytest.mark.usefixtures("stages_always")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("shift", range(len(HOWS)))
def test_every_kind_has_the_rows_of_sparks_own_join(frame: DataFrame, table: DataFrame, shift: int) -> None:
    found, wanted = [], []
    for n, on in enumerate([*CONDITIONS, CATALYST]):
        how = HOWS[(n + shift) % len(HOWS)]
        columns = [f"{n} AS case", *list_columns(how)]
        plan = th.plan({"a": frame, "t": table}, on, how=how, result_time=False)
        assert is_lookup(plan) is (how != "full" and (on != CATALYST or how == "inner")), (on, how)
        found.append(plan.dataframe().selectExpr(*columns))
        wanted.append(join_by_spark(frame, table, on, how).selectExpr(*columns))
    expected = count_rows(wanted)
    assert count_rows(found) == expected
    assert {row[0] for row in expected} == {str(n) for n in range(len(CONDITIONS) + 1)}


@pytest.mark.usefixtures("stages_always")
def test_the_preserved_input_may_be_the_right_one(frame: DataFrame, table: DataFrame) -> None:
    inputs = {"t": table, "a": frame}
    plan = th.plan(inputs, CONDITIONS[0], how="right", result_time=False)
    assert is_lookup(plan)
    columns = list_columns("right")
    wanted = join_by_spark(frame, table, CONDITIONS[0], "left").selectExpr(*columns)
    assert count_rows([plan.dataframe().selectExpr(*columns)]) == count_rows([wanted])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["left,full,semi", "inner,right,anti"])
def test_a_model_may_ask_for_sparks_own_join(frame: DataFrame, table: DataFrame, how: str) -> None:
    found, wanted = [], []
    for kind in how.split(","):
        columns = [f"'{kind}' AS kind", *list_columns(kind)]
        plan = th.plan({"a": frame, "t": table}, CATALYST, how=kind, model="spark", result_time=False)
        assert f"Spark's own {kind} join" in plan.explain()
        found.append(plan.dataframe().selectExpr(*columns))
        wanted.append(join_by_spark(frame, table, CATALYST, kind).selectExpr(*columns))
    assert count_rows(found) == count_rows(wanted) != Counter()


@pytest.mark.usefixtures("stages_always")
def test_the_nearest_rows_predicates_and_result_times(frame: DataFrame, table: DataFrame) -> None:
    """Units find the same."""
    inputs, found, wanted = {"a": frame, "t": table}, [], []
    cases: list[tuple[Any, Any, str]] = [
        ("a.name = t.name AND a.ts >= t.since", th.Nearest(1, by="a.ts - t.since"), "t.n"),
        ("a.x >= t.low", th.Nearest(2, by="abs(a.f - t.f)", keep_unmatched=True), "t.n"),
        (["a.x <= t.high", same_parity], "inner", "t.n"),
        (["a.x <= t.high", same_parity], "left", "t.n"),
        (["a.x <= t.high", same_parity], "anti", "0"),
        ("a.x >= t.low AND a.x < t.high", "inner", "result_time"),
    ]
    for n, (on, how, column) in enumerate(cases):
        columns = [f"{n} AS case", "a.id", f"string({column}) AS value"]
        options = {"result_time": column == "result_time"}
        plan = th.plan(inputs, on, how=how, **options)
        assert is_lookup(plan)
        found.append(plan.dataframe().selectExpr(*columns))
        units = th.plan(inputs, on, how=how, model=th.Matrix(1, 1), **options)
        assert not is_lookup(units)
        wanted.append(units.dataframe().selectExpr(*columns))
    expected = count_rows(wanted)
    assert count_rows(found) == expected
    assert {row[0] for row in expected} == {str(n) for n in range(len(cases))}


def test_the_smaller_input_is_staged_if_both_are_large_enough(spark: SparkSession) -> None:
    rows = {n: spark.range(n).selectExpr("id", "id AS x") for n in (1_000, 100_000, 1_000_000_000)}
    on = "a.x <= b.x AND b.x < a.x + 10"

    def find_table(a: int, b: int, **options: Any) -> str | None:
        text = th.plan({"a": rows[a], "b": rows[b]}, **{"on": on, **options}).explain()
        return next((alias for alias in "ab" if f"table {alias}:" in text), None)

    assert find_table(1_000, 1_000) is None
    assert find_table(1_000_000_000, 1_000_000_000) is None  # too large to stage
    assert find_table(1_000_000_000, 100_000) == "b"
    assert find_table(1_000, 1_000_000_000) == "a"
    assert find_table(100_000, 1_000_000_000, how="right") == "a"
    assert find_table(100_000, 1_000_000_000, how="left") is None
    assert find_table(1_000_000_000, 100_000, how="semi") == "b"
    for options in ({"how": "full"}, {"model": th.Biclique(2)}, {"index": "scan"}, {"on": "a.x = b.x"}):
        assert find_table(1_000_000_000, 1_000, **options) is None, options


@pytest.mark.usefixtures("stages_always")
def test_a_plan_stages_nothing(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    plan = th.plan({"a": frame, "t": table}, CONDITIONS[0], mailbox=tmp_path, result_time=False)
    assert repr(plan).splitlines()[1].startswith("by an index of t;")
    assert not list(tmp_path.iterdir())
    joined = plan.dataframe()
    assert len(list(Path(tmp_path, "tables", "runs").iterdir())) == 1
    wanted = join_by_spark(frame, table, CONDITIONS[0], "inner")
    assert count_rows([joined.select("a.id", "t.n")]) == count_rows([wanted.select("a.id", "t.n")])


@pytest.mark.usefixtures("stages_always")
def test_each_epoch_of_foreach_batch_joins_its_own_rows(frame: DataFrame, tmp_path: Path) -> None:
    """Both inputs are made anew in each epoch, also the one that is staged."""
    found: Counter[tuple[Any, ...]] = Counter()

    def save(rows: DataFrame, epoch: int) -> None:
        own = frame.where(F.col("id").isin([row.id for row in rows.collect()]))
        plan = th.plan({"a": own, "b": own}, "a.id < b.id AND b.id <= a.id + 2", result_time=False)
        assert is_lookup(plan)
        found.update(tuple(row) for row in plan.dataframe().select("a.id", "b.id").collect())

    stream = replay(frame, [range(5), range(5, 9)], tmp_path)
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "c"))
    writer.foreachBatch(save).trigger(availableNow=True).start().awaitTermination()
    epochs = range(5), range(5, 9)
    assert found == Counter((a, b) for ids in epochs for a in ids for b in ids if a < b <= a + 2)


def test_sparks_own_join_refuses_what_only_units_do(frame: DataFrame, table: DataFrame) -> None:
    inputs, on = {"a": frame, "t": table}, CONDITIONS[0]
    for options, condition in (
        ({"within": "1 minute"}, "SPARK_JOIN"),
        ({"index": "scan"}, "SPARK_JOIN"),
        ({"how": th.Nearest(1, by="a.x - t.low")}, "HOW"),
    ):
        with pytest.raises(th.QueryError, match=rf"\[{condition}\]"):
            th.plan(inputs, on, model="spark", **options)
    with pytest.raises(th.QueryError, match=r"\[HOW\].*same_parity"):
        th.plan(inputs, [on, same_parity], how="left", model="spark")
    with pytest.raises(th.QueryError, match=r"\[UNKNOWN_MODEL\]"):
        th.plan({**inputs, "b": frame}, f"{on} AND a.x = b.x", model="spark")
    rows = th.join(inputs, [on, same_parity], model="spark").selectExpr("a.id", "t.n", "result_time")
    units = th.join(inputs, [on, same_parity]).selectExpr("a.id", "t.n", "result_time")
    assert count_rows([rows]) == count_rows([units]) != Counter()
    with pytest.raises(th.QueryError, match=r"\[TABLE_INDEX\]"):
        th.plan({"a": frame, "t": th.Table(table)}, on, model="spark")
