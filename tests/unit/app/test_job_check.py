"""``thetastream check`` finds all errors of a job file in one round, and asks Spark only if it must."""

import json
import re
import tomllib
from contextlib import contextmanager, nullcontext

import pytest

from thetastream.app.cli import main
from thetastream.app.cli.jobs import write_template
from thetastream.app.job import check as job_check
from thetastream.app.job.check import check_job
from thetastream.app.job.document import SQL, examine
from thetastream.app.job.schemas import find_columns
from thetastream.app.job.source_tables import find_source_columns, parse_source

JOB = '''\
# A comment
checkpiont = "c"
trigger = "1 secnd"
sql = """
WITH cheap AS (SELECT id, symbol, price AS cost, ts FROM asks WHERE price < 10)
SELECT b.id AS bid, c.idd, upper(b.symbol) AS name
FROM bids b, cheap c
WHERE b.symbol = c.symbol AND b.prize >= c.cost AND d.id = 1
WITHIN 1 minute
"""

[sources.bids]
format = "csv"
path = "nowhere"
schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"
event_time = "tss"

[sources.asks]
format = "csv"
path = "."
schema = "id INT, symbol STRING, price DOUBLE, ts STRING"
event_time = "ts"
delay = "10 seconds"

[sink]
format = "parquet"
path = "o"
modee = "append"

[model]
name = "bicycle"
'''


@contextmanager
def no_spark(conf):
    raise AssertionError("Spark was started")
    yield


def check(folder, text, session=no_spark):
    job = folder / "job.toml"
    job.write_text(text)
    found = []
    assert check_job(job, session, found.append) == len(found)
    return found


def test_an_error_that_spark_finds_too_is_reported_once(tmp_path, monkeypatch):
    text = 'checkpoint = "c"\nsql = "SELECT upper(s) AS s FROM a"\noptions = { order = "outer" }\n'
    text += f'[sources.a]\nformat = "json"\npath = "{tmp_path}"\nschema = "s STRING"\n'

    def find_again(spark, document):
        return [(SQL, problem) for problem in document.problems[SQL]]

    monkeypatch.setattr(job_check, "find_spark_problems", find_again)
    (finding,) = check(tmp_path, text, nullcontext)
    assert finding.condition == "ORDER"


def test_every_error_of_a_file_is_found_in_one_round_with_its_line(tmp_path):
    text = JOB.replace("upper(b.symbol) AS name", "b.symbol AS name")
    found = check(tmp_path, text)
    lines = text.splitlines()
    places = {(lines[f.line - 1].split("=")[0].strip(), f.condition) for f in found if f.section != "sql"}
    assert places == {
        ("checkpiont", "UNKNOWN_KEY"),
        ("trigger", "INVALID_DURATION"),
        ("path", "NO_SUCH_PATH"),
        ("event_time", "UNKNOWN_COLUMN"),
        ("event_time", "EVENT_TIME_TYPE"),
        ("modee", "UNKNOWN_KEY"),
        ("name", "BAD_VALUE"),
    }
    in_sql = [(lines[f.line - 1][f.column - 1 :], f.condition) for f in found if f.section == "sql"]
    assert [(re.match(r"\w+", at)[0], condition) for at, condition in in_sql] == [
        ("idd", "UNKNOWN_COLUMN"),
        ("prize", "UNKNOWN_COLUMN"),
        ("d", "UNKNOWN_ALIAS"),
    ]
    assert "did you mean 'price'" in str(found)
    for finding in found:
        if finding.section == "sql":
            # The message shows the line of the statement with a caret.
            _, shown, caret = finding.message.split("\n")
            assert shown[2:] == lines[finding.line - 1]
            assert caret.index("^") - 2 == finding.column - 1


def test_spans_of_time(tmp_path):
    text = JOB.replace("upper(b.symbol)", "b.symbol").replace('"10 seconds"', '"10 sex"')
    text = text.replace("1 minute", "c 5 m, b 3 months")
    found = [f for f in check(tmp_path, text) if f.condition == "INVALID_DURATION"]
    lines = text.splitlines()
    assert [lines[f.line - 1][(f.column or 1) - 1 :] for f in found] == [
        *('trigger = "1 secnd"', 'delay = "10 sex"', "3 months"),
    ]
    assert all(f.message.count("no span of time") == 1 for f in found)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('trigger = "1 secnd"', 'trigger = "often"', 'is no span of time; write it as in "10 seconds"'),
        ('trigger = "1 secnd"', 'trigger = "60"', 'no unit, so write "60 seconds"'),
        ('trigger = "1 secnd"', 'trigger = "once"', '"available now" reads what is there and ends'),
        ('delay = "10 seconds"', 'delay = "soon"', 'is no span of time; write it as in "10 seconds"'),
        ("WITHIN 1 minute", "AND WITHIN 1 minute", "nothing follows 'AND'"),
        ("WITHIN 1 minute", "OR WITHIN c 5 m, b 5 m", "nothing follows 'OR'"),
        ("WITHIN", "AND b.price > (SELECT max(price) FROM c) WITHIN", "join it, at line"),
    ],
)
def test_what_should_be_written_instead(tmp_path, before, after, expected):
    assert before in JOB
    found = examine(tomllib.loads(JOB.replace(before, after, 1)), tmp_path).all_problems
    assert any(expected in one.message for one in found), found


def test_a_time_zone_that_does_not_exist(tmp_path):
    text = JOB.replace("upper(b.symbol)", "b.symbol")
    for zone, hint in (("Europe/Berln", "'Europe/Berlin'"), ("Berlin", "'Europe/Berlin'")):
        found = check(tmp_path, f'{text}\n[spark]\n"spark.sql.session.timeZone" = "{zone}"\n')
        (one,) = [one for one in found if one.section == "spark"]
        assert f'must be a time zone such as "UTC" or "Europe/Berlin", not \'{zone}\'' in one.message
        assert one.message.endswith(f"did you mean {hint}?")


def test_spark_is_asked_for_what_the_file_does_not_say(tmp_path):
    with pytest.raises(AssertionError, match="Spark was started"):
        check(tmp_path, JOB)
    # A mistake in the grammar leaves nothing that Spark could check.
    (broken,) = [f for f in check(tmp_path, JOB.replace("WITHIN 1 minute", "WITHIN")) if f.section == "sql"]
    assert broken.condition == "SYNTAX"
    plain = JOB.replace("upper(b.symbol) AS name", "b.symbol AS name")
    found = check(tmp_path, plain.replace(">= c.cost", "BETWEN 1 AND c.cost"))
    assert [f.condition for f in found if f.line == 8] == ["SYNTAX"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("sql = ", 1), ('sql = "SELECT x FROM r"\n[sink\n', 2), (None, 1)],
)
def test_a_file_that_cannot_be_read(tmp_path, text, line, capsys):
    job = tmp_path / "job.toml"
    if text is not None:
        job.write_text(text)
    assert main(["check", str(job), "--json"]) == 1
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["condition"], found["line"], found["column"]) == ("JOB_FILE", line, None)


def test_a_statement_in_one_line_has_columns_of_its_line(tmp_path):
    sources = "\n".join(f'[sources.{name}]\nformat = "rate"\nevent_time = "timestamp"' for name in "ab")
    text = (
        f'checkpoint = "c"\nsql = "SELECT a.value FROM a, b WHERE a.value > b.valu WITHIN 1 day"\n{sources}\n'
    )
    (found,) = check(tmp_path, text)
    assert found.line == 2
    assert text.splitlines()[1][found.column - 1 :].startswith("valu WITHIN")


@pytest.mark.parametrize(
    "items",
    [
        "a.value, window.start FROM a, b GROUP BY a.value, window(result_time, '1 day')",
        "a.value + 1 AS n, n * 2 AS m, current_date FROM a, b WHERE a.timestamp > INTERVAL 1 DAY",
        "timestampdiff(SECOND, a.timestamp, b.timestamp) AS s, CAST(a.value AS INT), b.value::int FROM a, b",
        "value, A.TIMESTAMP FROM a JOIN b USING (value) WHERE value > 1",
        "x.v FROM (SELECT value AS v, timestamp FROM a) x, b WHERE v > b.value",
        "filter(array(a.value), e -> e > b.value), extract(YEAR FROM a.timestamp), DATE '2024' FROM a, b",
        "a.*, trim(BOTH 'x' FROM 'xy') AS t FROM a, b WHERE a.value BETWEEN b.value AND b.value + 1",
        "unknown.x, y FROM a, elsewhere AS unknown WHERE z > 1",
    ],
)
def test_names_that_may_be_right_are_left_to_spark(tmp_path, items):
    rate = {"format": "rate", "event_time": "timestamp"}
    sources = {"a": rate, "b": rate}
    if "elsewhere" in items:
        sources["elsewhere"] = {"format": "delta", "path": "p", "event_time": "t"}
    job = {"sql": f"SELECT {items}", "checkpoint": "c", "sources": sources, "sink": {"mode": "update"}}
    assert examine(job, tmp_path).all_problems == []


def test_columns_that_a_file_declares(tmp_path):
    assert find_columns("kafka", None, (), None, {})["timestamp"] == "TIMESTAMP"
    assert find_columns(
        "kafka", None, ("CAST(value AS INT) AS id", "timestamp AS ts", "topic"), None, {}
    ) == {
        "id": "INT",
        "ts": "",
        "topic": "",
    }
    assert find_columns("kafka", None, ("value + 1",), None, {}) is None
    assert find_columns("delta", None, (), "p", {}) is None
    (tmp_path / "day=1").mkdir()
    assert find_columns("csv", "id INT", (), str(tmp_path), {}) is None


def test_the_template_has_no_errors(tmp_path):
    write_template(tmp_path / "example")
    with pytest.raises(AssertionError, match="Spark was started"):
        check_job(tmp_path / "example" / "job.toml", no_spark, print)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("check", "explain", "until-caught-up", "event-time"):
        assert word in script
    if shell == "fish":
        assert "complete -c thetastream" in script


def test_what_follows_from_a_misspelt_key_is_no_error_of_its_own(tmp_path):
    plain = JOB.replace("upper(b.symbol)", "b.symbol")
    text = plain.replace('event_time = "ts"\n', 'event_tme = "ts"\nidle = "5m"\n')
    found = [f.condition for f in check(tmp_path, text) if f.section == "sources.asks"]
    assert found == ["UNKNOWN_KEY"]
    found = [f for f in check(tmp_path, text.replace('event_tme = "ts"', "")) if f.section == "sources.asks"]
    assert [f.condition for f in found] == ["MISSING_KEY"] * 2


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ({"changes": {"format": "debezium", "row": "id INT, at BIGINT"}}, {"id": "INT", "at": "BIGINT"}),
        (
            {"changes": {"format": "debezium", "row": "id INT"}, "select": ["id", "1 AS one"]},
            {"id": "", "one": ""},
        ),
        (
            {"decode": "json", "schema": "id INT, w INT", "changes": {"sign": "w"}},
            {"id": "INT"},
        ),
        ({"changes": {"format": "debezium"}}, None),
    ],
)
def test_columns_of_a_source_of_changes(table, columns, tmp_path):
    source = parse_source("a", {"format": "kafka", **table}, tmp_path, [])
    assert find_source_columns(source) == columns
