"""A job: its sources, its statements, its sink and its model. ``job.document`` reads it from ``job.toml``.

This module also reads the tables of ``job.toml``, and lists their errors. ``source_tables`` reads those of
sources.

[tables.NAME]   the parameters of th.Table; see ``changing_tables``
[sink]          format, path, mode, options; or store, its parameters, and the arguments of th.write
[sinks.NAME]    the same, for sql = "INSERT INTO NAME SELECT ..."
[model]         name, and the parameters of the model
[policy]        name, and the parameters of the policy
[rechoose]      the parameters of Rechoosing
[shed]          the parameters of th.Shed
[statistics]    the parameters of th.Statistics
[options]       options of thetastream.families.options.StatementOptions; with [tasks], of TaskOptions
[spark]         session settings
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

from thetastream.app.job.rechoosing import Rechoosing
from thetastream.core.errors import QueryError, ThetastreamError, list_problems, suggest_or_list
from thetastream.core.shed import Shed
from thetastream.core.spans import make_negative_error, make_span_error, parse_duration
from thetastream.families.options import Options, StatementOptions, TaskOptions, list_options
from thetastream.lowering.statistics import Statistics
from thetastream.models import REGISTRY, Model
from thetastream.runtime.control.policies import (
    Policy,
    TwoPhaseScaling,
    find_model_obstacle,
    find_policy,
)
from thetastream.spark.session.zones import TIME_ZONE, refuse_unknown_zone
from thetastream.spark.tables.table import Table
from thetastream.statements.insert import FILE_SINKS, MODES, split_place
from thetastream.statements.sink_store import STORE, SinkStore, read_sink_store
from thetastream.stores import read_store

REPLAY = "replay"
"""Format of a source that streams a file in the order of its event time, at a given rate."""
SPARK, ARROW = "spark", "arrow"
READERS = (SPARK, ARROW)
"""Who reads the files of a source: Spark, or ``th.read_parquet``."""
SINKS = ("console", "parquet", "csv", "json", "orc", "delta", "noop", "kafka")
"""The formats of sinks."""

SINK_KEYS = {"format": str, "path": str, "mode": str, "options": dict}
"""The keys of a sink, and the types of their values."""
_KINDS = {
    str: "a string",
    dict: "a table",
    list: "a list",
    int: "an integer",
    bool: "true or false",
}
"""The names of types in messages."""


@dataclass(frozen=True)
class SourceSpec:
    """One stream: a Spark source, its event time, and the expressions that compute its columns."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    event_time: str | None = None
    """The column of the event time, also of a time of arrival. None means that the stream has none."""
    delay: str = "0 seconds"
    idle: str | None = None
    """The time without tuples after which the stream does not hold back the watermark. None means never."""
    rate: int | None = None
    """Rows per second of a replayed file."""
    select: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    decode: str | None = None
    """The name of the decoder for the values of Kafka records. None means that the values remain bytes."""
    schema_id: int | None = None
    """The number in the header of Confluent's Avro records. None means that they have no header."""
    dead_letters: str | None = None
    """The folder of records that cannot be decoded. None means that they are dropped."""
    changes: Mapping[str, Any] | None = None
    """The arguments of ``th.changes``, if rows may be updated and deleted."""
    by_arrival: Mapping[str, str] | None = None
    """The arguments of ``th.by_arrival``, if the event time is the time of arrival."""
    reader: str = SPARK
    """Who reads the files: one of ``READERS``."""


@dataclass(frozen=True)
class SinkSpec:
    """The Spark sink to which results are written."""

    format: str = "console"
    path: str | None = None
    mode: str = "append"
    options: dict[str, Any] = field(default_factory=dict)
    kept: SinkStore | None = None
    """The store that keeps the results. Then there is no format, and the only mode is ``append``."""

    @property
    def is_file_sink(self) -> bool:
        """Whether Spark's file sink writes the results, whose log has an entry for each epoch."""
        return self.kept is None and self.format in FILE_SINKS and self.format != "delta"


@dataclass(frozen=True)
class Job:
    """The content of a well-formed job file, which Spark has not checked yet."""

    sql: str
    checkpoint: str
    sources: tuple[SourceSpec, ...]
    sink: SinkSpec
    trigger: str | None = None
    name: str | None = None
    """The name of the query in Spark."""
    model: Model | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the joins, with the load shedder and the statistics."""
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The tasks of ``th.join_many``, by name. If there are some, ``sql`` selects from their results, and
    ``model`` and ``options`` are theirs."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """The tables that join with the sources, by name."""
    spark: dict[str, Any] = field(default_factory=dict)
    policy: Policy | None = None
    """The policy that changes the units while the job runs."""
    rechoosing: Rechoosing | None = None
    """When the model is chosen again while the job runs. None means never."""
    ends_when_caught_up: bool = False
    """Whether a run ends when it has read what is there, because the trigger is "available now"."""
    is_finished: bool = False
    """Whether a run reads what is there, decides every row and ends, because no more input comes."""


def find_endless_problems(sources: Iterable[SourceSpec], asked: str) -> Iterator[QueryError]:
    """Yield an error if a source never ends; ``asked`` is what needs sources that end."""
    endless = [source.name for source in sources if source.format == REPLAY]
    if endless:
        what = f"{asked} needs sources that end, and a replay never ends ({', '.join(endless)})"
        yield QueryError("ENDLESS_SOURCE", f"{what}; use --for")


def is_local(path: str) -> bool:
    """Whether a path is a path on this machine and not a URL."""
    return re.match(r"[a-z][a-z0-9+.-]+:", path) is None


def parse_sink(table: object, folder: Path, where: str, problems: list[ThetastreamError]) -> SinkSpec:
    """Read a sink, and add its errors to ``problems``; ``where`` names the sink in them."""
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, not {table!r}"))
        return SinkSpec()
    if STORE in table:
        return _parse_store(table, folder, where, problems)
    check_keys(table, SINK_KEYS, where, problems)
    format_, mode = table.get("format", "console"), table.get("mode", "append")
    if isinstance(format_, str) and format_ not in SINKS:
        problems.append(
            QueryError("BAD_VALUE", f"format of {where} ({format_!r}) must be one of {', '.join(SINKS)}")
        )
    if isinstance(mode, str) and mode not in MODES:
        problems.append(
            QueryError("BAD_VALUE", f"mode of {where} ({mode!r}) must be one of {', '.join(MODES)}")
        )
    if format_ in FILE_SINKS and "path" not in table:
        problems.append(QueryError("MISSING_KEY", f"{where} writes {format_} files and must have 'path'"))
    check_scalars(get_table(table, "options"), f"the options of {where}", problems)
    path = table.get("path")
    return SinkSpec(
        str(format_),
        resolve(path, folder) if isinstance(path, str) else None,
        str(mode),
        dict(get_table(table, "options")),
    )


def _parse_store(
    table: Mapping[str, Any], folder: Path, where: str, problems: list[ThetastreamError]
) -> SinkSpec:
    """Read a sink that is a store. A parameter ``path`` is relative to the folder of the job file."""
    for key in ("format", "options"):
        if key in table:
            what = f"{where} is a store and has no {key!r}; its parameters stand beside 'store'"
            problems.append(QueryError("UNKNOWN_KEY", what))
    mode = table.get("mode", "append")
    parameters = {key: value for key, value in table.items() if key not in ("format", "options", "mode")}
    if isinstance(table.get("path"), str):
        parameters["path"] = resolve(table["path"], folder)
    try:
        return SinkSpec("", mode=str(mode), kept=read_sink_store(parameters, where))
    except ThetastreamError as error:
        problems += list_problems(error)
        return SinkSpec()


def parse_place(name: str, folder: Path, problems: list[ThetastreamError]) -> SinkSpec | None:
    """Read a folder of files or a store that INSERT INTO names itself; None if it names neither.

    >>> parse_place("parquet.`out/pairs`", Path("/jobs"), []).path
    '/jobs/out/pairs'
    >>> parse_place("store.`delta:out/pairs`", Path("/jobs"), []).kept.store
    DeltaStore(path='/jobs/out/pairs')
    """
    kind, place = split_place(name) or ("", "")
    if not kind:
        return None
    if kind != STORE:
        return SinkSpec(kind, resolve(place, folder))
    try:
        return SinkSpec("", kept=SinkStore(read_store(place, lambda path: resolve(path, folder))))
    except ThetastreamError as error:
        problems += list_problems(error)
        return SinkSpec()


def parse_model(table: Mapping[str, Any], problems: list[ThetastreamError]) -> Model | None:
    """Read the model, and add its errors to ``problems``; return None without a model."""
    if not table:
        return None
    name = table.get("name", "biclique")
    if not isinstance(name, str) or name not in REGISTRY:
        problems.append(
            QueryError("BAD_VALUE", f"the name of the model ({name!r}) must be one of {', '.join(REGISTRY)}")
        )
        return None
    settings = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
        if key != "name"
    }
    model: Model | None = _build(REGISTRY[name], settings, f"the model {name}", (), problems)
    return model


def read_option_tables(
    found: Mapping[str, Any], folder: Path, get_problems: Callable[[str], list[ThetastreamError]]
) -> dict[str, Any]:
    """Read [options], and [shed] and [statistics], which are options with tables of their own.

    Paths are relative to ``folder``.
    """
    problems, has_tasks = get_problems("options"), bool(get_table(found, "tasks"))
    known = list_options(TaskOptions if has_tasks else StatementOptions)
    texts = {name: option for name, option in known.items() if option.is_text}
    given = dict(get_table(found, "options"))
    for name in sorted(given.keys() & (list_options(Options).keys() - texts.keys())):
        what = f"{name!r} cannot be one of the options, because {_say_where(name, has_tasks)}"
        problems.append(QueryError("UNKNOWN_KEY", what))
        del given[name]
    check_keys(given, dict.fromkeys(texts, object), "the options", problems)
    for name in given.keys() & texts.keys():
        try:
            texts[name].read(given[name], name)
        except ThetastreamError as problem:
            problems.append(problem)
        else:
            if texts[name].is_path:
                given[name] = resolve(given[name], folder)
    for name, kind, needed in (("shed", Shed, ("threshold", "capacity")), ("statistics", Statistics, ())):
        table = get_table(found, name)
        value = _build(kind, table, f"[{name}]", needed, get_problems(name)) if table else None
        if value is not None:
            given[name] = value
    return given


def _say_where(name: str, has_tasks: bool) -> str:
    """Say why the options of a job do not have an option of other joins."""
    if name in ("shed", "statistics"):
        return f"it is the table [{name}] of a job"
    if has_tasks:
        return "joins that share an exchange do not have it"
    return "it is for a job with [tasks]" if name == "max_tasks" else "sql selects the columns of results"


def parse_policy(
    table: Mapping[str, Any],
    options: Mapping[str, Any],
    model: Model | None,
    problems: list[ThetastreamError],
) -> Policy | None:
    """Read [policy], and add its errors to ``problems``; return None without a policy.

    ``model`` is the one that the job names.
    """
    if not table:
        return None
    name = str(table.get("name", TwoPhaseScaling.name))
    try:
        kind = find_policy(name)
    except ThetastreamError as problem:
        problems.append(problem)
        return None
    settings = {key: value for key, value in table.items() if key != "name"}
    policy: Policy | None = _build(kind, settings, "[policy]", (), problems)
    if policy is not None and options.get("max_units") is None:
        what = "[policy] changes the units of the join, so [options] must have max_units"
        problems.append(QueryError("POLICY", what))
    obstacle = None if model is None else find_model_obstacle(name, model)
    if obstacle is not None:
        problems.append(QueryError("POLICY", f"{obstacle}; leave [policy] out, or name the model biclique"))
    return policy


def parse_rechoosing(
    found: Mapping[str, Any], options: Mapping[str, Any], problems: list[ThetastreamError]
) -> Rechoosing | None:
    """Read [rechoose], and add its errors to ``problems``; return None without it. It may be empty."""
    if not isinstance(found.get("rechoose"), dict):
        return None
    what = "[rechoose] changes the model of a join"
    if found.get("tasks"):
        problems.append(QueryError("CANNOT_SCALE", f"{what}, and join tasks keep theirs; leave it out"))
    elif options.get("max_units") is None:
        problems.append(QueryError("CANNOT_SCALE", f"{what}, so [options] must have max_units"))
    rechoosing: Rechoosing | None = _build(Rechoosing, found["rechoose"], "[rechoose]", (), problems)
    return rechoosing


def _build(
    kind: Callable[..., Any],
    table: Mapping[str, Any],
    where: str,
    needed: Sequence[str],
    problems: list[ThetastreamError],
) -> Any:
    """Build a value from a table with its parameters; return None if the table has errors."""
    before = len(problems)
    check_keys(table, dict.fromkeys(signature(kind).parameters, object), where, problems)
    problems += [
        QueryError("MISSING_KEY", f"{where} must have {key!r}") for key in needed if key not in table
    ]
    if len(problems) > before:
        return None
    try:
        return kind(**table)
    except ThetastreamError as problem:
        problems.append(problem)
        return None


def check_scalars(table: Mapping[str, Any], where: str, problems: list[ThetastreamError]) -> None:
    """Add an error for each key of a table whose value is a table or a list.

    The value may be a password, so no error shows it.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            what = f"{key!r} of {where} must be one value, not a table; put a key with dots in quotes"
            problems.append(QueryError("BAD_VALUE", f'{what}: "{".".join([key, *_find_path(value)])}"'))
        elif isinstance(value, list):
            problems.append(QueryError("BAD_VALUE", f"{key!r} of {where} must be one value, not a list"))


def _find_path(table: Mapping[str, Any]) -> Iterator[str]:
    """Find the first keys of a table in a table, which TOML makes of a key with dots.

    >>> list(_find_path({"hadoop": {"fs": {"key": 1}}}))
    ['hadoop', 'fs', 'key']
    """
    for key, value in islice(table.items(), 1):
        yield key
        if isinstance(value, Mapping):
            yield from _find_path(value)


def check_keys(
    table: Mapping[str, Any], allowed: Mapping[str, Any], where: str, problems: list[ThetastreamError]
) -> None:
    """Add an error for each key of a table that is not allowed, or whose value has a wrong type.

    ``allowed`` has the type of each key. The type ``object`` stands for any value.
    """
    for key, value in table.items():
        if key not in allowed:
            what = f"{where} has no {key!r}" + suggest_or_list(key, allowed)
            problems.append(QueryError("UNKNOWN_KEY", what))
        elif allowed[key] is object:
            continue
        elif not isinstance(value, allowed[key]) or isinstance(value, bool) is not (allowed[key] is bool):
            # Options have passwords, and so has a text or a list in their place.
            is_shown = allowed[key] is not dict or not isinstance(value, str | list)
            given = f", not {value!r}" if is_shown else ""
            what = f"{key!r} of {where} must be {_KINDS[allowed[key]]}{given}"
            problems.append(QueryError("BAD_VALUE", what))


def get_table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the table under a key; it is empty if there is none."""
    value = found.get(key, {})
    return value if isinstance(value, dict) else {}


def resolve(path: object, folder: Path) -> str:
    """Return a path relative to the folder of the job file; a URL remains as it is."""
    text = str(path)
    return text if not is_local(text) or Path(text).is_absolute() else str(folder / text)


def find_span_problems(span: object, what: str, *, may_be_interval: bool = True) -> Iterator[QueryError]:
    """Yield an error if a text is no span of time, or is a negative one. Spark checks a text that begins with
    INTERVAL, if there may be one.

    >>> print(*find_span_problems("10 secnds", "delay"))
    [INVALID_DURATION] delay ('10 secnds') is no span of time; write it as in "10 seconds"
    >>> print(*find_span_problems("60", "trigger"))
    [INVALID_DURATION] trigger ('60') is no span of time; a number has no unit, so write "60 seconds"
    >>> print(*find_span_problems("-5m", "delay"))
    [INVALID_DURATION] delay ('-5m') must not be negative; write it as in "10 seconds"
    >>> list(find_span_problems("5m", "delay")), list(find_span_problems(None, "delay"))
    ([], [])
    """
    if not isinstance(span, str):
        return
    parsed = parse_duration(span)
    if parsed is not None and parsed < timedelta():
        yield make_negative_error(what, span)
    elif parsed is None and not (may_be_interval and span.casefold().lstrip().startswith("interval")):
        yield make_span_error(what, span)


def find_zone_problems(settings: Mapping[str, Any]) -> Iterator[QueryError]:
    """Yield an error if the time zone of the session is none. Spark would say so when the job runs."""
    try:
        refuse_unknown_zone(settings.get(TIME_ZONE))
    except QueryError as problem:
        yield problem


def write_option(value: object) -> str:
    """Write a value as text for an option of Spark, in which booleans are ``true`` and ``false``."""
    return json.dumps(value) if isinstance(value, bool) else str(value)
