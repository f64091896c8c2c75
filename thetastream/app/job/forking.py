"""Forks a job: writes a job file with another condition, whose query begins with the stored tuples of the old
job.

The new file is the old one but for the condition and the checkpoint. The sink stays the same, so a store goes
on with the results of the new query, and its readers have nothing to change.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from thetastream.app.job.check import OpenSession, is_plain
from thetastream.app.job.checkpoint import lock, read_checkpoint
from thetastream.app.job.document import examine, read_job
from thetastream.app.job.frames import find_spark_problems
from thetastream.app.job.spec import Job
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import list_selects
from thetastream.core.errors import QueryError, raise_problems
from thetastream.spark.fork import fork

_CHECKPOINT = re.compile(r"^checkpoint\s*=[^\n]*$", re.MULTILINE)
"""The line that names the checkpoint of a job."""
_BY_HAND = "Copy the job by hand, and fork its checkpoint: thetastream fork CHECKPOINT TARGET"


class ForkedJob(NamedTuple):
    """What ``fork_job`` has done."""

    epoch: int
    """The epoch of the old query after which the new one begins."""
    checkpoint: str
    """The checkpoint of the new job."""
    is_earlier: bool
    """Whether the old job has later epochs in a store, so that the new one needs another store."""


def fork_job(
    job: Path, target: Path, on: str, open_session: OpenSession, epoch: int | None = None
) -> ForkedJob:
    """Write a job with another condition, and make its checkpoint.

    Parameters
    ----------
    job : Path
        The job file of a stopped query.
    target : Path
        The new job file, in the same folder. It must not exist.
    on : str
        The new condition of its only join.
    open_session : OpenSession
        A function that opens a Spark session. It is called only if Spark is needed to check the condition.
    epoch : int, optional
        The epoch of the old query after which the new one begins. By default, it is the last one.

    Raises
    ------
    QueryError
        FORK if the file cannot be written in this way; the errors of the new job; and those of ``th.fork``.
    """
    # 1. Write the new job, and check it.
    before = read_job(job)
    if target.exists():
        raise QueryError("FORK", f"{target} must be a new file, and it exists already; name another one")
    if target.parent.absolute() != job.parent.absolute():
        what = f"{target} must be in the folder of {job}, because paths in it are relative"
        raise QueryError("FORK", f"{what}; name a file there")
    if before.sink.is_file_sink:
        what = f"{job} must write to a store, to Delta or to Kafka, not to {before.sink.format} files"
        raise QueryError("FORK", f"{what}, because Spark's file sink refuses epochs that begin after 0")
    text = job.read_text()
    named = json.dumps(f"{tomllib.loads(text)['checkpoint'].rstrip('/')}-{target.stem}")
    text = _replace_once(text, _find_condition(before, job), on, job)
    head, table, rest = text.partition("\n[")
    head, n_lines = _CHECKPOINT.subn(lambda _: f"checkpoint = {named}", head)
    if n_lines != 1:
        raise QueryError("FORK", f"{job} must name its checkpoint in one line before all tables. {_BY_HAND}")
    text = head + table + rest
    document = examine(_load(text, on), target.parent.absolute())
    raise_problems(document.all_problems)
    after = document.job
    assert after is not None
    if _find_condition(after, target) != on.strip():
        raise _make_unwritable(on)
    if not is_plain(document.script, document.columns):
        with open_session(after.spark) as spark:
            raise_problems([problem for _, problem in find_spark_problems(spark, document)])
    # 2. Fork the checkpoint. The file follows, so a job that was refused leaves none.
    last = read_checkpoint(before.checkpoint).committed
    with lock(before.checkpoint):
        epoch = fork(before.checkpoint, after.checkpoint, epoch)
    target.write_text(text)
    return ForkedJob(epoch, after.checkpoint, before.sink.kept is not None and epoch < last)


def _load(text: str, on: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise _make_unwritable(on) from None


def _make_unwritable(on: str) -> QueryError:
    what = f"the condition {on!r} has characters that TOML or SQL reads in another way, such as a backslash"
    return QueryError("FORK", f"{what}. {_BY_HAND}")


def _find_condition(job: Job, path: Path) -> str:
    """Find the text of the condition of the only join of a job."""
    selects = [one for statement in parse_script(job.sql) for one in list_selects(statement.select)]
    joins = [select for select in selects if len(select.sources) > 1]
    conditions = [phrase.text for select in joins for phrase in select.conditions]
    if len(conditions) != 1:
        what = f"sql of {path} must have one ON or one WHERE, which --on replaces; it has {len(conditions)}"
        raise QueryError("FORK", f"{what}. {_BY_HAND}")
    return conditions[0]


def _replace_once(text: str, condition: str, on: str, path: Path) -> str:
    """Replace the condition in the text of a job file. It must stand there once, as SQL reads it."""
    if text.count(condition) != 1:
        what = f"{path} must have the condition {condition!r} once, without escapes of TOML"
        raise QueryError("FORK", f"{what}; it has it {text.count(condition)} times. {_BY_HAND}")
    return text.replace(condition, on)
