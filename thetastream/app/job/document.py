"""Reads ``job.toml``, and lists all errors of the file at once, without Spark.

sql = "SELECT ..."     checkpoint = "folder"     trigger = "1 second"     name = "pairs"     finish = true
[sources.NAME]  [tables.NAME]  [tasks.NAME]  [sink]  [sinks.NAME]
[model]  [policy]  [rechoose]  [shed]  [statistics]  [options]  [spark]

It also checks the statements of a job against its sources and sinks.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetastream.app.job.changing_tables import parse_table
from thetastream.app.job.names import find_name_problems, find_results
from thetastream.app.job.rechoosing import Rechoosing, make_unfit_error
from thetastream.app.job.schemas import Columns
from thetastream.app.job.source_tables import find_source_columns, find_time_problems, parse_source
from thetastream.app.job.spec import (
    Job,
    SinkSpec,
    SourceSpec,
    check_keys,
    check_scalars,
    find_endless_problems,
    find_span_problems,
    find_zone_problems,
    get_table,
    is_local,
    parse_model,
    parse_place,
    parse_policy,
    parse_rechoosing,
    parse_sink,
    read_option_tables,
    resolve,
)
from thetastream.app.job.task_tables import TASKS, find_join_problems, parse_tasks
from thetastream.conditions import make_error_at, tokenize
from thetastream.conditions.clauses import find_endless
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Insert, Select, Statement, View, find_inputs, list_selects
from thetastream.core.errors import (
    QueryError,
    ThetastreamError,
    list_problems,
    raise_problems,
    suggest,
    suggest_or_list,
)
from thetastream.core.spans import AVAILABLE_NOW, Rows, is_available_now
from thetastream.families.options import SESSION_PREFIX
from thetastream.spark.tables.table import Table
from thetastream.statements.errors import sort_problems
from thetastream.statements.insert import find_mode_problems, find_store_mode_problems
from thetastream.statements.order import find_order_problems, is_regrouped
from thetastream.statements.sink_store import SinkStore

_PLAIN_SPAN = re.compile(r"(\s*[+-]?\s*\d+(\.\d+)?\s*[^\W\d_]+\s*,?)+")
"""Numbers, each with a word behind it."""
KEYS = {
    "sql": str,
    "checkpoint": str,
    "trigger": str,
    "name": str,
    "finish": bool,
    "sources": dict,
    "tables": dict,
    "tasks": dict,
    "sink": dict,
    "sinks": dict,
    "model": dict,
    "policy": dict,
    "rechoose": dict,
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
    tables: dict[str, Table] = field(default_factory=dict)
    """The tables without errors, by name in lower case."""
    tasks: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The join tasks, by name."""
    columns: dict[str, Columns | None] = field(default_factory=dict)
    """The declared columns of each source and table, by name in lower case; None if only Spark knows them."""
    of_session: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of options that the session of the job has, by name."""
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


def is_job(place: str) -> bool:
    """Whether a place is that of a job file, and not a checkpoint.

    >>> is_job("jobs/pairs.toml"), is_job("s3://bucket/checkpoint")
    (True, False)
    """
    return place.endswith(".toml")


def find_checkpoint(place: str) -> str:
    """Find the checkpoint of a job file. Any other place is a checkpoint.

    The rest of the file is not read. So a job whose sources are not there any more has a checkpoint too.

    Raises
    ------
    QueryError
        JOB_FILE if the file cannot be read as TOML; MISSING_KEY if it names no checkpoint.
    """
    if not is_job(place):
        return place
    path = Path(place)
    checkpoint = read_toml(path).get("checkpoint")
    if not isinstance(checkpoint, str) or not checkpoint:
        raise QueryError("MISSING_KEY", f"{path} must have 'checkpoint', which names a folder")
    return resolve(checkpoint, path.parent.absolute())


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
    check_keys(found, KEYS, "the job", document.get_problems(""))
    for key in ("sql", "checkpoint", "sources"):
        if key not in found:
            document.get_problems("").append(QueryError("MISSING_KEY", f"the job must have {key!r}"))
    if found.get("checkpoint") == "":
        problem = QueryError("BAD_VALUE", "'checkpoint' of the job must name a folder, not ''")
        document.get_problems("").append(problem)
    ends_when_caught_up = is_available_now(found.get("trigger"))
    trigger = None if ends_when_caught_up else found.get("trigger")
    for problem in find_span_problems(trigger, "trigger", may_be_interval=False):
        what = f'{problem.message}. "{AVAILABLE_NOW}" reads what is there and ends'
        document.get_problems("").append(QueryError(problem.condition, what))
    is_finished = found.get("finish") is True
    if trigger is not None and is_finished:
        what = "a job with finish = true reads what is there and ends, so it must have no 'trigger'"
        document.get_problems("").append(QueryError("BAD_VALUE", f"{what}; leave one of them out"))
    for name, table in get_table(found, "sources").items():
        _read_source(document, name, table, folder)
    for name, table in get_table(found, "tables").items():
        _read_table(document, name, table, folder)
    if is_finished or ends_when_caught_up:
        asked = "finish = true" if is_finished else f'trigger = "{AVAILABLE_NOW}"'
        document.get_problems("").extend(find_endless_problems(document.sources.values(), asked))
    document.tasks = parse_tasks(found, document.sources, document.columns, document.get_problems)
    sinks = {
        name: parse_sink(table, folder, f"sink {name!r}", document.get_problems(f"sinks.{name}"))
        for name, table in get_table(found, "sinks").items()
    }
    sink = parse_sink(get_table(found, "sink"), folder, "the sink", document.get_problems("sink"))
    check_scalars(get_table(found, "spark"), "spark", document.get_problems("spark"))
    document.get_problems("spark").extend(find_zone_problems(get_table(found, "spark")))
    document.of_session = {
        key.removeprefix(SESSION_PREFIX): value
        for key, value in get_table(found, "spark").items()
        if key.startswith(SESSION_PREFIX)
    }
    model = parse_model(get_table(found, "model"), document.get_problems("model"))
    options = read_option_tables(found, folder, document.get_problems)
    policy = parse_policy(get_table(found, "policy"), options, model, document.get_problems("policy"))
    rechoosing = parse_rechoosing(found, options, document.get_problems("rechoose"))
    # 2. The statements, against the sources and sinks.
    text = found.get("sql")
    if isinstance(text, str):
        sources = found.get("sources")
        names = [*sources, *get_table(found, "tables")] if isinstance(sources, dict) else None
        if document.tasks:
            names = [TASKS]
        sink = _read_script(document, text, sink, sinks, names, folder, options, rechoosing)
    checkpoint = found.get("checkpoint")
    if isinstance(checkpoint, str) and checkpoint:
        what = "'checkpoint' of the job"
        document.get_problems("").extend(_find_readers(document, what, resolve(checkpoint, folder)))
    if sink.path is not None:
        document.get_problems("sink").extend(_find_readers(document, "the path of the sink", sink.path))
    for problems in document.problems.values():
        problems[:] = _drop_consequences(problems)
    if not document.all_problems:
        document.job = Job(
            sql=found["sql"],
            checkpoint=resolve(found["checkpoint"], folder),
            sources=tuple(document.sources.values()),
            sink=sink,
            trigger=trigger,
            name=found.get("name"),
            model=model,
            options=options,
            tables=document.tables,
            tasks=document.tasks,
            spark=dict(get_table(found, "spark")),
            policy=policy,
            rechoosing=rechoosing,
            ends_when_caught_up=ends_when_caught_up,
            is_finished=is_finished,
        )
    return document


def _find_readers(document: Document, what: str, written: str) -> Iterator[QueryError]:
    """Yield an error for each source that reads the files of a folder that the job writes."""
    for source in document.sources.values():
        read = source.path
        if read is not None and is_local(read) and os.path.realpath(read) == os.path.realpath(written):
            why = f"source {source.name!r} reads this one, and would take what the job writes for tuples"
            yield QueryError("BAD_VALUE", f"{what} ({written}) must be another folder: {why}")


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
    try:
        source = parse_source(name, table, folder, problems)
        columns = None if source is None else find_source_columns(source)
    except ThetastreamError as error:
        # A name in schema or select may lack a closing quote.
        problems += list_problems(error)
        return
    if source is None:
        return
    problems += find_time_problems(source, columns)
    for other in document.sources.values():
        same = source.path is not None and (source.path, source.format) == (other.path, other.format)
        if same and source.reader != other.reader:
            what = f"sources {other.name!r} and {name!r} have one path, and must have one reader"
            problems.append(QueryError("BAD_VALUE", f"{what}: Spark's reports name files by their path"))
    document.sources[name.casefold()], document.columns[name.casefold()] = source, columns


def _read_table(document: Document, name: str, table: object, folder: Path) -> None:
    problems, folded = document.get_problems(f"tables.{name}"), name.casefold()
    if folded in document.columns:
        what = f"table {name!r} must have another name than the other sources and tables; names ignore case"
        problems.append(QueryError("BAD_VALUE", what))
        return
    document.columns[folded] = None
    read = parse_table(name, table, folder, problems)
    if read is not None:
        document.tables[folded] = read


def _read_script(
    document: Document,
    text: str,
    sink: SinkSpec,
    sinks: Mapping[str, SinkSpec],
    names: Sequence[str] | None,
    folder: Path,
    options: Mapping[str, Any],
    rechoosing: Rechoosing | None,
) -> SinkSpec:
    """Read the statements, collect their errors, and return the sink of the last statement.

    ``names`` are the names of the sources and tables; None if the file has no sources. Paths in the
    statements are relative to ``folder``. ``options`` are those of the joins.
    """
    problems = document.get_problems(SQL)
    try:
        document.script = parse_script(text)
    except QueryError as problem:
        problems.append(problem)
        return sink
    sink = choose_sink(text, document.script[-1], sink, sinks, problems, folder)
    problems += find_script_problems(document.script, sink)
    if names is not None:
        problems += find_unknown_sources(document.script, names)
    problems += find_join_problems(document.script) if document.tasks else ()
    document.get_problems("rechoose").extend(find_choice_problems(document.script[-1], rechoosing))
    problems += find_name_problems(document.script, document.columns, {**document.of_session, **options})
    problems += find_order_problems(document.script, options)
    if not problems and sink.kept is not None:
        section = next((f"sinks.{name}" for name, spec in sinks.items() if spec is sink), "sink")
        results = find_results(document.script, document.columns)
        document.get_problems(section).extend(find_column_problems(sink.kept, results))
    healthy = {
        name: source
        for name, source in document.sources.items()
        if not document.problems.get(f"sources.{source.name}")
    }
    problems += find_missing_times(document.script, healthy)
    problems += find_window_problems(document.script)
    problems[:] = sort_problems(problems)
    return sink


def choose_sink(
    text: str,
    statement: Statement,
    sink: SinkSpec,
    sinks: Mapping[str, SinkSpec],
    problems: list[ThetastreamError],
    folder: Path,
) -> SinkSpec:
    """Return the sink that INSERT INTO names. Without INSERT INTO, return the only sink of the job."""
    if not isinstance(statement.head, Insert):
        if sinks:
            what = (
                f"[sinks] names {', '.join(sinks)}, but sql names none; write INSERT INTO {next(iter(sinks))}"
            )
            problems.append(QueryError("UNKNOWN_SINK", what))
        return sink
    name = statement.head.name.strip("`")
    found = {known.casefold(): spec for known, spec in sinks.items()}.get(name.casefold())
    found = found or parse_place(statement.head.name, folder, problems)
    if found is None:
        there = ", ".join(sinks) or "there are none"
        what = f"INSERT INTO must name a sink of the job ({there}), not {statement.head.name!r}"
        key = name if name.isidentifier() else "pairs"
        hint = f"write [sinks.{key}], or a folder or a store as in parquet.`path` and store.`path`"
        problems.append(make_error_at(text, statement.head.start, f"{what}; {hint}", "UNKNOWN_SINK"))
    return found or sink


def find_column_problems(kept: SinkStore, results: Columns | None) -> Iterator[QueryError]:
    """Yield an error for each key or time of a store that is no column of the results."""
    if results is None:
        return
    for what, column in (("time", kept.time), *(("key", key) for key in kept.key)):
        # Only Spark knows the fields of a column.
        if column is not None and column not in results and column.partition(".")[0] not in results:
            what = f"{what} ({column!r}) must be a column of the results"
            yield QueryError("STORE_COLUMN", what + suggest_or_list(column, results))


def find_script_problems(script: Sequence[Statement], sink: SinkSpec) -> Iterator[QueryError]:
    """Yield an error for EXPLAIN, for a view at the end, and for clauses that streams do not support."""
    last = script[-1]
    if last.is_explain:
        what = "the statement of a job must not begin with EXPLAIN"
        yield QueryError("EXPLAIN", f"{what}; leave it out, and call thetastream explain JOB.toml")
    if isinstance(last.head, View):
        what = "a job must end with a SELECT or an INSERT INTO, because a view alone has no result"
        yield make_error_at(last.select.text, last.head.start, what)
    for statement in script:
        for select in list_selects(statement.select):
            yield from find_endless(select.clauses)
    if sink.kept is None:
        yield from find_mode_problems(last.select, sink.mode)
    else:
        yield from find_store_mode_problems(last.select, sink.mode)


def find_choice_problems(statement: Statement, rechoosing: Rechoosing | None) -> Iterator[QueryError]:
    """Yield an error if the rows of a statement are not those of a join whose model is chosen again."""
    select, head = statement.select, statement.head
    is_plain = len(select.sources) == 2 and len(select.clauses.phrases) == 1
    is_named = isinstance(head, Insert) and bool(head.columns)
    if rechoosing is not None and (not is_plain or is_regrouped(select.clauses) or is_named):
        yield make_unfit_error()


def find_unknown_sources(script: Sequence[Statement], names: Sequence[str]) -> Iterator[QueryError]:
    """Yield an error for each name in FROM that is not a source, a part of WITH or a view.

    A name with dots may be a table or a folder of files. Only Spark can check it.
    """
    known = {name.casefold() for name in names}
    for select, source in find_inputs(script):
        if source.plain_name not in known and len(tokenize(source.name).tokens) == 1:
            there = ", ".join(names) or "there are none"
            what = f"FROM must name a source ({there}), not {source.name!r}"
            what += suggest(source.plain_name, known)
            yield make_error_at(select.text, source.start, what, "UNKNOWN_SOURCE")


def find_missing_times(
    script: Sequence[Statement], sources: Mapping[str, SourceSpec]
) -> Iterator[QueryError]:
    """Yield an error for each source that has no event time and is joined with a time window."""
    for select, source in find_inputs(script):
        found = sources.get(source.plain_name)
        if found is not None and found.event_time is None and _is_timed(select):
            what = f"WITHIN needs the event time of source {found.name!r}"
            hint = f"write event_time, or by_arrival, in [sources.{found.name}]"
            yield make_error_at(select.text, source.start, f"{what}; {hint}", "NO_WATERMARK")


def find_window_problems(script: Sequence[Statement]) -> Iterator[QueryError]:
    """Yield an error for each WITHIN that is not a span of time. Spark checks those of other forms."""
    for select in (each for statement in script for each in list_selects(statement.select)):
        for span in _list_spans(select):
            if not isinstance(span, str) or not _PLAIN_SPAN.fullmatch(span):
                continue
            for problem in find_span_problems(span, "WITHIN"):
                at = re.search(r"\W+".join(map(re.escape, span.split())), select.text)
                start = 0 if at is None else at.start()
                yield make_error_at(select.text, start, problem.message, problem.condition)


def _is_timed(select: Select) -> bool:
    """Whether a SELECT has a window of event time."""
    return any(span is not None and not isinstance(span, Rows) for span in _list_spans(select))


def _list_spans(select: Select) -> list[object]:
    """List the windows of a SELECT: one for each stream, or one for all."""
    return [*select.within.values()] if isinstance(select.within, dict) else [select.within]
