"""Tasks that share an exchange: each task finds the results of its own join, and tuples are sent once."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured, differences, made, tagged, truths

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")


@th.predicate(a=["id"], b=["id"])
def earlier(a, b):
    return pc.less(a.id, b.id)


CONDITIONS: dict[str, tuple[Any, str]] = {
    text: (text, text)
    for text in (
        "abs(a.x - b.x) <= 1",
        "a.x = b.x",
        "a.x < b.x AND a.y > b.y",
        "a.s = b.s",
        "a.s = b.s AND length(concat(a.s, b.s)) > 1",
        "a.y BETWEEN b.y - 0.5 AND b.y + 0.5 AND b.s <> 'b'",
        "a.y > 1 AND a.x >= b.x AND b.y < 2",
        "a.x + b.x > 2",
        "a.s = 'a' AND a.s < b.s",
        "a.x = b.x AND false",
    )
} | {
    "earlier, and a.x <> 2": (["a.x <> 2", earlier], "a.x <> 2 AND a.id < b.id"),
    "guarded": (
        "a.x <> 0 AND 10 / a.x > 4 AND 10 / a.x < b.y + 4",
        "try_divide(10, a.x) > 4 AND try_divide(10, a.x) < b.y + 4",
    ),
}
"""The conditions of tasks, each with an equivalent SQL text that does not raise."""


def small(spark: SparkSession, side: int) -> DataFrame:
    rng = random.Random(side)
    values = {
        "x INT": ["0", "1", "2", "3"],
        "y DOUBLE": ["0.5", "1", "1.5", "2"],
        "s STRING": ["'a'", "'b'", "''"],
    }
    casts = [(*column.split(), [*literals, "NULL"]) for column, literals in values.items()]
    return made(
        spark,
        [
            f"SELECT {i} AS id, "
            + ", ".join(f"CAST({rng.choice(cells)} AS {kind}) AS {name}" for name, kind, cells in casts)
            for i in range(14)
        ],
    )


def by_task(frame: DataFrame) -> dict[str, Counter[tuple[int, int]]]:
    found: dict[str, Counter[tuple[int, int]]] = {}
    for name, left, right in frame.select("task", "a.id", "b.id").collect():
        found.setdefault(name, Counter())[left, right] += 1
    return found


BATCH_MODELS = [None, th.Biclique((2, 1)), th.Matrix(2, 2), th.Split(3)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", range(len(BATCH_MODELS)))
def test_batch_tasks_are_their_own_joins(spark: SparkSession, n: int) -> None:
    """Two to four tasks run together; the guard of a task keeps its keys from raising for other tuples."""
    a, b = small(spark, 0), small(spark, 1)
    names = list(CONDITIONS)
    rng = random.Random(5)
    rng.shuffle(names)
    sets = [names[first : first + 4] for first in range(0, len(names), 4)] + [rng.sample(names, 2)]
    assert len(sets) == len(BATCH_MODELS)
    chosen = sets[n]
    wanted = truths(a, b, [CONDITIONS[name][1] for name in chosen])
    assert all(pairs or name == "a.x = b.x AND false" for name, pairs in zip(chosen, wanted, strict=True))
    tasks = {name: {"on": CONDITIONS[name][0]} for name in chosen}
    found = by_task(th.join_many({"a": a, "b": b}, tasks, model=BATCH_MODELS[n]).together)
    assert not differences(chosen, [found.get(name, Counter()) for name in chosen], wanted)


# Streams

TASKS: dict[str, dict[str, Any]] = {
    "near": {"on": "abs(a.x - b.x) <= 2", "within": "30 seconds"},
    "same": {
        "on": "a.s = b.s AND length(concat(a.s, b.s)) + a.x > 9",
        "within": {"a": "1 minute", "b": "10 seconds"},
    },
    "less": {"on": "a.x < b.x AND a.y <> 3 AND b.y = 3", "within": "30 seconds", "index": "sorted"},
    "python": {"on": ["a.x = b.x", earlier], "within": "40 seconds", "archive_period": "10 seconds"},
}
EPOCHS = [range(90), range(90, 95), range(95, 160)]
"""Tuples of the last epoch are judged by the watermark that the first one made."""


def events(spark: SparkSession, seed: int) -> DataFrame:
    """Make about one tuple a second, out of order; some tuples are late, and some values are NULL."""
    rng = random.Random(seed)
    rows = []
    for n in range(160):
        time = n + rng.randint(-4, 4) - (90 if n % 41 == 40 else 0)
        x = rng.randint(0, 12) if rng.random() > 0.1 else None
        rows.append((n, x, rng.randint(1, 5), rng.choice(["x", "yy", None]), 1000 + time))
    frame = spark.createDataFrame(rows, "id INT, x INT, y INT, s STRING, at INT")
    return frame.selectExpr("id", "x", "y", "s", "timestamp_seconds(at) AS ts")


def within(left_s: int, right_s: int) -> str:
    return f"a.ts >= b.ts - INTERVAL {left_s} SECONDS AND a.ts <= b.ts + INTERVAL {right_s} SECONDS"


TEXTS = {
    "near": f"abs(a.x - b.x) <= 2 AND {within(30, 30)}",
    "same": f"a.s = b.s AND length(concat(a.s, b.s)) + a.x > 9 AND {within(60, 10)}",
    "less": f"a.x < b.x AND a.y <> 3 AND b.y = 3 AND {within(30, 30)}",
    "python": f"a.x = b.x AND a.id < b.id AND {within(40, 40)}",
}
"""The conditions of ``TASKS``, each as one SQL text."""


def answers(frames: list[DataFrame]) -> tuple[dict[str, Counter[tuple[int, int]]], int]:
    """Find the pairs of each task among timely tuples, and count the late tuples of all tasks."""
    seconds, passes = F.unix_seconds("ts"), F.expr("x IS NOT NULL OR s IS NOT NULL")
    latest = [frame.where(F.col("id").isin(*EPOCHS[0])).agg(F.max(seconds)).first()[0] for frame in frames]
    is_late = F.col("id").isin(*EPOCHS[2]) & (seconds <= min(latest) - 5)
    kept = [frame.where(~is_late) for frame in frames]
    n_late = sum(frame.where(is_late & passes).count() for frame in frames)
    return dict(zip(TEXTS, truths(kept[0], kept[1], list(TEXTS.values())), strict=True)), n_late


def streams_of(frames: list[DataFrame], folder: Path) -> dict[str, DataFrame]:
    return {
        alias: replay(frame, EPOCHS, folder).withWatermark("ts", "5 seconds")
        for alias, frame in zip("ab", frames, strict=True)
    }


@pytest.mark.slow
def test_the_same_as_joins_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    streams = streams_of([events(spark, seed) for seed in (0, 1)], tmp_path)
    alone = outcome(tagged([th.join(streams, **task) for task in TASKS.values()]), ["*"], tmp_path)
    together = outcome(th.join_many(streams, TASKS).together, ["task", "a.id", "b.id"], tmp_path)
    numbers = {name: number for number, name in enumerate(TASKS)}
    assert alone.rows == Counter({(numbers[name], *ids): n for (name, *ids), n in together.rows.items()})


class Crash(Exception):
    """An error that a test raises on purpose."""


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, th.Chain(3, block=4)], ids=repr)
def test_tasks_together_over_a_crash_and_a_refusal(
    model: th.Chain | None, spark: SparkSession, tmp_path: Path
) -> None:
    """A checkpoint refuses other tasks, but accepts another order of the same tasks."""

    def join_many(tasks: dict[str, Any]) -> th.types.JoinTasks:
        return th.join_many(streams, tasks, model, mailbox=str(tmp_path / "mail"))

    frames = [events(spark, seed) for seed in (0, 1)]
    streams = streams_of(frames, tmp_path)
    wanted, n_late = answers(frames)
    assert all(sum(pairs.values()) > 100 for pairs in wanted.values())

    joined = join_many(TASKS)
    collected: dict[int, dict[str, list[Any]]] = {}
    crashes = {1}

    def collect(batch: DataFrame, epoch: int, of: th.types.JoinTasks = joined) -> None:
        parts = of.split(batch)
        assert all(part.columns == ["a", "b", "result_time"] for part in parts.values())
        collected[epoch] = {name: part.select("a.id", "b.id").collect() for name, part in parts.items()}
        if epoch in crashes:
            crashes.remove(epoch)
            raise Crash

    def run(of: th.types.JoinTasks) -> Any:
        writer = of.together.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    with pytest.raises(Exception, match="Crash"):
        run(joined)
    fewer = {name: task for name, task in TASKS.items() if name != "less"}
    with pytest.raises(Exception, match="STATE_OF_ANOTHER_QUERY") as refused:
        run(join_many(fewer))
    assert "the set of tasks was less, near, python, same, it is near, python, same" in str(refused.value)
    again = run(join_many(dict(reversed(TASKS.items()))))
    found = {
        name: Counter(tuple(row) for parts in collected.values() for row in parts[name]) for name in TASKS
    }
    assert found == wanted

    # Late tuples are counted once, matches by task.
    assert sum(epoch["late"] for epoch in th.metrics(again)) == n_late > 0
    for epoch in th.metrics(again):
        words = epoch["plan"]["words"]
        assert words["the set of tasks"] == ", ".join(sorted(TASKS))
        assert words["the condition of task 'near'"] == TASKS["near"]["on"]
        if epoch["received"]:
            assert set(epoch["tasks"]) == set(TASKS)
            assert epoch["matched"] == sum(task["matched"] for task in epoch["tasks"].values())
            if model is not None:
                assert epoch["forwarded"] == sum(task["forwarded"] for task in epoch["tasks"].values())
            assert epoch["tasks"]["near"]["matched"] == len(collected[epoch["epoch"]]["near"])


@pytest.mark.slow
def test_four_tasks_send_the_bytes_of_one(spark: SparkSession, tmp_path: Path) -> None:
    """The one task needs no computed key; the four tasks add only one column, the hash of the symbols."""
    columns = "id", "timestamp_millis(id * 2) AS ts", "concat('S', id % 50) AS symbol", "id % 997 AS price"
    more = "CAST(id % 91 AS INT) AS qty", "concat('venue ', id % 7) AS venue", "id * 2 AS ref"
    frame = spark.range(6000).selectExpr(*columns, *more)
    a, b = (replay(frame, [range(6000)], tmp_path).withWatermark("ts", "1 minute") for _ in "ab")
    joined = th.join_many(
        {"a": a, "b": b},
        {
            "near": {"on": "abs(a.price - b.price) <= 1", "within": "10 seconds"},
            "same": {"on": "a.symbol = b.symbol AND a.qty > b.qty", "within": "1 second"},
            "more": {"on": "a.symbol = b.symbol AND a.venue < b.venue", "within": "1 second"},
            "odd": {"on": "a.qty = b.price AND a.id % 2 = 1 AND a.qty * b.qty > 50", "within": "1 minute"},
        },
    )
    both = [frame.select("a.id", F.col("b.id").alias("bid")) for frame in (joined.together, joined["near"])]
    sent = {True: 0, False: 0}
    for epoch in outcome(both[0].unionAll(both[1]), ["id"], tmp_path).metrics:
        if epoch["received"]:
            sent["tasks" in epoch] += epoch["received_bytes"]
    print(f"bytes: {sent[True]} of four tasks, {sent[False]} of one: {sent[True] / sent[False]:.3f}")
    assert 0 < sent[True] <= 1.1 * sent[False]


# Plans

A_TASK = {"on": "a.x < b.x", "within": "1 minute"}


def test_explain_says_what_is_shared(spark: SparkSession) -> None:
    a, b = small(spark, 0), small(spark, 1)
    tasks = {"near": {"on": "a.s = b.s AND a.y > 1"}, "far": {"on": "a.s = b.s AND a.x + b.x > 3"}}
    text = th.join_many({"a": a, "b": b}, tasks, model=th.Split(2)).explain()
    shared, near, far = text.split("====\n")[1:]
    assert "one for all tasks; sends a tuple: 2, 2" in shared
    assert "before    b: (b.s) IS NOT NULL\n" in shared
    assert "= hash(b.s)   (for near, far)" in shared
    passes = r"  a: p_[0-9a-f]{12} = coalesce\(CASE WHEN a\.y > 1 THEN true END, false\)   \(for near\)"
    assert re.search(passes, shared)
    assert "a.y > 1" in near
    assert "residual" in far


@pytest.mark.parametrize(
    ("tasks", "settings", "condition", "words"),
    [
        ({}, {}, "TASKS", "map names"),
        ([A_TASK], {}, "TASKS", "map names"),
        ({"near": "a.x < b.x"}, {}, "TASKS", "'near'"),
        ({"near": {"within": "1 minute"}}, {}, "TASKS", '"on"'),
        ({7: A_TASK}, {}, "TASKS", "not 7"),
        ({"near": {**A_TASK, "model": "auto"}}, {}, "UNKNOWN_SETTING", "'near' sets 'model'"),
        ({"near": A_TASK, "far": {**A_TASK, "within": th.Rows(3)}}, {}, "COUNT_WINDOW", "'far'"),
        ({"near": A_TASK}, {"model": th.Biclique(4, subgroups=2)}, "TASKS_MODEL", "what one condition"),
        ({"near": A_TASK}, {"model": th.Ring(4)}, "TASKS_MODEL", "hop by hop"),
        ({"near": A_TASK}, {"model": th.ATR(2, "1 second")}, "TASKS_MODEL", "hop by hop"),
        ({"near": A_TASK}, {"model": "biclique"}, "UNKNOWN_MODEL", "not 'biclique'"),
        ({"near": A_TASK, "far": {"on": "a.x < b.nope"}}, {}, "UNKNOWN_COLUMN", "task 'far': "),
        ({"near": A_TASK, "far": {**A_TASK, "index": "hash"}}, {}, "INDEX_NOT_APPLICABLE", "task 'far': "),
        ({"near": {**A_TASK, "archive_period": "1 hour"}}, {}, "ARCHIVE_PERIOD", "1 hour"),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, tasks: Any, settings: dict[str, Any], condition: str, words: str
) -> None:
    frame = spark.sql("SELECT 1 AS x, timestamp_seconds(1) AS ts")
    with pytest.raises(th.QueryError) as refused:
        th.join_many({"a": frame, "b": frame}, tasks, **settings)
    assert (refused.value.condition, words in str(refused.value)) == (condition, True), str(refused.value)


def test_streams_are_two_and_not_called_task(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS x, timestamp_seconds(1) AS ts")
    with pytest.raises(th.QueryError, match=r"STREAM_COUNT.*th\.join"):
        th.join_many({"a": frame, "b": frame, "c": frame}, {"near": A_TASK})
    with pytest.raises(th.QueryError, match="INVALID_ALIAS"):
        th.join_many({"a": frame, "Task": frame}, {"near": {"on": "a.x < Task.x"}})


def test_a_default_of_the_session_that_tasks_cannot_keep_is_left_out(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS x, timestamp_seconds(1) AS ts")
    with configured(spark, {"spark.thetastream.order": "outer", "spark.thetastream.max_units": "6"}):
        th.join_many({"a": frame, "b": frame}, {"near": A_TASK})
        with pytest.raises(th.QueryError, match=r"UNKNOWN_SETTING.*'order'"):
            th.join_many({"a": frame, "b": frame}, {"near": A_TASK}, order="outer")  # type: ignore[call-arg]


def test_what_is_wrong_in_all_tasks_is_said_once(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS x")
    with pytest.raises(th.errors.InvalidQuery) as refused:
        th.join_many({"a": frame, "b": frame}, {"near": A_TASK, "far": {**A_TASK, "on": "a.x < b.y"}})
    text = str(refused.value)
    assert text.count("NO_WATERMARK") == 2  # There is one error for each stream.
    assert "UNKNOWN_COLUMN] task 'far': " in text


def test_each_task_has_a_frame(spark: SparkSession) -> None:
    a, b = small(spark, 0), small(spark, 1)
    joined = th.join_many({"a": a, "b": b}, {"near": {"on": "a.x = b.x"}, "less": {"on": "a.x < b.x"}})
    assert list(joined) == ["near", "less"]
    assert joined.together.columns == ["task", "a", "b"]
    alone = th.join({"a": a, "b": b}, on="a.x < b.x")
    assert joined["less"].schema == joined.split(joined.together)["less"].schema == alone.schema
    assert by_task(joined.together)["less"] == Counter(map(tuple, alone.select("a.id", "b.id").collect()))
    with pytest.raises(KeyError):
        joined["far"]


GUARDED = {
    "filters": {
        "nonzero": {"on": "a.x <> 0 AND 10 / a.x > 4 AND a.x < b.x"},
        "positive": {"on": "a.x > 0 AND 10 / a.x > 4 AND a.x > b.x"},
    },
    "keys": {
        "nonzero": {"on": "a.x <> 0 AND 6 / a.x = b.x"},
        "positive": {"on": "a.x > 0 AND 6 / a.x = b.x"},
    },
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", GUARDED)
def test_a_filter_that_tasks_share_stays_behind_the_guards_of_each(spark: SparkSession, kind: str) -> None:
    """A division by ``a.x`` in both tasks was once evaluated before the guards, and raised."""
    frame = spark.range(7).selectExpr("id", "CAST(id - 3 AS INT) AS x")
    streams, tasks = {"a": frame, "b": frame}, GUARDED[kind]
    alone = {name: th.join(streams, **task).count() for name, task in tasks.items()}
    found = th.join_many(streams, tasks).together.groupBy("task").count().collect()
    assert {**dict.fromkeys(tasks, 0), **{row["task"]: row["count"] for row in found}} == alone
    assert max(alone.values()) > 0
