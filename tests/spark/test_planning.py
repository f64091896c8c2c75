"""Planning: all plans have one protocol, nothing is planned twice, DataFrames are built only on request."""

import threading
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.connect_session import CONDITION, WITHIN, read_streams
from thetastream.families.pairs import plan as two_streams
from thetastream.joins import joined as joins
from thetastream.joins.compose.pipeline import Pipeline
from thetastream.joins.joined import PlannedInput, UnitsJoin
from thetastream.joins.planning import plan_join
from thetastream.lowering.query import RESULT_TIME
from thetastream.spark.sources import parquet

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")

TYPES = (
    "CAST(id AS INT) AS id",
    "CAST(id AS DECIMAL(12, 3)) AS d",
    "array(named_struct('x', id, 'y', 'text')) AS nested",
    "INTERVAL '1-2' YEAR TO MONTH AS months",
    "NULL AS nothing",
    "timestamp_seconds(id) AS ts",
)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {alias: spark.range(9).selectExpr(*TYPES) for alias in "abc"}


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, DataFrame]:
    rate = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp AS ts", "value AS v")
    return {alias: rate.withWatermark("ts", "1 second") for alias in "abc"}


def two(streams: dict[str, DataFrame]) -> dict[str, DataFrame]:
    return {alias: streams[alias] for alias in "ab"}


ON = "a.id = b.id AND b.id = c.id"
MOST_CALLS = 238
"""Calls to the JVM for the plan of a join of two streams. Each variable of the environment of Python workers
takes three more, one for each operator. A local session has four, and other tests may add some."""


def plans(streams: dict[str, DataFrame]) -> dict[str, th.Plan]:
    tasks = {"same": {"on": "a.id = b.id"}, "less": {"on": "a.id < b.id"}}
    return {
        "pairs": th.plan(two(streams), "a.id = b.id"),
        "answers": th.plan(two(streams), "a.id = b.id", "1 minute", how="left"),
        "pipeline": th.plan(streams, ON, "1 minute"),
        "hops": th.plan(streams, ON, "1 minute", th.Ring(2)),
        "tasks": th.join_many(two(streams), tasks).plan,
    }


def test_every_plan_explains_itself_and_builds_its_results(streams: dict[str, DataFrame]) -> None:
    for kind, plan in plans(streams).items():
        assert plan.aliases == (("a", "b", "c") if kind in ("pipeline", "hops") else ("a", "b"))
        assert plan.event_times == dict.fromkeys(plan.aliases, "ts")
        assert "== Cost ==" in plan.explain()
        frame = plan.dataframe()
        assert frame.isStreaming
        assert set(plan.aliases) <= set(frame.columns)


def test_planning_builds_no_dataframe(
    frames: dict[str, DataFrame], streams: dict[str, DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a DataFrame is built")

    with monkeypatch.context() as patched:
        patched.setattr(joins, "build", refuse)
        made = plans(streams)
        made["chain"] = th.plan(two(streams), "a.id = b.id", "1 minute", th.Chain(2))
        for plan in made.values():
            assert plan.explain()
            with pytest.raises(AssertionError, match="is built"):
                plan.dataframe()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("within", ["5 seconds", None])
def test_the_schema_of_a_step_is_known_before_it_is_built(
    frames: dict[str, DataFrame], streams: dict[str, DataFrame], within: str | None
) -> None:
    named = {"a": "ts", "b": "ts", "c": "ts"}
    given = [th.plan(frames, ON, within, event_time=named), th.plan(streams, ON, within)]
    mixed = {**frames, "b": frames["b"].withColumn("ts", F.col("ts").cast("timestamp_ntz"))}
    if within is None:
        given.append(th.plan(mixed, ON, event_time=named))
    for plan in given:
        assert isinstance(plan.join, Pipeline)
        joined: Any = plan.join.joined
        while joined is not None:
            planned, built = joined.schema, joined.dataframe().schema
            assert [(field.name, field.dataType.simpleString()) for field in planned] == [
                (field.name, field.dataType.simpleString()) for field in built
            ]
            assert "result_time" in planned.names
            joined = joined.left


def test_a_plan_takes_few_calls_to_the_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is a round trip.

    Calls that release objects of the JVM or hand over variables of the environment are not counted here.
    """
    for alias in "ab":
        (tmp_path / alias).mkdir()
    streams = read_streams(spark, tmp_path)
    calls: list[str] = []
    send = GatewayClient.send_command

    def count(client: GatewayClient, command: str, *rest: Any, **options: Any) -> Any:
        is_counted = not command.startswith(MEMORY_COMMAND_NAME) and command.split("\n")[2] != "put"
        if is_counted and threading.current_thread() is here:
            calls.append(command)
        return send(client, command, *rest, **options)

    monkeypatch.setattr(parquet, "_READ", {})  # If a program has read files by Arrow, plans look for them.
    here = threading.current_thread()
    monkeypatch.setattr(GatewayClient, "send_command", count)
    for _ in range(2):  # The first plan of a session reads what later ones know.
        calls.clear()
        th.join(streams, CONDITION, WITHIN)
    assert 100 < len(calls) <= MOST_CALLS


# Once


@pytest.fixture
def conjuncts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the conjuncts of every query that is lowered."""
    seen: list[str] = []
    lower = two_streams.lower

    def count(query: Any, *rest: Any, **options: Any) -> Any:
        seen.append(" AND ".join(phrase.text for phrase in query.conjuncts))
        return lower(query, *rest, **options)

    monkeypatch.setattr(two_streams, "lower", count)
    return seen


def test_groups_are_planned_once(frames: dict[str, DataFrame], conjuncts: list[str]) -> None:
    found = th.aggregate(two(frames), "a.id < b.id", group_by="a.id", aggs={"n": "count(*)", "d": "sum(b.d)"})
    assert conjuncts == ["a.id < b.id"]
    assert sorted((row.id, row.n, int(row.d)) for row in found.collect()) == [
        (n, 8 - n, sum(range(n + 1, 9))) for n in range(8)
    ]


@th.predicate(a=["v", "id"], b=["nested"])
def close(a: Any, b: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    "on",
    [
        "a.id < b.id AND a.s = b.s",
        ["a.v BETWEEN b.v - 1 AND id2", "length(a.s) = length(b.s)", close],
        "a.v + 1 = b.id AND a.ts >= b.ts - INTERVAL 3 SECONDS AND a.s IS NOT NULL",
    ],
)
def test_a_folded_plan_is_that_of_the_columns_it_carries(
    spark: SparkSession, on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(9).selectExpr("id + 5 AS id2", *TYPES, "string(id) AS s", "id AS v", "id AS unread")
    streams = {"a": frame.drop("id2"), "b": frame}
    folded = []
    fold = UnitsJoin.fold

    def keep(plan: UnitsJoin, folding: Any, inputs: dict[str, PlannedInput]) -> UnitsJoin:
        folded.append((fold(plan, folding, inputs), inputs))
        return folded[-1][0]

    monkeypatch.setattr(UnitsJoin, "fold", keep)
    th.aggregate(streams, on, "5 seconds", group_by="b.nothing IS NULL", aggs={"n": "sum(a.d * 2)"})
    ((join, inputs),) = folded
    replanned = th.plan({alias: given.dataframe() for alias, given in inputs.items()}, on, "5 seconds")
    found, expected = join.planned, cast(Any, replanned.join).planned
    assert found.physical == expected.physical
    assert found.query.streams == expected.query.streams
    assert th.Plan(join).explain() == replanned.explain()


def test_a_refused_statement_is_read_once(
    spark: SparkSession, frames: dict[str, DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = import_module("thetastream.statements.join_results")
    asked = []
    monkeypatch.setattr(answer, "plan_join", lambda *given: asked.append(1) or plan_join(*given))
    with pytest.raises(
        th.QueryError, match=r"'nope' does not exist.*there are id, d, nested, months"
    ) as error:
        th.sql(spark, "SELECT ONLINE a.id FROM a, b WHERE a.nope < b.id", two(frames))
    assert error.value.condition == "UNKNOWN_COLUMN"
    assert asked == [1]


def test_a_select_list_decides_which_columns_travel(
    spark: SparkSession, frames: dict[str, DataFrame]
) -> None:
    bare = {
        alias: frame.withColumn("wait", F.expr("array(make_interval(1))")) for alias, frame in frames.items()
    }
    with pytest.raises(th.QueryError, match="UNSUPPORTED_TYPE"):
        th.join(two(bare), "a.id = b.id")
    found = th.sql(spark, "SELECT ONLINE a.id, b.d FROM a, b WHERE a.id = b.id", two(bare))
    assert found.count() == 9
    assert (
        th.sql(spark, "SELECT ONLINE a.id FROM a, b, c WHERE a.id = b.id AND b.id = c.id", bare).count() == 9
    )


def test_a_warning_points_at_the_caller(frames: dict[str, DataFrame], streams: dict[str, DataFrame]) -> None:
    for ask in (
        lambda: th.plan(two(frames), "a.id > 3"),
        lambda: th.join(two(frames), "a.id > 3"),
        lambda: th.plan(streams, "a.id = b.id", "1 minute", th.Ring(2)),
    ):
        with pytest.warns(th.errors.CrossJoinWarning) as caught:
            ask()
        assert {warning.filename for warning in caught} == {__file__}


def test_pipelines_name_the_time_of_what_is_joined(frames: dict[str, DataFrame]) -> None:
    text = th.plan(frames, ON, "5 seconds").explain()
    assert f"event time {RESULT_TIME} (latest of what is joined)" in text
    assert "event time ts (only timestamp)" in text
