"""Reads the tables of ``job.toml``, and lists the errors of each.

[sources.NAME]  format, path, schema, event_time, delay, idle, rate, select, options, decode, schema_id,
                dead_letters
[sink]          format, path, mode, options
[sinks.NAME]    the same, for sql = "INSERT INTO NAME SELECT ..."
[model]         name, and the parameters of the model
[shed]          the parameters of th.Shed
[spark]         session settings
"""

from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from thetastream.core.shed import Shed
from thetastream.errors import QueryError, ThetastreamError
from thetastream.job.decoders import DECODERS
from thetastream.job.schemas import Columns
from thetastream.job.spans import find_span_problem
from thetastream.job.spec import REPLAY, SinkSpec, SourceSpec, is_local
from thetastream.job.suggestions import suggest_or_list
from thetastream.models import REGISTRY, Model
from thetastream.sql.insert import FILE_SINKS, MODES

FILE_FORMATS = ("parquet", "csv", "json", "orc", "text")
_NO_TIMES = {
    *("INT", "INTEGER", "BIGINT", "LONG", "SMALLINT", "TINYINT"),
    *("DOUBLE", "FLOAT", "STRING", "BOOLEAN", "DATE"),
}
"""Types that an event time cannot have, as job files write them."""
SINKS = ("console", "parquet", "csv", "json", "orc", "delta", "noop", "kafka")

_SOURCE = {
    "format": str,
    "path": str,
    "schema": str,
    "event_time": str,
    "delay": str,
    "idle": str,
    "rate": int,
    "select": list,
    "options": dict,
    "decode": str,
    "schema_id": int,
    "dead_letters": str,
}
_SINK = {"format": str, "path": str, "mode": str, "options": dict}
_KINDS = {
    str: "a string",
    dict: "a table",
    list: "a list",
    int: "an integer",
}


def parse_source(
    name: str, table: object, folder: Path, problems: list[ThetastreamError]
) -> SourceSpec | None:
    """Read a source, and add its errors to ``problems``; return None if values have wrong types."""
    where = f"source {name!r}"
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, [sources.{name}]"))
        return None
    before = len(problems)
    check_keys(table, _SOURCE, where, problems)
    problems += _find_format_problems(table, where)
    problems += _find_decoding_problems(table, where)
    problems += _find_span_problems(table, where)
    check_scalars(get_table(table, "options"), f"the options of {where}", problems)
    format_ = table.get("format")
    if format_ is None or any(problem.condition == "BAD_VALUE" for problem in problems[before:]):
        return None
    path = resolve(table["path"], folder) if "path" in table else None
    if path is not None and format_ in (*FILE_FORMATS, REPLAY) and _is_missing(path):
        problems.append(QueryError("NO_SUCH_PATH", f"the path of {where} ({path}) does not exist"))
    return SourceSpec(
        name,
        str(format_),
        path,
        table.get("schema"),
        table.get("event_time"),
        table.get("delay", "0 seconds"),
        table.get("idle"),
        table.get("rate"),
        tuple(map(str, table.get("select", ()))),
        dict(table.get("options", {})),
        table.get("decode"),
        table.get("schema_id"),
        resolve(table["dead_letters"], folder) if "dead_letters" in table else None,
    )


def _find_format_problems(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for each key that the format of a source needs, and for a key of another format."""
    format_ = table.get("format")
    if format_ is None:
        known = ", ".join(FILE_FORMATS)
        yield QueryError(
            "MISSING_KEY", f"{where} must have 'format': {known}, {REPLAY}, rate, socket, kafka, ..."
        )
    if format_ == REPLAY:
        for key in ("path", "event_time", "rate"):
            if key not in table:
                yield QueryError("MISSING_KEY", f"{where} replays a file and must have {key!r}")
        if isinstance(table.get("rate"), int) and table["rate"] < 1:
            yield QueryError("BAD_VALUE", f"the rate of {where} must be at least 1, not {table['rate']}")
    elif "rate" in table:
        yield QueryError("UNKNOWN_KEY", f'{where} has a rate, which belongs to format = "{REPLAY}"')
    if format_ in FILE_FORMATS:
        for key in ("path", "schema"):
            if key not in table and not (key == "schema" and format_ == "text"):
                yield QueryError("MISSING_KEY", f"{where} reads {format_} files and must have {key!r}")


def _find_span_problems(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for a delay or an idle time that has no event time, or is not a span of time."""
    for key in ("delay", "idle"):
        if key in table and "event_time" not in table:
            yield QueryError("MISSING_KEY", f"{where} has {key!r} and must have 'event_time'")
        span = table.get(key)
        problem = find_span_problem(span, f"the {key} of {where}") if isinstance(span, str) else None
        if problem is not None:
            yield problem


def _find_decoding_problems(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for each key about the decoding of records that is missing or wrong."""
    decode, schema = table.get("decode"), table.get("schema")
    if decode is None:
        for key in ("dead_letters", "schema_id"):
            if key in table:
                yield QueryError("MISSING_KEY", f"{where} has {key} and must have 'decode'")
        if table.get("format") == "kafka" and schema is not None:
            yield QueryError("MISSING_KEY", f"{where} reads records with a schema and must have 'decode'")
        return
    if table.get("format") != "kafka":
        yield QueryError("UNKNOWN_KEY", f'{where} has decode, which belongs to format = "kafka"')
    if schema is None:
        yield QueryError("MISSING_KEY", f"{where} decodes records and must have 'schema'")
    if isinstance(decode, str) and decode not in DECODERS:
        what = f"decode of {where} ({decode!r}) must be one of {', '.join(DECODERS)}"
        yield QueryError("BAD_VALUE", f"{what}; other values are decoded by expressions in select")
    elif isinstance(decode, str) and isinstance(schema, str):
        try:
            DECODERS[decode].read_columns(schema)
        except ValueError as problem:
            yield QueryError("BAD_VALUE", f"the schema of {where} cannot be used: {problem}")
    if "schema_id" in table and decode != "avro":
        yield QueryError("UNKNOWN_KEY", f'{where} has schema_id, which belongs to decode = "avro"')


def find_time_problems(source: SourceSpec, columns: Columns | None) -> Iterator[QueryError]:
    """Yield an error if the event time of a source is not a column, or is a column that has no times."""
    if source.event_time is None or columns is None:
        return
    types = {name.casefold(): type_ for name, type_ in columns.items()}
    type_ = types.get(source.event_time.casefold())
    if type_ is None:
        what = f"event_time of source {source.name!r} names {source.event_time!r}, which is no column"
        yield QueryError("UNKNOWN_COLUMN", what + suggest_or_list(source.event_time, columns))
    elif type_.upper() in _NO_TIMES:
        what = f"event_time of source {source.name!r} ({source.event_time}) must be a TIMESTAMP"
        cast = f"CAST({source.event_time} AS TIMESTAMP) AS {source.event_time}"
        yield QueryError("EVENT_TIME_TYPE", f'{what}, not {type_}; compute one: select = [..., "{cast}"]')


def parse_sink(table: object, folder: Path, where: str, problems: list[ThetastreamError]) -> SinkSpec:
    """Read a sink, and add its errors to ``problems``; ``where`` names the sink in them."""
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, not {table!r}"))
        return SinkSpec()
    check_keys(table, _SINK, where, problems)
    format_, mode = table.get("format", "console"), table.get("mode", "append")
    if format_ not in SINKS:
        problems.append(
            QueryError("BAD_VALUE", f"format of {where} ({format_!r}) must be one of {', '.join(SINKS)}")
        )
    if mode not in MODES:
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
    settings = {key: value for key, value in table.items() if key != "name"}
    allowed = dict.fromkeys(signature(REGISTRY[name]).parameters, object)
    before = len(problems)
    check_keys(settings, allowed, f"the model {name}", problems)
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


def parse_shed(table: Mapping[str, Any], problems: list[ThetastreamError]) -> Shed | None:
    """Read the load shedder, and add its errors to ``problems``; return None without one."""
    if not table:
        return None
    before = len(problems)
    check_keys(table, dict.fromkeys(signature(Shed).parameters, object), "the shedder", problems)
    problems += [
        QueryError("MISSING_KEY", f"the shedder must have {key!r}")
        for key in ("threshold", "capacity")
        if key not in table
    ]
    if len(problems) > before:
        return None
    try:
        return Shed(**table)
    except ThetastreamError as problem:
        problems.append(problem)
        return None


def check_scalars(table: Mapping[str, Any], where: str, problems: list[ThetastreamError]) -> None:
    """Add an error for each key of a table whose value is a table or a list."""
    problems += [
        QueryError(
            "BAD_VALUE",
            f'{key!r} of {where} must be one value, not {value!r}; put a key with dots in quotes: "a.b"',
        )
        for key, value in table.items()
        if isinstance(value, dict | list)
    ]


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
        elif not isinstance(value, allowed[key]) or isinstance(value, bool):
            problems.append(
                QueryError("BAD_VALUE", f"{key!r} of {where} must be {_KINDS[allowed[key]]}, not {value!r}")
            )


def get_table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the table under a key; it is empty if there is none."""
    value = found.get(key, {})
    return value if isinstance(value, dict) else {}


def _is_missing(path: str) -> bool:
    return is_local(path) and not set(path) & set("*?[{") and not Path(path).exists()


def resolve(path: object, folder: Path) -> str:
    """Return a path relative to the folder of the job file; a URL remains as it is."""
    text = str(path)
    return text if not is_local(text) or Path(text).is_absolute() else str(folder / text)
