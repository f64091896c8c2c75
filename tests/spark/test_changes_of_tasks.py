"""Tasks that are added to and removed from a running query of Spark, with a restart in the middle."""

import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import add_ids, replay
from tests.support.truth import made, truths
from thetastream.core.condition import Domain
from thetastream.core.sides import Side
from thetastream.engine.running_tasks import decide_clause
from thetastream.spark.dataflow.exchange import select_block_columns

COLUMNS = (
    "id",
    "timestamp_seconds(1700000000 + id) AS ts",
    "CASE WHEN id % 9 <> 4 THEN CAST(id * 7 % 11 AS INT) END AS x",
    "CASE WHEN id % 8 = 3 THEN double('NaN') WHEN id % 8 <> 5 THEN id * 5 % 13 / 4.0D END AS y",
    "CASE WHEN id % 7 <> 2 THEN concat('long text ', id * 3 % 4) END AS s",
    "CASE WHEN id % 10 <> 6 THEN date_from_unix_date(CAST(id % 3 AS INT)) END AS d",
)
PROGRAM: dict[str, dict[str, Any]] = {
    "near": {"on": "abs(a.x - b.x) <= 1", "within": "30 seconds"},
    "long": {"on": "a.y > 1 AND a.s = b.s AND length(concat(a.s, b.s)) + a.x > 26", "within": "20 seconds"},
}
ADDED: dict[str, dict[str, Any]] = {
    # Its keys are the first bytes of texts: their hashes are computed for other tuples only.
    "text": {"on": "a.s = b.s AND a.x <> 3 AND 1 <= b.x AND a.y > 0.75", "within": "20 seconds"},
    "floats": {
        "on": "a.y BETWEEN b.y - 0.5 AND b.y + 0.5 AND a.s <= b.s AND b.y >= 1",
        "within": "9 seconds",
    },
    # The filter and the hash are those of a task of the program.
    "same": {"on": "a.y > 1 AND a.s = b.s AND a.d = DATE'1970-01-02'", "within": "25 seconds"},
}


class Changing:
    """A query over files of ids, and the ids that the streams have when a task begins or ends."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.frame = spark.range(2000).selectExpr(*COLUMNS).localCheckpoint()
        self.streams = {alias: replay(self.frame, [[]], folder, by_key=True) for alias in "ab"}
        self.sources = sorted(folder.glob("stream-*"))
        self.found: dict[str, Counter[Any]] = {}
        self.n = 0
        self.query: Any = None

    def join_many(self, tasks: dict[str, Any] = PROGRAM, **settings: Any) -> th.types.JoinTasks:
        marked = {alias: frame.withWatermark("ts", "5 seconds") for alias, frame in self.streams.items()}
        return th.join_many(marked, tasks, mailbox=str(self.folder / "box"), **settings)

    def start(self, joined: th.types.JoinTasks) -> Any:
        def collect(batch: DataFrame, epoch: int) -> None:
            for name, part in joined.split(batch.persist()).items():
                pairs = map(tuple, part.select("a.id", "b.id").collect())
                self.found.setdefault(name, Counter()).update(pairs)

        writer = joined.together.writeStream.foreachBatch(collect)
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        return self.query

    def feed(self, n: int) -> None:
        """Write the next file of each stream, and wait until it has been read."""
        for source in self.sources:
            add_ids(source, range(self.n, self.n + n))
        self.n += n
        self.query.processAllAvailable()

    def wait(self, request: str) -> dict[str, Any]:
        """Wait until a request has been accepted, and no epoch runs; return the tasks."""
        while th.control(self.query).status()["requests"].get(request) != "accepted":
            assert self.query.exception() is None
            time.sleep(0.1)
        self.query.processAllAvailable()
        tasks: dict[str, Any] = th.control(self.query).status()["tasks"]
        return tasks

    def expect(self, task: dict[str, Any], began: int, ended: int) -> Counter[Any]:
        """Find the pairs of a task among the tuples with the ids [began, ended)."""
        frame = self.frame.where(f"id >= {began} AND id < {ended}")
        seconds = int(task["within"].split()[0])
        on = f"({task['on']}) AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {seconds}"
        return truths(frame, frame, [on])[0]


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_tasks_begin_and_end_and_a_restart_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = Changing(spark, tmp_path)
    joined = run.join_many(model=th.Biclique((1, 1)), max_tasks=4, max_units=5)
    run.start(joined)
    run.feed(60)
    # 1. Add two tasks.
    for name in ("text", "floats"):
        request = joined.add(run.query, name, **ADDED[name])
    tasks = run.wait(request)
    assert all(tasks[name]["on"] == ADDED[name]["on"] for name in ("text", "floats"))
    assert list(tasks) == ["near", "long", "text", "floats"]
    assert 0 < tasks["text"]["since"] <= tasks["floats"]["since"]
    with pytest.raises(th.QueryError, match=r"MAX_TASKS.*4 tasks run"):
        joined.add(run.query, "same", **ADDED["same"])
    run.feed(60)
    epoch = next(one for one in reversed(th.metrics(run.query)) if one["received"])
    assert epoch["tasks"]["text"]["matched"] > 0
    # 2. Change the units, remove a task of the program, and start again from another process as it were.
    th.control(run.query).scale(units=(2, 1))
    assert "long" not in run.wait(joined.remove(run.query, "long"))
    run.feed(40)
    run.query.stop()
    request = run.join_many(model=th.Biclique((1, 1)), max_tasks=4).add(
        tmp_path / "checkpoint", "same", **ADDED["same"]
    )
    joined = run.join_many(model=th.Biclique((1, 1)), max_tasks=4, max_units=5)
    run.start(joined)
    run.wait(request)
    run.feed(40)
    # 3. A task of the program begins again, in the place of one that was added.
    run.wait(joined.remove(run.query, "text"))
    run.wait(joined.add(run.query, "long"))
    run.feed(60)
    run.query.stop()
    wanted = {
        "near": run.expect(PROGRAM["near"], 0, 260),
        "long": run.expect(PROGRAM["long"], 0, 120) + run.expect(PROGRAM["long"], 200, 260),
        "text": run.expect(ADDED["text"], 60, 200),
        "floats": run.expect(ADDED["floats"], 60, 260),
        "same": run.expect(ADDED["same"], 160, 260),
    }
    assert run.found == wanted
    assert all(sum(pairs.values()) > 30 for pairs in wanted.values())
    # 4. The changed tasks need max_tasks.
    with pytest.raises(StreamingQueryException, match=r"\[STATE_OF_ANOTHER_QUERY\].*give max_tasks"):
        run.start(run.join_many(model=th.Biclique((1, 1)), max_units=5)).processAllAvailable()


def test_a_hash_that_another_conjunct_compares_too_stays_a_key(spark: SparkSession, tmp_path: Path) -> None:
    """The hash is a key of the program, but for few tuples only, so the equality compares first bytes."""
    program = {"hash": {"on": "hash(a.s) <= b.x", "within": "5 seconds"}}
    joined = Changing(spark, tmp_path).join_many(program, max_tasks=2)
    task = {"on": "a.s = b.s AND hash(a.s) <= b.x", "within": "5 seconds"}
    written = joined._write(task)
    written.check()
    (equality,), (bound,) = written.equalities, written.dimensions
    assert written.sides[0].keys[equality.left].domain is Domain.TEXT
    (place,) = bound.list_keys(Side.LEFT)
    assert place != equality.left
    assert written.sides[0].keys[place].column in written.sides[0].computed


@th.predicate(a=["id"], b=["id"])
def earlier(a, b):
    return pc.less(a.id, b.id)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"on": "a.x + 1 > b.x * 2"}, "does not compute"),
        ({"on": "a.x = b.x AND length(a.s) > 3"}, r"length\(a\.s\) > 3"),
        ({"on": "a.x = b.x AND a.x + b.x > 3"}, r"a\.x \+ b\.x > 3"),
        ({"on": "hash(a.s) = b.x"}, r"hash\(a\.s\)"),
        (
            {"on": "a.x = b.x AND a.d > DATE'1970-01-01' - INTERVAL 1 DAY AND b.s LIKE 'a%'"},
            r"b\.s LIKE 'a%'",
        ),
        ({"on": ["a.x = b.x", earlier]}, "the comparison earlier"),
        ({"on": "levenshtein(a.s, b.s) < 3"}, "levenshtein"),
        ({"on": "a.y < b.y + double('Infinity')"}, "a bound that is no number"),
    ],
)
def test_what_the_exchange_does_not_send_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, task: dict[str, Any], words: str
) -> None:
    joined = Changing(spark, tmp_path).join_many(max_tasks=3)
    with pytest.raises(th.QueryError, match=rf"CANNOT_ADD_TASK.*{words}.*from the beginning"):
        joined._write({**task, "within": "5 seconds"})


def test_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    run = Changing(spark, tmp_path)
    with pytest.raises(th.QueryError, match=r"MAX_TASKS.*from 1 to 256, not 0"):
        run.join_many(max_tasks=0)
    with pytest.raises(th.QueryError, match=r"MAX_TASKS.*at least 2, the number of tasks, not 1"):
        run.join_many(max_tasks=1)
    joined = run.join_many(max_tasks=3)
    assert "tasks may be added and removed, 3 at once; all tuples are sent" in joined.explain()
    with pytest.raises(th.QueryError, match=r"UNKNOWN_COLUMN.*nope"):
        joined._write({"on": "a.nope = b.x", "within": "5 seconds"})
    changing = th.changes(run.frame.selectExpr("*", "1 AS w"), sign="w")
    with pytest.raises(th.QueryError, match=r"CANNOT_ADD_TASK.*has deletes.*leave max_tasks out"):
        th.join_many({"a": changing, "b": run.frame}, {"same": ADDED["same"]}, max_tasks=2)
    with pytest.raises(th.QueryError, match=r"TASKS.*started with max_tasks"):
        run.join_many()._write(ADDED["text"])


VALUES = {
    "x INT": ["0", "3", "-2147483648", "2147483647"],
    "n BIGINT": ["0", "9007199254740992", "9007199254740993", "-9223372036854775808"],
    "f FLOAT": ["0.1", "-0.0", "double('NaN')", "double('Infinity')", "16777216"],
    "y DOUBLE": ["0.1", "-0.0", "double('NaN')", "9007199254740992", "double('-Infinity')"],
    "p DECIMAL(10,2)": ["0.1", "3"],
    "s STRING": ["''", "'a'", "'A'", "'b'", "'a '"],
    "c STRING COLLATE UTF8_LCASE": ["'a'", "'A'", "'b'"],
    "t BOOLEAN": ["true", "false"],
    "d DATE": ["DATE'1969-12-31'", "DATE'2024-02-29'"],
    "at TIMESTAMP": ["TIMESTAMP'2024-02-29 00:00:00'"],
    "w BINARY": ["X'61'"],
}
DECIDED = (
    *("x = 3", "3 <> x", "x BETWEEN 0 AND 5", "x IS NOT NULL", "NOT x > 0", "x > 2.5D", "x < 3000000000"),
    *("n > 9007199254740992", "n = 9007199254740992D", "n >= -9223372036854775808", "x <> 0 AND x <> 3"),
    *("f > 0.1", "f > 0.1D", "f >= 0", "f = 0", "f <> 0", "f <= 1e308", "f < 16777217"),
    *("y > 0.1", "y = 0.1", "y >= 0", "0.1F < y", "y <> 0", "y <= 1e308", "y = 9007199254740993"),
    *("s = 'a'", "s <> 'a'", "'' = s", "NOT s = 'b'", "t", "t = true", "t <> false", "t > false"),
    *("d = DATE'2024-02-29'", "d < DATE'1970-01-01'", "at IS NOT NULL", "w IS NOT NULL", "c IS NOT NULL"),
    *("p IS NOT NULL", "p > 0.1", "p = 3", "p <> 0.10", "p BETWEEN 0 AND 2.99", "p < 0.1000", "s > 'a'"),
    *(
        "s <= 'A'",
        "s BETWEEN 'A' AND 'a'",
        "x IS NULL",
        "NOT s IS NULL",
        "NOT t",
        "NOT (NOT t)",
        "NOT (t OR x = 3)",
    ),
    *("x IN (0, 3)", "x NOT IN (0, 3)", "NOT x IN (0)", "s IN ('a', 'A')", "n IN (9007199254740993, 0)"),
    *("n IN (9007199254740993, 1.5D)", "n NOT IN (1.5D, 9007199254740993, 0)", "x IN (9007199254740993, 3)"),
    *("p IN (0.1, 3)", "y IN (0.1, 0)", "d IN (DATE'2024-02-29')", "t IN (true)", "NOT (x = 0 OR x = 3)"),
    *(
        "x = 3 OR s = 'a'",
        "x BETWEEN 0 AND 5 OR t",
        "NOT (x >= 0 AND s = 'a')",
        "x IS NULL OR (y > 0 AND NOT t)",
    ),
    *(
        "at > TIMESTAMP'2024-01-01 00:00:00'",
        "at <> TIMESTAMP'2024-02-29 00:00:00'",
        "at >= DATE'2024-02-29'",
    ),
)
"""Filters of one stream that units decide."""
REFUSED = (
    *("x <> n", "f = 0.1F", "y < double('NaN')", "y <= double('Infinity')", "x = NULL", "x <=> 3"),
    *("c = 'A'", "p > 0.125", "p > 0.1D", "x > 2.5", "w = X'61'", "x IN (0, NULL)", "x IN (0, 2.5)"),
    *("c IN ('A')", "s LIKE 'a%'", "x + 1 > 3", "d = '2024-02-29'", "t IS TRUE", "y = x", "x IN (n)"),
    *("x = 3 OR x + 1 = 5", "x NOT BETWEEN 0 AND 2", "s <=> 'a'", "x = 3 OR s LIKE 'a%'"),
    "p = CAST(3 AS DECIMAL(38,0))",
)
"""Filters that they do not decide."""


def test_units_decide_filters_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    rng, casts = random.Random(7), [(*one.split(" ", 1), [*cells, "NULL"]) for one, cells in VALUES.items()]
    rows = [
        f"SELECT {i} AS id, timestamp_seconds({i}) AS ts, "
        + ", ".join(f"CAST({rng.choice(cells)} AS {kind}) AS {name}" for name, kind, cells in casts)
        for i in range(90)
    ]
    frame = made(spark, rows)
    streams = {alias: replay(frame, [[]], tmp_path).withWatermark("ts", "5 seconds") for alias in "ab"}
    same = {"on": "a.id = b.id", "within": "5 seconds"}
    joined = th.join_many(streams, {"same": same}, mailbox=str(tmp_path), max_tasks=2)
    blocks = select_block_columns(joined._shared.sides[0], frame).toArrow().combine_chunks().to_batches()[0]
    ids = blocks.column(joined._shared.inputs[0].carried[0].block_column).to_pylist()
    # Spark decides all filters at once.
    truths = frame.select("id", *(F.expr(text).alias(text) for text in DECIDED)).collect()
    refused, wrong = [], []
    for text in (*DECIDED, *REFUSED):
        condition = re.sub(r"\b([xnfypsctdw]|at)\b(?!')", r"a.\1", text)
        try:
            written = joined._write({**same, "on": f"a.id = b.id AND ({condition})"})
        except th.QueryError as error:
            refused.append((error.condition, text))
            continue
        passes = [True] * len(ids)
        for clause in written.tests[0]:
            decided = decide_clause(clause, blocks)
            passes = [bool(one and other) for one, other in zip(passes, decided, strict=True)]
        found = sorted(one for one, is_in in zip(ids, passes, strict=True) if is_in)
        if found != sorted(row.id for row in truths if row[text]):
            wrong.append(text)
    assert not wrong
    assert refused == [("CANNOT_ADD_TASK", text) for text in REFUSED]
