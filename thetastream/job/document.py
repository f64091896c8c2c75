"""Reads ``job.toml``, and lists all errors of the file at once, without Spark.

sql = "SELECT ..."     checkpoint = "folder"     trigger = "1 second"     name = "pairs"
[sources.NAME]  [sink]  [sinks.NAME]  [model]  [shed]  [statistics]  [options]  [spark]
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.job.decoders import DECODERS
from thetastream.job.names import find_name_problems
from thetastream.job.schemas import Columns, find_columns
from thetastream.job.script import (
    choose_sink,
    find_missing_times,
    find_script_problems,
    find_unknown_sources,
    find_window_problems,
)
from thetastream.job.source_tables import find_time_problems, parse_source
from thetastream.job.spans import find_span_problem
from thetastream.job.spec import Job, SinkSpec, SourceSpec
from thetastream.job.tables import (
    check_keys,
    check_scalars,
    get_table,
    parse_model,
    parse_sink,
    read_option_tables,
    resolve,
)
from thetastream.sql.errors import sort_problems
from thetastream.sql.grammar import parse_script
from thetastream.sql.statement import Statement

_KEYS = {
    "sql": str,
    "checkpoint": str,
    "trigger": str,
    "name": str,
    "sources": dict,
    "sink": dict,
    "sinks": dict,
    "model": dict,
    "shed": dict,
    "statistics": dict,
    "options": dict,
    "spark": dict,
}
"""The keys at the top of a job file, and the types of their values."""

SQL = "sql"
"""The name of the section that has the errors in statements."""


@dataclass
class Document:
    """The parts of a job file that can be read, and the errors of the others."""

    problems: dict[str, list[ThetastreamError]] = field(default_factory=dict)
    """The errors by section of the file: the name of a table, "sql", or "" for the top of the file."""
    sources: dict[str, SourceSpec] = field(default_factory=dict)
    """The sources whose values have the right types, by name in lower case."""
    columns: dict[str, Columns | None] = field(default_factory=dict)
    """The declared columns of each source, by its name in lower case; None if only Spark knows them."""
    script: Sequence[Statement] = ()
    """The statements. There are none if the text has an error of grammar."""
    job: Job | None = None
    """The job; None if there are errors."""

    def get_problems(self, section: str) -> list[ThetastreamError]:
        """Return the list of the errors of a section, to which errors can be added."""
        return self.problems.setdefault(section, [])

    @property
    def all_problems(self) -> list[ThetastreamError]:
        """The errors of all sections."""
        return [problem for found in self.problems.values() for problem in found]


def read_job(path: Path) -> Job:
    """Read the job of a TOML file. Relative paths in the file are relative to its folder.

    Raises
    ------
    QueryError
        JOB_FILE if the file cannot be read as TOML; otherwise one error that contains all errors of the job.
    """
    return parse_job(read_toml(path), path.parent.absolute())


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise JOB_FILE if that fails."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise QueryError("JOB_FILE", f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise QueryError("JOB_FILE", f"{path} is not TOML: {error}") from None


def parse_job(found: Mapping[str, Any], folder: Path) -> Job:
    """Make the job that a parsed TOML document describes.

    >>> job = parse_job({
    ...     "sql": "SELECT * FROM a, b WHERE a.value > b.value WITHIN 5 seconds",
    ...     "checkpoint": "state",
    ...     "sources": {name: {"format": "rate", "event_time": "timestamp"} for name in "ab"},
    ... }, Path("/jobs"))
    >>> job.checkpoint, job.sink.format, [source.name for source in job.sources]
    ('/jobs/state', 'console', ['a', 'b'])
    """
    document = examine(found, folder)
    raise_problems(document.all_problems)
    assert document.job is not None
    return document.job


def examine(found: Mapping[str, Any], folder: Path) -> Document:
    """Read a parsed TOML document, and collect its errors."""
    document = Document()
    # 1. The top of the file, and every table by itself.
    check_keys(found, _KEYS, "the job", document.get_problems(""))
    for key in ("sql", "checkpoint", "sources"):
        if key not in found:
            document.get_problems("").append(QueryError("MISSING_KEY", f"the job must have {key!r}"))
    if found.get("checkpoint") == "":
        problem = QueryError("BAD_VALUE", "'checkpoint' of the job must name a folder, not ''")
        document.get_problems("").append(problem)
    trigger = found.get("trigger")
    span_problem = find_span_problem(trigger, "trigger") if isinstance(trigger, str) else None
    if span_problem is not None:
        document.get_problems("").append(span_problem)
    for name, table in get_table(found, "sources").items():
        _read_source(document, name, table, folder)
    sinks = {
        name: parse_sink(table, folder, f"sink {name!r}", document.get_problems(f"sinks.{name}"))
        for name, table in get_table(found, "sinks").items()
    }
    sink = parse_sink(get_table(found, "sink"), folder, "the sink", document.get_problems("sink"))
    check_scalars(get_table(found, "spark"), "spark", document.get_problems("spark"))
    model = parse_model(get_table(found, "model"), document.get_problems("model"))
    options = read_option_tables(found, document.get_problems)
    # 2. The statements, against the sources and sinks.
    text = found.get("sql")
    if isinstance(text, str):
        sources = found.get("sources")
        sink = _read_script(document, text, sink, sinks, list(sources) if isinstance(sources, dict) else None)
    for problems in document.problems.values():
        problems[:] = _drop_consequences(problems)
    if not document.all_problems:
        document.job = Job(
            sql=found["sql"],
            checkpoint=resolve(found["checkpoint"], folder),
            sources=tuple(document.sources.values()),
            sink=sink,
            trigger=found.get("trigger"),
            name=found.get("name"),
            model=model,
            options=options,
            spark=dict(get_table(found, "spark")),
        )
    return document


def _drop_consequences(problems: list[ThetastreamError]) -> list[ThetastreamError]:
    """Drop the error that a key is missing if another error names a misspelt form of this key."""
    meant = {
        name
        for problem in problems
        if problem.condition == "UNKNOWN_KEY"
        for name in re.findall(r"did you mean '(.*)'", problem.message)
    }
    return [
        problem
        for problem in problems
        if problem.condition != "MISSING_KEY"
        or not any(f"must have {name!r}" in problem.message for name in meant)
    ]


def _read_source(document: Document, name: str, table: object, folder: Path) -> None:
    problems = document.get_problems(f"sources.{name}")
    if name.casefold() in document.sources:
        known = document.sources[name.casefold()].name
        what = f"source {name!r} must have another name than source {known!r}; names ignore case"
        problems.append(QueryError("BAD_VALUE", what))
    source = parse_source(name, table, folder, problems)
    if source is None:
        return
    read = None if source.decode is None else DECODERS[source.decode].read_columns
    columns = find_columns(source.format, source.schema, source.select, source.path, source.options, read)
    problems += find_time_problems(source, columns)
    document.sources[name.casefold()], document.columns[name.casefold()] = source, columns


def _read_script(
    document: Document,
    text: str,
    sink: SinkSpec,
    sinks: Mapping[str, SinkSpec],
    names: Sequence[str] | None,
) -> SinkSpec:
    """Read the statements, collect their errors, and return the sink of the last statement.

    ``names`` are the names of the sources; None if the file has no table of sources.
    """
    problems = document.get_problems(SQL)
    try:
        document.script = parse_script(text)
    except QueryError as problem:
        problems.append(problem)
        return sink
    sink = choose_sink(text, document.script[-1], sink, sinks, problems)
    problems += find_script_problems(document.script, sink)
    if names is not None:
        problems += find_unknown_sources(document.script, names)
    problems += find_name_problems(document.script, document.columns)
    healthy = {
        name: source
        for name, source in document.sources.items()
        if not document.problems.get(f"sources.{source.name}")
    }
    problems += find_missing_times(document.script, healthy)
    problems += find_window_problems(document.script)
    problems[:] = sort_problems(problems)
    return sink
