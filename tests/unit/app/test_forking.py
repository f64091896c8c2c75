"""``thetastream fork JOB TARGET --on CONDITION`` writes a job that differs in condition and checkpoint."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.checkpoints import write_checkpoint
from thetastream.app import cli
from thetastream.app.job import forking
from thetastream.app.job.document import Document
from thetastream.app.job.forking import fork_job
from thetastream.core.errors import QueryError
from thetastream.core.identity import CONDITION, Identity, Part
from thetastream.spark.sources.identity import IdentityReader

JOB = """\
# pairs of close values
sql = \"\"\"
SELECT a.value AS x, b.value AS y FROM a JOIN b
ON abs(a.value - b.value) <= 1 -- close
WITHIN 5 seconds
\"\"\"
checkpoint = "out/checkpoint/"   # kept

[sources.a]
format = "rate"
event_time = "timestamp"
[sources.b]
format = "rate"
event_time = "timestamp"
[sink]
store = "parquet"
path = "out/pairs"
"""
OLD: Identity = {CONDITION: Part("{}", "abs(a.value - b.value) <= 1")}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "out/checkpoint", 7, 7, {"logOffset": 3}, IdentityReader(OLD).initialOffset())
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def no_session(conf: dict[str, Any]) -> NoReturn:
    """Fail, because these forks need no Spark."""
    raise AssertionError("Spark starts")


def test_the_new_job_differs_in_condition_and_checkpoint(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = job.with_name("wide.toml")
    assert cli.main(["fork", str(job), str(new), "--on", "abs(a.value - b.value) <= 3"]) == 0
    assert capsys.readouterr().out == f"{new} continues after epoch 7 of {job}\n"
    assert new.read_text() == JOB.replace("<= 1", "<= 3").replace(
        'checkpoint = "out/checkpoint/"   # kept', 'checkpoint = "out/checkpoint-wide"'
    )
    assert (job.parent / "out/checkpoint-wide/thetastream-fork.json").exists()


def test_a_fork_after_an_earlier_epoch_needs_another_store(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = job.with_name("early.toml")
    assert cli.main(["fork", str(job), str(new), "--on", "a.value < b.value", "--epoch", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"name another one in {new}")
    checkpoint = job.parent / tomllib.loads(new.read_text())["checkpoint"]
    for log in ("offsets", "commits"):
        assert sorted(path.name for path in (checkpoint / log).glob("[0-9]*")) == list("01234")


@pytest.mark.parametrize(
    ("change", "on", "epoch", "what"),
    [
        (("", ""), "abs(a.value <= 3", None, r"has no matching"),
        (("", ""), "a.nothing > b.value", None, "nothing"),
        (("", ""), r"a.value RLIKE '\\d+' AND a.value < b.value", None, "that TOML or SQL reads"),
        (("", ""), r"a.value <> 'x\y' AND a.value < b.value", None, "that TOML or SQL reads"),
        (("", ""), 'a.value <> """ AND a.value < b.value', None, "that TOML or SQL reads"),
        (("", ""), "a.value < b.value", 9, "epoch must be a committed epoch .* 0 to 7"),
        (('checkpoint = "', '"checkpoint" = "'), "a.value < b.value", None, "checkpoint in one line"),
        (("close values", "abs(a.value - b.value) <= 1"), "a.value < b.value", None, "it has it 2 times"),
        (("WITHIN", "WHERE a.value > 3 WITHIN"), "a.value < b.value", None, "one ON or one WHERE"),
        (('store = "parquet"', 'format = "parquet"'), "a.value < b.value", None, "not to parquet files"),
    ],
)
def test_what_cannot_be_forked_leaves_nothing(
    change: tuple[str, str], on: str, epoch: int | None, what: str, job: Path
) -> None:
    job.write_text(JOB.replace(*change))
    with pytest.raises(QueryError, match=what):
        fork_job(job, job.with_name("new.toml"), on, no_session, epoch)
    assert not job.with_name("new.toml").exists()
    assert not (job.parent / "out/checkpoint-new").exists()


def test_spark_is_asked_about_a_condition_that_is_not_plain(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write_text(JOB + '[spark]\n"spark.sql.ansi.enabled" = "false"\n')
    asked = []

    @contextmanager
    def open_session(conf: dict[str, Any]) -> Iterator[str]:
        asked.append(conf)
        yield "session"

    def find(session: str, document: Document) -> Iterator[tuple[str, QueryError]]:
        assert session == "session"
        if "powr" in document.script[0].select.text:
            yield "sql", QueryError("UNRESOLVED_ROUTINE", "no function powr")

    monkeypatch.setattr(forking, "find_spark_problems", find)
    new = job.with_name("new.toml")
    with pytest.raises(QueryError, match="no function powr"):
        fork_job(job, new, "powr(a.value, 2) <= b.value", open_session)
    assert not new.exists()
    assert not (job.parent / "out/checkpoint-new").exists()
    assert fork_job(job, new, "pow(a.value, 2) <= b.value", open_session).epoch == 7
    assert new.exists()
    assert asked == [{"spark.sql.ansi.enabled": "false"}] * 2


def test_words_that_do_not_fit_together_are_refused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = job.with_name("new.toml")
    assert cli.main(["fork", str(job), str(new)]) != 0
    assert cli.main(["fork", str(job.parent / "out/checkpoint"), str(new), "--on", "a.x < b.x"]) != 0
    assert "no --on with a checkpoint" in capsys.readouterr().err
    with pytest.raises(QueryError, match="exists already"):
        fork_job(job, job, "a.value < b.value", no_session)
    with pytest.raises(QueryError, match="must be in the folder of"):
        fork_job(job, job.parent / "out" / "new.toml", "a.value < b.value", no_session)
