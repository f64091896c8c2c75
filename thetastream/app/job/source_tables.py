"""Reads the tables ``[sources.NAME]`` of ``job.toml``, and lists their errors.

format, path, schema, reader, event_time, delay, idle, rate, select, options, decode, schema_id, dead_letters,
changes, by_arrival
"""

import os
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from thetastream.app.job.decoding import DECODERS
from thetastream.app.job.schemas import Columns, find_columns, read_schema
from thetastream.app.job.spec import (
    ARROW,
    READERS,
    REPLAY,
    SPARK,
    SourceSpec,
    check_keys,
    check_scalars,
    find_span_problems,
    get_table,
    is_local,
    resolve,
)
from thetastream.conditions import tokenize
from thetastream.conditions.refused import find_varying
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, ThetastreamError, suggest_or_list
from thetastream.joins.changes import DEBEZIUM
from thetastream.spark.changes import OF_COMMITS
from thetastream.spark.event_time import by_arrival
from thetastream.spark.sources.parquet import find_option_problem

FILE_FORMATS = ("parquet", "csv", "json", "orc", "text")
"""The formats of sources that read files."""
_NO_TIMES = {
    *("INT", "INTEGER", "BIGINT", "LONG", "SMALLINT", "TINYINT"),
    *("DOUBLE", "FLOAT", "STRING", "BOOLEAN", "DATE"),
}
"""Types that an event time cannot have, as job files write them."""
KEYS = {
    "format": str,
    "path": str,
    "schema": str,
    "reader": str,
    "event_time": str,
    "delay": str,
    "idle": str,
    "rate": int,
    "select": list,
    "options": dict,
    "decode": str,
    "schema_id": int,
    "dead_letters": str,
    "changes": dict,
    "by_arrival": dict,
}
"""The keys of a source, and the types of their values."""
CHANGES_KEYS = {
    "format": str,
    "sign": str,
    "key": object,
    "sequence": str,
    "deleted": str,
    "row": str,
    "value": str,
    "late": str,
    "strict": bool,
}
"""The keys of ``changes``, which are the arguments of ``th.changes``."""
BY_ARRIVAL_KEYS = {"column": str, "slack": str}
"""The keys of ``by_arrival``, which are the arguments of ``th.by_arrival``."""
ARRIVAL_COLUMN = str(signature(by_arrival).parameters["column"].default)
"""The column of the time of arrival, if ``by_arrival`` names none."""


def parse_source(
    name: str, table: object, folder: Path, problems: list[ThetastreamError]
) -> SourceSpec | None:
    """Read a source, and add its errors to ``problems``; return None if values have wrong types."""
    where = f"source {name!r}"
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, [sources.{name}]"))
        return None
    before = len(problems)
    check_keys(table, KEYS, where, problems)
    problems += _find_format_problems(table, where)
    problems += _find_reader_problems(table, where)
    problems += _find_decoding_problems(table, where)
    problems += _find_delay_problems(table, where)
    check_keys(get_table(table, "changes"), CHANGES_KEYS, f"changes of {where}", problems)
    problems += _find_arrival_problems(table, where)
    problems += _find_varying_columns(table, where)
    check_scalars(get_table(table, "options"), f"the options of {where}", problems)
    format_ = table.get("format")
    if format_ is None or any(problem.condition == "BAD_VALUE" for problem in problems[before:]):
        return None
    path = resolve(table["path"], folder) if "path" in table else None
    if path is not None and format_ in (*FILE_FORMATS, REPLAY) and _is_missing(path):
        problems.append(QueryError("NO_SUCH_PATH", f"the path of {where} ({path}) does not exist"))
    arrival = table.get("by_arrival")
    return SourceSpec(
        name,
        str(format_),
        path,
        table.get("schema"),
        table.get("event_time") if arrival is None else arrival.get("column", ARRIVAL_COLUMN),
        table.get("delay", "0 seconds"),
        table.get("idle"),
        table.get("rate"),
        tuple(map(str, table.get("select", ()))),
        dict(table.get("options", {})),
        table.get("decode"),
        table.get("schema_id"),
        resolve(table["dead_letters"], folder) if "dead_letters" in table else None,
        dict(table["changes"]) if "changes" in table else None,
        None if arrival is None else dict(arrival),
        reader=table.get("reader", SPARK),
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


def _find_reader_problems(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for an unknown reader, and for what ``th.read_parquet`` does not read."""
    reader = table.get("reader", SPARK)
    if isinstance(reader, str) and reader not in READERS:
        yield QueryError("BAD_VALUE", f"reader of {where} ({reader!r}) must be one of {', '.join(READERS)}")
    if reader != ARROW:
        return
    what = f'{where} has reader = "{ARROW}"'
    if table.get("format") != "parquet":
        yield QueryError("UNKNOWN_KEY", f'{what}, which belongs to format = "parquet"')
        return
    for problem in filter(None, map(find_option_problem, get_table(table, "options"))):
        yield QueryError("BAD_VALUE", f"{what}, and {problem}")


def _find_delay_problems(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for a delay or an idle time that has no event time, or is not a span of time."""
    for key in ("delay", "idle"):
        if key in table and "event_time" not in table:
            yield QueryError("MISSING_KEY", f"{where} has {key!r} and must have 'event_time'")
        yield from find_span_problems(table.get(key), f"the {key} of {where}")


def _find_arrival_problems(table: Mapping[str, Any], where: str) -> Iterator[ThetastreamError]:
    """Yield an error for each wrong argument of ``by_arrival``, and for each key that it does not allow."""
    arguments = get_table(table, "by_arrival")
    problems: list[ThetastreamError] = []
    check_keys(arguments, BY_ARRIVAL_KEYS, f"by_arrival of {where}", problems)
    yield from problems
    yield from find_span_problems(arguments.get("slack"), f"the slack of {where}")
    if "by_arrival" not in table:
        return
    taken = [key for key in ("event_time", "delay", "idle", "changes") if key in table]
    if taken or table.get("format") == REPLAY:
        what = f"{where} has by_arrival, which makes the event time of each row when the row arrives"
        other = f'format = "{REPLAY}", which needs one before' if not taken else " and ".join(taken)
        yield QueryError("EVENT_TIME", f"{what}, and {other}; leave one of them out")


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


def find_source_columns(source: SourceSpec) -> Columns | None:
    """Find the columns of a source; None if only Spark knows them."""
    changes = source.changes
    if changes is not None and changes.get("format") == DEBEZIUM and not source.select:
        return read_schema(changes["row"]) if "row" in changes else None
    read = None if source.decode is None else DECODERS[source.decode].read_columns
    columns = find_columns(source.format, source.schema, source.select, source.path, source.options, read)
    if columns is not None and source.by_arrival is not None:
        return {**columns, str(source.event_time): "TIMESTAMP"}
    if columns is None or changes is None:
        return columns
    dropped = (CHANGE_TYPE, *OF_COMMITS, changes.get("sign"))
    return {name: type_ for name, type_ in columns.items() if name not in dropped}


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


def _find_varying_columns(table: Mapping[str, Any], where: str) -> Iterator[QueryError]:
    """Yield an error for each selected column of changes that may differ between an insert and its delete.

    Rows of other formats are no changes yet when columns are selected.
    """
    changes, select = table.get("changes"), table.get("select")
    has_changes = isinstance(changes, dict) and changes.get("format") in (None, DEBEZIUM)
    if not has_changes or not isinstance(select, list):
        return
    for text in select:
        for token, condition in find_varying(tokenize(str(text))):
            what = f"rows of {where} may be deleted, and {token.text!r} in select may have another value"
            yield QueryError(condition, f"{what} for the same row; leave {text!r} out")


def _is_missing(path: str) -> bool:
    return is_local(path) and not set(path) & set("*?[{") and not os.path.exists(path)
