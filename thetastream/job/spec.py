"""Parses ``job.toml``, and lists all errors of the file at once.

sql = "SELECT ONLINE ..."     checkpoint = "folder"     trigger = "1 second"
[sources.NAME]  format, path, schema, event_time, delay, rate, select, options
[sink]          format, path, mode, options
[model]         name, and the parameters of the model
[spark]         session settings
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.models import REGISTRY, Model
from thetastream.plan.fold_planner import is_surely_grouped
from thetastream.sql.grammar import parse_statement
from thetastream.sql.statement import Statement

FILE_FORMATS = ("parquet", "csv", "json", "orc", "text")
REPLAY = "replay"
"""Format of a source that streams a file in the order of its event time, at a given rate."""
SINKS = ("console", "parquet", "csv", "json", "orc", "delta", "noop", "kafka")
MODES = ("append", "update", "complete")
_FOLDER_SINKS = ("parquet", "csv", "json", "orc", "delta")

_JOB = {
    "sql": str,
    "checkpoint": str,
    "trigger": str,
    "sources": dict,
    "sink": dict,
    "model": dict,
    "spark": dict,
}
_SOURCE = {
    "format": str,
    "path": str,
    "schema": str,
    "event_time": str,
    "delay": str,
    "rate": int,
    "select": list,
    "options": dict,
}
_SINK = {"format": str, "path": str, "mode": str, "options": dict}
_KINDS = {
    str: "a string",
    dict: "a table",
    list: "a list",
    int: "an integer",
}


@dataclass(frozen=True)
class SourceSpec:
    """One stream: a Spark source, its event time, and the expressions that compute its columns."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    event_time: str | None = None
    delay: str = "0 seconds"
    rate: int | None = None
    """Rows per second of a replayed file."""
    select: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkSpec:
    """The Spark sink to which results are written."""

    format: str = "console"
    path: str | None = None
    mode: str = "append"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The content of a well-formed job file, which Spark has not checked yet."""

    sql: str
    checkpoint: str
    sources: tuple[SourceSpec, ...]
    sink: SinkSpec
    trigger: str | None = None
    model: Model | None = None
    spark: dict[str, Any] = field(default_factory=dict)


def read_job(path: Path) -> Job:
    """Read the job of a TOML file; relative paths in it are relative to the folder of the file.

    Raises
    ------
    QueryError
        JOB_FILE if the file cannot be read as TOML; otherwise all errors of the job at once.
    """
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise QueryError("JOB_FILE", f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise QueryError("JOB_FILE", f"{path} is not TOML: {error}") from None
    return parse_job(found, path.parent.absolute())


def parse_job(found: Mapping[str, Any], folder: Path) -> Job:
    """Make the job that a parsed TOML document describes.

    >>> job = parse_job({
    ...     "sql": "SELECT ONLINE * FROM a, b WHERE a.value > b.value WITHIN 5 seconds",
    ...     "checkpoint": "state",
    ...     "sources": {"a": {"format": "rate"}, "b": {"format": "rate"}},
    ... }, Path("/jobs"))
    >>> job.checkpoint, job.sink.format, [source.name for source in job.sources]
    ('/jobs/state', 'console', ['a', 'b'])
    """
    problems: list[ThetastreamError] = []
    _check_keys(found, _JOB, "the job", problems)
    for key in ("sql", "checkpoint", "sources"):
        if key not in found:
            problems.append(QueryError("MISSING_KEY", f"the job must have {key!r}"))
    sources = [
        _parse_source(name, table, folder, problems) for name, table in _get_table(found, "sources").items()
    ]
    sink = _parse_sink(_get_table(found, "sink"), folder, problems)
    _check_scalars(_get_table(found, "spark"), "spark", problems)
    model = _parse_model(_get_table(found, "model"), problems)
    text = found.get("sql")
    if isinstance(text, str):
        try:
            statement = parse_statement(text)
        except QueryError as problem:
            problems.append(problem)
        else:
            problems += _check_mode(statement, sink)
            if statement.is_explain:
                problems.append(
                    QueryError(
                        "EXPLAIN",
                        "a job runs a statement; EXPLAIN is a command of its own",
                    )
                )
            names = {name.casefold() for name in _get_table(found, "sources")}
            problems += [
                QueryError(
                    "UNKNOWN_SOURCE",
                    f"FROM names {source.name!r}, which is none of the sources ({', '.join(names)})",
                )
                for source in statement.sources
                if names and source.name.strip("`").casefold() not in names
            ]
    raise_problems(problems)
    return Job(
        sql=found["sql"],
        checkpoint=_resolve(found["checkpoint"], folder),
        sources=tuple(source for source in sources if source is not None),
        sink=sink,
        trigger=found.get("trigger"),
        model=model,
        spark=dict(_get_table(found, "spark")),
    )


def _parse_source(
    name: str, table: object, folder: Path, problems: list[ThetastreamError]
) -> SourceSpec | None:
    where = f"source {name!r}"
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, [sources.{name}]"))
        return None
    before = len(problems)
    _check_keys(table, _SOURCE, where, problems)
    format_ = table.get("format")
    if format_ is None:
        problems.append(
            QueryError(
                "MISSING_KEY",
                f"{where} must have 'format': {', '.join(FILE_FORMATS)}, {REPLAY}, rate, socket, kafka, ...",
            )
        )
    if format_ == REPLAY:
        problems += [
            QueryError("MISSING_KEY", f"{where} replays a file and must have {key!r}")
            for key in ("path", "event_time", "rate")
            if key not in table
        ]
        if isinstance(table.get("rate"), int) and table["rate"] < 1:
            problems.append(
                QueryError("BAD_VALUE", f"the rate of {where} must be at least 1, not {table['rate']}")
            )
    elif "rate" in table:
        problems.append(
            QueryError("UNKNOWN_KEY", f'{where} has a rate, which belongs to format = "{REPLAY}"')
        )
    if format_ in FILE_FORMATS:
        for key in ("path", "schema"):
            if key not in table and not (key == "schema" and format_ == "text"):
                problems.append(
                    QueryError("MISSING_KEY", f"{where} reads {format_} files and must have {key!r}")
                )
    if "delay" in table and "event_time" not in table:
        problems.append(
            QueryError("MISSING_KEY", f"{where} has a delay, but no event_time that it is the delay of")
        )
    _check_scalars(_get_table(table, "options"), f"the options of {where}", problems)
    if len(problems) > before:
        return None
    path = _resolve(table["path"], folder) if "path" in table else None
    if path is not None and format_ in (*FILE_FORMATS, REPLAY) and _is_missing(path):
        problems.append(QueryError("NO_SUCH_PATH", f"{where} reads {path}, which does not exist"))
    return SourceSpec(
        name,
        str(format_),
        path,
        table.get("schema"),
        table.get("event_time"),
        table.get("delay", "0 seconds"),
        table.get("rate"),
        tuple(map(str, table.get("select", ()))),
        dict(table.get("options", {})),
    )


def _parse_sink(table: Mapping[str, Any], folder: Path, problems: list[ThetastreamError]) -> SinkSpec:
    _check_keys(table, _SINK, "the sink", problems)
    format_, mode = table.get("format", "console"), table.get("mode", "append")
    if format_ not in SINKS:
        problems.append(
            QueryError("BAD_VALUE", f"sink.format ({format_!r}) must be one of {', '.join(SINKS)}")
        )
    if mode not in MODES:
        problems.append(QueryError("BAD_VALUE", f"sink.mode ({mode!r}) must be one of {', '.join(MODES)}"))
    if format_ in _FOLDER_SINKS and "path" not in table:
        problems.append(QueryError("MISSING_KEY", f"a {format_} sink must have 'path'"))
    _check_scalars(_get_table(table, "options"), "the sink's options", problems)
    path = table.get("path")
    return SinkSpec(
        str(format_),
        _resolve(path, folder) if isinstance(path, str) else None,
        str(mode),
        dict(_get_table(table, "options")),
    )


def _parse_model(table: Mapping[str, Any], problems: list[ThetastreamError]) -> Model | None:
    if not table:
        return None
    name = table.get("name", "biclique")
    if not isinstance(name, str) or name not in REGISTRY:
        problems.append(
            QueryError("BAD_VALUE", f"model.name ({name!r}) must be one of {', '.join(REGISTRY)}")
        )
        return None
    settings = {key: value for key, value in table.items() if key != "name"}
    allowed = dict.fromkeys(signature(REGISTRY[name]).parameters, object)
    before = len(problems)
    _check_keys(settings, allowed, f"the model {name}", problems)
    if len(problems) > before:
        return None
    try:
        model: Model = REGISTRY[name](
            **{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        )
        return model
    except ThetastreamError as problem:
        problems.append(problem)
        return None


def _check_mode(statement: Statement, sink: SinkSpec) -> list[QueryError]:
    keys = statement.group_by
    if sink.mode != "append" or not is_surely_grouped(statement.items, keys):
        return []
    if keys is not None and any(token.keyword == "WINDOW" for token in keys):
        return []
    by = "" if keys is None else f", not by {keys.text!r}"
    what = 'groups that still change cannot be appended; write mode = "update" or "complete" in [sink], '
    return [QueryError("SINK_MODE", f"{what}or group by window(result_time, ...){by}")]


def _check_scalars(table: Mapping[str, Any], where: str, problems: list[ThetastreamError]) -> None:
    problems += [
        QueryError(
            "BAD_VALUE",
            f'{key!r} of {where} must be one value, not {value!r}; put a key with dots in quotes: "a.b"',
        )
        for key, value in table.items()
        if isinstance(value, dict | list)
    ]


def _check_keys(
    table: Mapping[str, Any], allowed: Mapping[str, Any], where: str, problems: list[ThetastreamError]
) -> None:
    for key, value in table.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(allowed)}"
            problems.append(QueryError("UNKNOWN_KEY", f"{where} has no {key!r}; {hint}"))
        elif not isinstance(value, allowed[key]) or isinstance(value, bool):
            problems.append(
                QueryError("BAD_VALUE", f"{key!r} of {where} must be {_KINDS[allowed[key]]}, not {value!r}")
            )


def _get_table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key, {})
    return value if isinstance(value, dict) else {}


def _is_missing(path: str) -> bool:
    return is_local(path) and not set(path) & set("*?[{") and not Path(path).exists()


def is_local(path: str) -> bool:
    """Whether a path is a path on this machine and not a URL."""
    return re.match(r"[a-z][a-z0-9+.-]+:", path) is None


def _resolve(path: object, folder: Path) -> str:
    text = str(path)
    return text if not is_local(text) or Path(text).is_absolute() else str(folder / text)
