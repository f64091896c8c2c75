"""Job files: what a file may contain, and how mistakes in it are reported."""

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from thetastream.app.job.document import parse_job, read_job
from thetastream.app.job.frames import describe_sink
from thetastream.app.job.rechoosing import Rechoosing, rechoose_after_epochs
from thetastream.app.job.run import describe_epoch
from thetastream.app.job.spec import SinkSpec
from thetastream.app.job.statistics_table import select_known, write_table
from thetastream.core.errors import InvalidQuery, QueryError
from thetastream.core.shed import Shed
from thetastream.families.options import Options, list_options
from thetastream.lowering.statistics import Statistics
from thetastream.models import Chain
from thetastream.results.snapshots import Snapshots
from thetastream.runtime.control.policies import TwoPhaseScaling
from thetastream.statements.sink_store import SinkStore
from thetastream.stores import DeltaStore, ParquetStore, PostgresStore

DOCS = Path(__file__).parents[3] / "docs"
SQL = "SELECT ONLINE a.value AS x, b.value AS y FROM a, b WHERE a.value = b.value + 1 WITHIN 5 seconds"
RATE = {"format": "rate", "event_time": "timestamp"}
PARQUET = {"format": "parquet", "path": ".", "schema": "value LONG, timestamp TIMESTAMP"}
VALUE = "value INT, timestamp TIMESTAMP"
KAFKA = {"format": "kafka", "event_time": "timestamp"}
GOOD = {"sql": SQL, "checkpoint": "c", "sources": {"a": RATE, "b": RATE}}


# The file


def test_the_job_of_the_docs_is_well_formed(tmp_path):
    text = re.search(r"```toml\n(.*?)```", (DOCS / "reference" / "cli.md").read_text(), re.DOTALL)
    (tmp_path / "bids").mkdir()
    job = parse_job(tomllib.loads(text[1]), tmp_path)
    assert [source.name for source in job.sources] == ["bids", "asks"]
    assert job.checkpoint == str(tmp_path / "checkpoint")
    assert job.sources[1].select[0] == "CAST(value:id AS INT) AS id"
    assert repr(job.model) == "Biclique(units=(2, 2))"


def test_a_job_may_end_when_it_has_read_what_is_there(tmp_path):
    for text in ("available now", "availableNow"):
        job = parse_job(GOOD | {"trigger": text}, tmp_path)
        assert (job.ends_when_caught_up, job.trigger) == (True, None)
        assert parse_job(GOOD | {"trigger": text, "finish": True}, tmp_path).is_finished
    job = parse_job(GOOD | {"trigger": "1 second"}, tmp_path)
    assert (job.ends_when_caught_up, job.trigger) == (False, "1 second")


def test_a_source_may_have_the_time_of_arrival_as_event_time(tmp_path):
    sources = {
        "a": {"format": "socket", "by_arrival": {}},
        "b": {"format": "socket", "by_arrival": {"column": "at", "slack": "2 seconds"}},
    }
    sql = "SELECT a.value, a.arrival, b.at FROM a, b WHERE a.value = b.value WITHIN 5 seconds"
    first, second = parse_job(GOOD | {"sql": sql, "sources": sources}, tmp_path).sources
    assert (first.event_time, second.event_time) == ("arrival", "at")
    assert second.by_arrival == {"column": "at", "slack": "2 seconds"}


def test_a_job_may_have_a_shedder(tmp_path):
    job = parse_job(GOOD | {"shed": {"threshold": "1 s", "capacity": "9 s", "load": "lag"}}, tmp_path)
    assert job.options["shed"] == Shed("1 s", "9 s", load="lag")
    assert parse_job(GOOD, tmp_path).options == {}


def test_a_job_may_have_options_and_statistics(tmp_path):
    tables = {"options": {"max_units": 8, "late": "late"}, "statistics": {"tuples_per_second": [1000, 20]}}
    job = parse_job(GOOD | tables, tmp_path)
    assert job.options["max_units"] == 8
    assert job.options["late"] == str(tmp_path / "late")
    assert job.options["statistics"] == Statistics(tuples_per_second=(1000, 20))


def test_paths_of_options_are_relative_to_the_file(tmp_path):
    paths = {"mailbox": "a b", "cache_folder": "/dev/shm/x", "late": "s3://bucket/late"}
    options = parse_job(GOOD | {"options": paths}, tmp_path).options
    assert options == {**paths, "mailbox": str(tmp_path / "a b")}
    for tasks in (TASKS, {}):
        given = {"options": {name: "x" for name, one in list_options(Options).items() if one.is_path}}
        assert {*parse_job(GOOD | tasks | given, tmp_path).options.values()} == {str(tmp_path / "x")}


@pytest.mark.parametrize(
    "measured",
    [
        Statistics((1234567.5, 1e-07), (80.25, 64.0), 10.0, 2.5, 0.5, origin="measured"),
        Statistics({"a": 0.25, 'das "ß"': 3.0}, results_per_second={"a, b": 50.5}, origin="measured"),
    ],
)
def test_a_job_may_have_measured_statistics(tmp_path, measured):
    job = parse_job(GOOD | tomllib.loads(write_table(measured)), tmp_path)
    read = job.options["statistics"]
    assert select_known(read) == select_known(measured)
    assert replace(read, tuples_per_second=None) == replace(measured, tuples_per_second=None)


def test_a_job_may_have_a_policy(tmp_path):
    tables = {"options": {"max_units": 8}, "policy": {"capacity": "1 GB", "agree": 2}}
    assert parse_job(GOOD | tables, tmp_path).policy == TwoPhaseScaling(capacity="1 GB", agree=2)
    tables["policy"] = {"name": "two-phase-scaling"}
    assert parse_job(GOOD | tables, tmp_path).policy == TwoPhaseScaling()
    assert parse_job(GOOD, tmp_path).policy is None


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"policy": {"agree": 2}}, r"POLICY.*\[options\] must have max_units"),
        ({"policy": {"high": 0.1}, "options": {"max_units": 8}}, "POLICY.*low < target < high"),
        (
            {"policy": {"name": "load-balancing"}, "options": {"max_units": 8}, "model": {"name": "split"}},
            "POLICY.*load-balancing changes capacities, which Split",
        ),
        ({"options": {"order": "arrival"}}, "BAD_ORDER.*must be \"outer\".*not 'arrival'"),
        ({"options": {"columns": {"a": ["value"]}}}, "UNKNOWN_KEY.*'columns'.*sql selects"),
        ({"options": {"shed": "1 GB"}}, r"UNKNOWN_KEY.*'shed'.*it is the table \[shed\]"),
        ({"policy": {"name": "2ps"}, "options": {"max_units": 8}}, "POLICY.*'2ps'.*two-phase-scaling"),
        ({"policy": {"hihg": 1}, "options": {"max_units": 8}}, "UNKNOWN_KEY.*did you mean 'high'"),
        ({"options": {"lat": "late"}}, "UNKNOWN_KEY.*did you mean 'late'"),
        ({"options": {"max_units": 0}}, "MAX_UNITS.*from 1 to 4096"),
        ({"statistics": {"rate": 5}}, "UNKNOWN_KEY.*'rate'"),
    ],
)
def test_wrong_options_of_a_job_are_refused(tables, expected, tmp_path):
    with pytest.raises(QueryError, match=expected):
        parse_job(GOOD | tables, tmp_path)


def test_a_job_may_choose_its_model_again(tmp_path):
    tables = {"options": {"max_units": 8}, "rechoose": {"every": "1 hour", "factor": 2}}
    asked = parse_job(GOOD | tables, tmp_path).rechoosing
    assert (asked.every_s, asked.factor) == (3600, 2)
    assert parse_job(GOOD | tables | {"rechoose": {}}, tmp_path).rechoosing == Rechoosing()
    assert parse_job(GOOD, tmp_path).rechoosing is None


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"rechoose": {}, "options": {}}, r"CANNOT_SCALE.*\[options\] must have max_units"),
        ({"rechoose": {}, "sql": "SELECT value FROM a"}, "CANNOT_SCALE.*needs a statement"),
        ({"rechoose": {}, "sql": f"INSERT INTO m (u, v) {SQL}", "sinks": {"m": {}}}, "names of columns"),
        ({"rechoose": {"every": "60"}}, 'BAD_VALUE.*every of .rechoose. must be a span.*"60 seconds"'),
        ({"rechoose": {"every": "0 s"}}, "BAD_VALUE.*every"),
        ({"rechoose": {"factor": 0.5}}, "BAD_VALUE.*factor of .rechoose. must be a number of at least 1"),
        ({"rechoose": {"evry": "1 hour"}}, "UNKNOWN_KEY.*did you mean 'every'"),
        (
            {"rechoose": {}, "sql": "SELECT * FROM tasks", "tasks": {"near": {"on": "a.value = b.value"}}},
            "CANNOT_SCALE.*join tasks keep theirs",
        ),
    ],
)
def test_a_model_that_cannot_be_chosen_again_is_refused(tables, expected, tmp_path):
    with pytest.raises(QueryError, match=expected):
        parse_job(GOOD | {"options": {"max_units": 8}} | tables, tmp_path)


def test_errors_of_a_choice_are_told_and_the_job_goes_on():
    class Failing:
        calls = 0

        def rechoose(self, query, factor):
            self.calls += 1
            if self.calls == 1:
                raise QueryError("NOTHING_MEASURED", "no tuples")
            return Chain(2) if self.calls == 2 else None

    said, told = [], []
    report = rechoose_after_epochs(said.append, None, Failing(), Rechoosing("1 microsecond"), told.append)
    for number in range(3):
        report({"epoch": number})
    assert [epoch["epoch"] for epoch in said] == [0, 1, 2]
    assert re.search("cannot be chosen again.*NOTHING_MEASURED", told[0])
    assert told[1:] == ["Chain(workers=2) costs less by what the streams brought, and takes over"]


ORDERED = "SELECT a.value, arrival.number FROM a, b WHERE a.value < b.value"


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (ORDERED, {"order": "inner 64", "punctuations": True}),
        (f"SELECT * FROM ({ORDERED}) AS p", {"order": 10}),
        (f"{ORDERED} OPTIONS (order = 'strict')", {}),
        (SQL, {"punctuations": False}),
    ],
)
def test_a_job_may_have_ordered_results(sql, options, tmp_path):
    source = {"format": "json", "path": str(tmp_path), "schema": VALUE, "event_time": "timestamp"}
    job = parse_job(GOOD | {"sql": sql, "sources": {"a": source, "b": source}, "options": options}, tmp_path)
    assert job.options == options


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a.value, count(*) AS n FROM a, b WHERE a.value < b.value GROUP BY a.value", "GROUP BY"),
        ("SELECT DISTINCT a.value FROM a, b WHERE a.value < b.value", "DISTINCT"),
        (f"SELECT count(*) AS n FROM ({ORDERED}) AS p", "aggregates"),
        ("SELECT value FROM a", "one join of two inputs, and sql has no joins"),
        ("SELECT a.value FROM a, b, b AS c WHERE a.value < b.value", "sql has a join of 3 inputs"),
        (f"CREATE VIEW v AS {ORDERED}; SELECT v.value FROM v, b WHERE v.value < b.value", "has 2 joins"),
    ],
)
def test_rows_of_other_statements_have_no_order(sql, expected, tmp_path):
    with pytest.raises(QueryError, match=f"ORDER.*{expected}"):
        parse_job(GOOD | {"sql": sql, "options": {"order": "outer"}, "sink": {"mode": "update"}}, tmp_path)


def test_only_ordered_results_have_an_arrival(tmp_path):
    source = {"format": "json", "path": str(tmp_path), "schema": VALUE, "event_time": "timestamp"}
    job = GOOD | {"sql": ORDERED, "sources": {"a": source, "b": source}}
    with pytest.raises(QueryError, match=r"UNKNOWN_ALIAS.*'arrival'"):
        parse_job(job, tmp_path)
    # The session may have the order of all joins.
    assert parse_job(job | {"spark": {"spark.thetastream.order": "outer"}}, tmp_path).sql == ORDERED


NEAR = {"on": "abs(a.value - b.value) <= 1", "within": "5 seconds"}
TASKS = {"sql": "SELECT task, a.value FROM tasks", "tasks": {"near": NEAR}}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"tasks": {"near": {"within": "5 seconds"}}}, "MISSING_KEY.*task 'near' must have 'on'"),
        ({"tasks": {"near": NEAR | {"withn": "5 s"}}}, "UNKNOWN_KEY.*'near'.*did you mean 'within'"),
        ({"tasks": {"near": NEAR | {"within": "5"}}}, "INVALID_DURATION.*within of task 'near'"),
        ({"tasks": {"near": NEAR | {"on": "a.valu = b.value"}}}, "UNKNOWN_COLUMN.*'valu'"),
        ({"tasks": {"near": NEAR | {"on": ["a.value = c.value"]}}}, "UNKNOWN_ALIAS.*'c'"),
        ({"tasks": {"near": NEAR | {"index": "tree"}}}, "UNKNOWN_INDEX.*index of task 'near'"),
        ({"tasks": {"near": 5}}, r"BAD_VALUE.*\[tasks.near\]"),
        ({"sources": {"a": RATE, "b": RATE, "c": RATE}}, "STREAM_COUNT.*two sources, not 3"),
        ({"sources": {"a": RATE, "b": {"format": "rate"}}}, "NO_WATERMARK.*source 'b'"),
        ({"sources": {"a": RATE, "tasks": RATE}}, "BAD_VALUE.*cannot have the name 'tasks'"),
        ({"tables": {"t": {"path": "t"}}}, r"TASKS.*leave \[tables\] out"),
        ({"shed": {"threshold": "1 s", "capacity": "9 s"}}, r"TASKS.*leave \[shed\] out"),
        ({"options": {"order": "outer"}}, "UNKNOWN_KEY.*'order'.*share an exchange"),
        ({"options": {"max_tasks": 0}}, "MAX_TASKS.*from 1 to 256"),
        ({"sql": "SELECT value FROM a"}, "UNKNOWN_SOURCE.*a source .tasks., not 'a'"),
        ({"sql": "SELECT 1 AS x FROM tasks AS t, tasks AS u"}, "TASKS.*leave this join out"),
        ({"sql": "SELECT task FROM tasks OPTIONS (max_units = 4)"}, r"TASKS.*max_units.*into \[options\]"),
    ],
)
def test_wrong_tasks_of_a_job_are_refused(changed, expected, tmp_path):
    assert parse_job(GOOD | TASKS, tmp_path).tasks == {"near": NEAR}
    with pytest.raises(QueryError, match=expected):
        parse_job(GOOD | TASKS | changed, tmp_path)


def test_only_join_tasks_have_max_tasks(tmp_path):
    with pytest.raises(QueryError, match=r"UNKNOWN_KEY.*'max_tasks'.*a job with \[tasks\]"):
        parse_job(GOOD | {"options": {"max_tasks": 4}}, tmp_path)


def test_a_job_may_have_tables(tmp_path):
    tables = {
        "Rates": {"path": "rates", "every": "1 minute", "key": ["k"], "valid_from": "since", "keep": 5},
        "prices": {"format": "jdbc", "options": {"url": "jdbc:x", "dbtable": "prices"}, "key": "id"},
    }
    sql = "SELECT a.value FROM a LEFT JOIN rates FOR SYSTEM_TIME AS OF a.timestamp ON a.value = rates.k"
    job = parse_job(GOOD | {"sql": sql, "tables": tables}, tmp_path)
    rates, prices = job.tables["rates"], job.tables["prices"]
    assert (rates.source, rates.every, rates.keys, rates.valid_from, rates.keep) == (
        str(tmp_path / "rates"),
        "1 minute",
        ("k",),
        "since",
        5,
    )
    assert (prices.source, prices.format, prices.keys) == (None, "jdbc", ("id",))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, "MISSING_KEY.*table 't' must have 'path'"),
        ({"path": "p", "evry": "1 s"}, "UNKNOWN_KEY.*did you mean 'every'"),
        ({"path": "p", "key": [1]}, "BAD_VALUE.*a string or a list of strings"),
        ({"path": "p", "keep": 0}, "BAD_VALUE.*keep must be an integer of at least 1"),
        ({"path": "p", "every": "soon"}, "INVALID_DURATION.*every"),
        ({"path": "p", "valid_from": "since"}, "VALID_FROM.*needs key="),
        ({"path": "p", "options": {"a": {"b": 1}}}, "BAD_VALUE.*the options of table 't'"),
        (7, r"BAD_VALUE.*\[tables.t\]"),
    ],
)
def test_wrong_tables_of_a_job_are_refused(table, expected, tmp_path):
    with pytest.raises(QueryError, match=expected):
        parse_job(GOOD | {"tables": {"t": table}}, tmp_path)
    with pytest.raises(QueryError, match=r"BAD_VALUE.*'A' must have another name"):
        parse_job(GOOD | {"tables": {"A": {"path": "p"}}}, tmp_path)


@pytest.mark.parametrize(
    ("change", "condition", "words"),
    [
        ({"checkpiont": "c"}, "UNKNOWN_KEY", "did you mean 'checkpoint'"),
        ({"sql": 7}, "BAD_VALUE", "a string"),
        ({"sql": "SELECT ONLINE a.value FROM a, c"}, "UNKNOWN_SOURCE", "'c'"),
        ({"sql": "SELECT a.value FROM a, b LIMIT 3"}, "UNSUPPORTED_SQL", "LIMIT"),
        ({"sql": "WITH c AS (SELECT value FROM d) SELECT value FROM a, c"}, "UNKNOWN_SOURCE", "'d'"),
        ({"sql": "CREATE VIEW v AS SELECT value FROM a"}, "SYNTAX", "a view alone"),
        ({"sql": "INSERT INTO out SELECT value FROM a"}, "UNKNOWN_SINK", "[sinks.out]"),
        ({"sql": "INSERT INTO a.`b` SELECT value FROM a"}, "UNKNOWN_SINK", "'a.`b`'; write [sinks.pairs]"),
        ({"sql": "INSERT INTO store.`oracle:x` SELECT value FROM a"}, "BAD_VALUE", "oracle"),
        ({"sinks": {"out": {}}}, "UNKNOWN_SINK", "INSERT INTO out"),
        ({"sql": "INSERT INTO out SELECT value FROM a", "sinks": {"out": {"format": "csv"}}},
         "MISSING_KEY", "sink 'out'"),
        ({"sql": f"EXPLAIN {SQL}"}, "EXPLAIN", "thetastream explain"),
        ({"sources": {"a": {"format": "csv"}, "b": RATE}}, "INVALID_QUERY", "schema"),
        ({"sources": {"a": {"format": "rate", "delay": "1 s"}, "b": RATE}}, "MISSING_KEY", "'event_time'"),
        ({"sources": {"a": {}, "b": RATE}}, "MISSING_KEY", "format"),
        ({"sources": {"a": 5, "b": RATE}}, "BAD_VALUE", "[sources.a]"),
        ({"sources": {"a": KAFKA | {"schema": VALUE}, "b": RATE}}, "MISSING_KEY", "'decode'"),
        ({"sources": {"a": KAFKA | {"dead_letters": "dead"}, "b": RATE}}, "MISSING_KEY", "'decode'"),
        ({"sources": {"a": KAFKA | {"decode": "json"}, "b": RATE}}, "MISSING_KEY", "'schema'"),
        ({"sources": {"a": KAFKA | {"decode": "xml", "schema": VALUE}, "b": RATE}}, "BAD_VALUE", "select"),
        ({"sources": {"a": KAFKA | {"decode": "avro", "schema": VALUE}, "b": RATE}}, "BAD_VALUE",
         "not an Avro"),
        ({"sources": {"a": KAFKA | {"decode": "json", "schema": VALUE, "schema_id": 1}, "b": RATE}},
         "UNKNOWN_KEY", "avro"),
        ({"sources": {"a": RATE | {"changes": {"sing": "w"}}, "b": RATE}}, "UNKNOWN_KEY", "'sign'"),
        ({"sources": {"a": RATE | {"changes": {"sign": 3}}, "b": RATE}}, "BAD_VALUE", "changes of"),
        ({"sources": {"a": RATE | {"changes": {"sign": "w"}, "select": ["timestamp", "now() AS value"]},
                      "b": RATE}}, "TIME_DEPENDENT", "'now' in select"),
        ({"sources": {"a": RATE | {"decode": "json", "schema": VALUE}, "b": RATE}}, "UNKNOWN_KEY", "kafka"),
        ({"sources": {"a": RATE | {"reader": "arrow"}, "b": RATE}}, "UNKNOWN_KEY", 'format = "parquet"'),
        ({"sources": {"a": PARQUET | {"reader": "arow"}, "b": RATE}}, "BAD_VALUE", "one of spark, arrow"),
        ({"sources": {"a": RATE | PARQUET | {"reader": "arrow"}, "b": RATE | PARQUET}}, "BAD_VALUE",
         "must have one reader"),
        ({"sources": {"a": PARQUET | {"reader": "arrow", "options": {"mergeSchema": True}}, "b": RATE}},
         "BAD_VALUE", "'mergeSchema' is no option of th.read_parquet"),
        ({"sink": {"format": "parquet"}}, "MISSING_KEY", "path"),
        ({"sink": {"store": "parqet", "path": "o"}}, "BAD_VALUE", "did you mean 'parquet'"),
        ({"sink": {"store": 5}}, "BAD_VALUE", "the name of a kind of store, not 5"),
        ({"sink": {"store": "parquet", "pth": "o"}}, "UNKNOWN_KEY", "did you mean 'path'"),
        ({"sink": {"store": "postgres", "url": "postgresql:///x"}}, "MISSING_KEY", "'table'"),
        ({"sink": {"store": "hbase", "address": "host", "table": "t"}}, "BAD_VALUE", "a host and a port"),
        ({"sink": {"store": "delta", "path": "o", "format": "delta"}}, "UNKNOWN_KEY", "no 'format'"),
        ({"sink": {"store": "delta", "path": "o", "mode": "update"}}, "SINK_MODE", "not 'update'"),
        ({"sink": {"store": "delta", "path": "o", "key": [5]}}, "BAD_VALUE", "a list of names"),
        ({"sink": {"store": "delta", "path": "o", "time": 5}}, "BAD_VALUE", "the name of a column"),
        ({"sink": {"store": "delta", "path": "o", "beside_others": 1}}, "BAD_VALUE", "true or false"),
        ({"sink": {"store": "delta", "path": "o", "snapshots": 5}}, "BAD_VALUE", "a table"),
        ({"sink": {"store": "delta", "path": "o", "snapshots": {"evry": "1 s"}}}, "UNKNOWN_KEY", "'every'"),
        ({"sink": {"store": "delta", "path": "o", "snapshots": {"size": 0}}}, "BAD_VALUE", "size (0)"),
        ({"sink": {"store": "delta", "path": "o", "key": ["x", "xy"]}}, "STORE_COLUMN", "key ('xy')"),
        ({"sink": {"store": "delta", "path": "o", "time": "timestamp"}}, "STORE_COLUMN", "there are x, y"),
        ({"sink": {"store": "delta", "path": "o"}, "sql": f"{SQL} GROUP BY a.value"}, "SINK_MODE", "update"),
        ({"sink": {"format": "paper"}}, "BAD_VALUE", "'paper'"),
        ({"sink": {"mode": "upsert"}}, "BAD_VALUE", "'upsert'"),
        ({"sink": {"format": 5}}, "BAD_VALUE", "must be a string, not 5"),
        ({"sink": {"mode": 5}}, "BAD_VALUE", "must be a string, not 5"),
        ({"sink": 5}, "BAD_VALUE", "must be a table, not 5"),
        ({"checkpoint": ""}, "BAD_VALUE", "must name a folder"),
        ({"sources": {"a": RATE, "b": RATE, "A": RATE}}, "BAD_VALUE", "another name than source 'a'"),
        ({"model": {"units": 1.5}}, "BAD_UNITS", "1.5"),
        ({"spark": {"spark": {"sql": {"ansi": True}}}}, "BAD_VALUE", "quotes"),
        ({"sql": f"{SQL} GROUP BY a.value"}, "SINK_MODE", "update"),
        ({"sql": SQL.replace("a.value AS x, b.value AS y", "count(*)")}, "SINK_MODE", "update"),
        ({"sources": {"a": RATE | {"by_arrival": {}}, "b": RATE}}, "EVENT_TIME", "and event_time; leave"),
        ({"sources": {"a": {"format": "rate", "by_arrival": {"slack": "5"}}, "b": RATE}}, "INVALID_DURATION",
         "slack"),
        ({"sources": {"a": {"format": "rate", "by_arrival": {"slack": "-5 s"}}, "b": RATE}},
         "INVALID_DURATION", "the slack of source 'a' ('-5 s') must not be negative"),
        ({"sources": {"a": RATE | {"delay": "-5 s"}, "b": RATE}}, "INVALID_DURATION",
         "the delay of source 'a' ('-5 s') must not be negative"),
        ({"trigger": "INTERVAL '-1' MINUTE"}, "INVALID_DURATION", "is no span of time; write it as in"),
        ({"sources": {"a": RATE | {"format": "csv", "path": "x" * 300, "schema": VALUE}, "b": RATE}},
         "NO_SUCH_PATH", "the path of source 'a'"),
        ({"sources": {"a": RATE | {"format": "csv", "path": ".", "schema": "`value INT"}, "b": RATE}},
         "SYNTAX", "'`value INT'"),
        ({"sources": {"a": RATE | {"format": "csv", "path": ".", "schema": VALUE}, "b": RATE},
          "checkpoint": "x/.."}, "BAD_VALUE", "source 'a' reads this one"),
        ({"sources": {"a": RATE | {"format": "csv", "path": ".", "schema": VALUE}, "b": RATE},
          "sink": {"format": "csv", "path": "x/.."}}, "BAD_VALUE", "the path of the sink"),
        ({"trigger": "-1 minute"}, "INVALID_DURATION", "trigger ('-1 minute') must not be negative"),
        ({"sources": {"a": {"format": "rate", "by_arrival": {"colum": "at"}}, "b": RATE}}, "UNKNOWN_KEY",
         "did you mean 'column'"),
        ({"sources": {"a": {"format": "rate", "rate": 5}, "b": RATE}}, "UNKNOWN_KEY", "replay"),
        ({"sources": {"a": {"format": "replay", "path": ".", "event_time": "t", "rate": 0},
                      "b": RATE}}, "BAD_VALUE", "at least 1"),
        ({"model": {"units": 0}}, "BAD_UNITS", "0"),
        ({"shed": {"threshold": "1 GB"}}, "MISSING_KEY", "'capacity'"),
        ({"shed": {"treshold": "1 GB", "capacity": "2 GB"}}, "UNKNOWN_KEY", "did you mean 'threshold'"),
        ({"shed": {"threshold": "2 GB", "capacity": "1 GB"}}, "SHED", "below capacity"),
        ({"model": {"units": [1, 2, 3]}}, "BAD_UNITS", "(1, 2, 3)"),
        ({"model": {"units": True}}, "BAD_UNITS", "True"),
        ({"shed": {"threshold": True, "capacity": "1 GB"}}, "SHED", "threshold"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path, change, condition, words):
    with pytest.raises(QueryError) as error:
        parse_job({**GOOD, **change}, tmp_path)
    assert error.value.condition == condition
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"spark": {"spark": {"hadoop": {"fs": {"s3a": {"secret": {"key": "hunter2"}}}}}}},
            'put a key with dots in quotes: "spark.hadoop.fs.s3a.secret.key"',
        ),
        ({"spark": {"spark.hadoop.fs.s3a.secret.key": ["hunter2"]}}, "one value, not a list"),
        (
            {"sink": {"format": "kafka", "options": {"kafka": {"password": "hunter2"}}}},
            'put a key with dots in quotes: "kafka.password"',
        ),
        ({"sink": {"format": "kafka", "options": "token=hunter2"}}, "'options' of the sink must be a table"),
        ({"sources": {"a": KAFKA | {"options": {"kafka": {"sasl": {"jaas": "hunter2"}}}}, "b": RATE}},
         '"kafka.sasl.jaas"'),
        ({"sources": {"a": KAFKA | {"options": ["hunter2"]}, "b": RATE}}, "must be a table"),
        ({"sink": {"store": "postgres", "url": ["postgresql://u:hunter2@h/d"], "table": "t"}},
         "must be a text"),
    ],
)  # fmt: skip
def test_no_mistake_shows_a_password(tmp_path, change, words):
    with pytest.raises(QueryError) as error:
        parse_job({**GOOD, **change}, tmp_path)
    assert "hunter2" not in str(error.value)
    assert words in str(error.value)


def test_a_sink_may_be_a_store_of_any_kind(tmp_path):
    kept = {"key": ["x", "y.z"], "time": "x", "snapshots": {"every": "1 minute"}, "beside_others": True}
    url = "postgresql:///results"
    sinks = {
        "parquet": ({"path": "o"}, ParquetStore(str(tmp_path / "o"))),
        "delta": ({"path": "file:/o"}, DeltaStore("file:/o")),
        "postgres": ({"url": url, "table": "pairs"}, PostgresStore(url, "pairs")),
    }
    for kind, (parameters, store) in sinks.items():
        job = parse_job(GOOD | {"sink": {"store": kind} | parameters | kept}, tmp_path)
        assert job.sink.kept == SinkStore(store, ("x", "y.z"), "x", Snapshots(every="1 minute"), True)
    named = {"sql": f"INSERT INTO out {SQL}", "sinks": {"out": {"store": "parquet", "path": "o", "key": "x"}}}
    assert parse_job(GOOD | named, tmp_path).sink.kept == SinkStore(sinks["parquet"][1], ("x",))


def test_a_job_needs_the_sources_that_it_reads(tmp_path):
    with pytest.raises(InvalidQuery) as error:
        parse_job({**GOOD, "sources": {}}, tmp_path)
    assert [problem.condition for problem in error.value.problems] == ["UNKNOWN_SOURCE"] * 2
    assert "FROM must name a source (there are none), not 'a'" in str(error.value)


def test_a_model_may_have_a_switch(tmp_path):
    job = parse_job(GOOD | {"model": {"name": "chain", "workers": 2, "fast_forward": True}}, tmp_path)
    assert job.model == Chain(2, fast_forward=True)


def test_insert_names_its_sink(tmp_path):
    sinks = {"out": {"format": "csv", "path": "o"}, "other": {"format": "noop"}}
    text = "CREATE VIEW v AS SELECT value FROM a; INSERT INTO Out SELECT v.value FROM v, b WITHIN 1 day"
    job = parse_job({**GOOD, "sql": text, "sinks": sinks}, tmp_path)
    assert (job.sink.format, job.sink.path) == ("csv", str(tmp_path / "o"))


def test_all_mistakes_are_listed_at_once(tmp_path):
    with pytest.raises(InvalidQuery) as error:
        parse_job(
            {"sql": "SELECT", "sources": {"a": {"format": "json", "pth": "x"}}, "color": "red"}, tmp_path
        )
    assert Counter(problem.condition for problem in error.value.problems) == Counter(
        {"UNKNOWN_KEY": 2, "MISSING_KEY": 2, "SYNTAX": 1}
    )


def test_what_is_no_toml_is_named(tmp_path):
    (tmp_path / "job.toml").write_text("sql = ")
    for name in ("job.toml", "nothing.toml"):
        with pytest.raises(QueryError, match="JOB_FILE"):
            read_job(tmp_path / name)


@pytest.mark.parametrize(
    ("keys", "asked"),
    [({"finish": True}, "finish = true"), ({"trigger": "available now"}, 'trigger = "available now"')],
)
def test_a_job_that_ends_with_its_input_replays_no_file(tmp_path, keys, asked):
    (tmp_path / "a.csv").touch()
    replay = {"format": "replay", "path": "a.csv", "schema": VALUE, "event_time": "timestamp", "rate": 5}
    job = {**GOOD, "sources": {"a": replay, "b": RATE}}
    assert parse_job(job, tmp_path).sources[0].rate == 5
    with pytest.raises(
        QueryError, match=rf"ENDLESS_SOURCE\] {asked} needs sources that end.*\(a\); use --for"
    ):
        parse_job(job | keys, tmp_path)


def test_a_replay_needs_a_path_an_event_time_and_a_rate(tmp_path):
    with pytest.raises(InvalidQuery) as error:
        parse_job({**GOOD, "sources": {"a": {"format": "replay"}, "b": RATE}}, tmp_path)
    assert [problem.condition for problem in error.value.problems] == ["MISSING_KEY"] * 3


def test_lag_is_told_of_live_streams_only():
    epoch = {"epoch": 1, "tuples": 5, "tuples_per_s": 5, "seconds": 1.0, "watermark": None, "lag_s": 2.5}
    assert "2.5 s behind" in describe_epoch(epoch)
    assert "behind" not in describe_epoch({**epoch, "lag_s": 1e9})


def test_the_explanation_of_a_job_says_who_writes_its_results():
    to_files = SinkSpec("parquet", "out")
    assert describe_sink(to_files).facts[0].value.startswith("parquet: Spark hands rows to its own sink")
    to_store = SinkSpec("", kept=SinkStore(ParquetStore("/out")))
    assert describe_sink(to_store).facts[0].value.startswith("ParquetStore(path='/out'): rows are written as")


@pytest.mark.parametrize(
    ("place", "sink"),
    [
        ("parquet.`out/pairs`", lambda folder: SinkSpec("parquet", f"{folder}/out/pairs")),
        ("store.`out/kept`", lambda folder: SinkSpec("", kept=SinkStore(ParquetStore(f"{folder}/out/kept")))),
    ],
    ids=["files", "store"],
)
def test_a_statement_may_name_a_folder_or_a_store_of_its_own(tmp_path, place, sink):
    job = parse_job({**GOOD, "sql": f"INSERT INTO {place} {SQL}"}, tmp_path)
    assert job.sink == sink(tmp_path)
