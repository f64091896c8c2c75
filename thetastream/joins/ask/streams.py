"""Reads the streams of a join: their aliases, their kind (stream or batch) and their event-time columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from thetastream.core.arguments import describe_given
from thetastream.core.columns import MARK
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.families.windows import spell_cast
from thetastream.joins.ask.arrow_tables import read_tables
from thetastream.joins.ask.carriers import INSTANTS
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.lowering.query import ORIGIN_LATE, Stream
from thetastream.spark.arguments import is_frame, is_pandas_frame
from thetastream.spark.changes import find_change_type, keep_row_columns, read_rules
from thetastream.spark.event_time import count_watermarks, list_dropping, list_marked
from thetastream.spark.pipelines import refuse_query_function
from thetastream.spark.row_versions import find_version_rule
from thetastream.spark.sources.idle import MARK as IDLE_MARK
from thetastream.spark.tables.declared import add_end
from thetastream.spark.varying_columns import refuse_varying_columns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from thetastream.spark.tables.table import Table

    Input: TypeAlias = DataFrame | pd.DataFrame | pa.Table | Table
    """An input of a join: a streaming or batch DataFrame, a table of pandas or Arrow, or a ``th.Table``."""

_VARIABLE = re.compile(r"\$\{\S+?\}")
LATE_RESULTS = "thetastream.late_results"
"""The metadata key of a result time that the watermark may have passed. It must not be marked."""


def read_frames(streams: Any) -> dict[str, DataFrame]:
    """Read the inputs of a join as DataFrames by alias. Tables of pandas and Arrow become batch DataFrames.

    A ``th.Table`` with ``valid_from`` has a column with the end of validity too.

    Raises
    ------
    QueryError
        Unless there are two or more DataFrames with valid aliases, or if a table cannot be read.
    """
    if not isinstance(streams, Mapping) or not streams:
        raise QueryError(
            "STREAMS",
            f'streams must map aliases to DataFrames, {{"a": df1, "b": df2}}, not {describe_given(streams)}',
        )
    for alias, frame in streams.items():
        if is_pandas_frame(frame):
            raise QueryError(
                "STREAMS", f"stream {alias!r} is a frame of pandas-on-Spark; give {alias}.to_spark()"
            )
    streams = read_tables(streams)
    problems: list[ThetastreamError] = []
    if len(streams) < 2:
        problems.append(
            QueryError(
                "STREAM_COUNT",
                f"a join takes two streams or more, not one ({', '.join(map(str, streams))}); "
                "for a self-join give the stream twice, under two aliases",
            )
        )
    for alias, frame in streams.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            problems.append(
                QueryError(
                    "INVALID_ALIAS",
                    f"an alias must be a name of letters, digits and underscores, not {alias!r}",
                )
            )
        if not is_frame(frame):
            problems.append(
                QueryError(
                    "STREAMS",
                    f"stream {alias!r} must be a DataFrame of Spark or pandas or an Arrow table, "
                    f"not {type(frame).__name__}",
                )
            )
        else:
            problems += _find_analysis_problems(alias, frame)
    raise_problems(problems)
    if len({alias.casefold() for alias in streams}) < len(streams):
        raise QueryError(
            "DUPLICATE_ALIAS", f"aliases ignore case, so two of {', '.join(streams)} are the same"
        )
    return {alias: add_end(frame, alias) for alias, frame in streams.items()}


def refuse_tables(streams: Mapping[str, DataFrame]) -> None:
    """Raise unless all inputs are streams or all are batch DataFrames."""
    kinds = {alias: "streaming" if frame.isStreaming else "batch" for alias, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{alias} is {kind}" for alias, kind in kinds.items())
        raise QueryError(
            "MIXED_INPUTS",
            f"all inputs of join tasks must be streaming or all batch, but {listed}; use th.join for a table",
        )


def _find_analysis_problems(alias: str, frame: DataFrame) -> list[ThetastreamError]:
    """Return an error if the watermark of a stream of Spark Connect is on a column that cannot have one.

    Spark Connect analyses a DataFrame when it is first asked. A classic session refuses the watermark itself.
    """
    try:
        _ = frame.schema
    except AnalysisException as error:
        refuse_query_function(error)
        if not (error.getCondition() or "").startswith("EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"):
            raise
        column = (error.getMessageParameters() or {}).get("eventName", "ts").strip("`")
        found = (error.getMessageParameters() or {}).get("eventType", "another type").strip('"')
        return [
            QueryError(
                "EVENT_TIME_TYPE",
                f"the event time of stream {alias!r} must be TIMESTAMP, because Spark has watermarks on no "
                f"other type, and {column!r} is {found}; {spell_cast(alias, column)}",
            )
        ]
    return []


@dataclass(frozen=True)
class StreamInput:
    """A DataFrame of the user as an input."""

    frame: DataFrame

    @property
    def schema(self) -> StructType:
        """The schema of the stream."""
        return self.frame.schema

    def dataframe(self) -> DataFrame:
        """The stream itself."""
        return self.frame

    def list_dropping(self) -> list[str]:
        """List the operators of the stream that drop late rows."""
        return list_dropping(self.frame) if self.frame.isStreaming else []

    def count_watermarks(self) -> int:
        """Count the watermarks of the stream. A union of two streams has two."""
        return count_watermarks(self.frame) if self.frame.isStreaming else 0


class ReadStreams(NamedTuple):
    """The streams of a join, their resolver, and those of their problems that do not stop the reading."""

    catalyst: Catalyst
    schemas: dict[str, StructType]
    streams: tuple[Stream, ...]
    problems: list[ThetastreamError]


def list_tables(frames: Mapping[str, DataFrame]) -> list[str]:
    """List the inputs that are no streams. This asks Spark once for each input."""
    return [alias for alias, frame in frames.items() if not frame.isStreaming]


def read_streams(
    streams: Mapping[str, DataFrame],
    tables: Collection[str],
    needs_time: bool,
    event_time: str | Mapping[str, str] | None,
    columns: Mapping[str, Collection[str] | None],
) -> ReadStreams:
    """Read every stream: its columns and their types, its event time, and how its columns are sent.

    ``tables`` are the inputs that ``list_tables`` lists. ``columns`` gives, by alias and in lower case, the
    columns that are sent to the units. Columns that may be the event time are sent too. All columns of an
    alias without an entry are sent.
    """
    spark = next(iter(streams.values())).sparkSession
    changes, versions, schemas = {}, {}, {}
    for alias, frame in streams.items():
        changes[alias] = find_change_type(f"stream {alias!r}", frame)
        if changes[alias] is not None:
            refuse_varying_columns(frame, alias)
        versions[alias] = find_version_rule(f"stream {alias!r}", frame)
        schemas[alias] = keep_row_columns(frame.schema)
    catalyst = Catalyst(spark, schemas)
    ignores_case = not catalyst.is_case_sensitive
    raise_problems(
        [one for alias, schema in schemas.items() for one in _find_duplicates(alias, schema, ignores_case)]
    )
    if spark.conf.get("spark.sql.variable.substitute", "true") != "false":
        raise_problems([one for alias, schema in schemas.items() for one in _find_variables(alias, schema)])
    problems: list[ThetastreamError] = []
    inputs: list[Stream] = []
    for alias, frame in streams.items():
        schema = schemas[alias]
        types = tuple((field.name, field.dataType.simpleString()) for field in schema.fields)
        stream = Stream(
            alias,
            types,
            is_streaming=alias not in tables,
            change_type=changes[alias],
            versions=versions[alias],
        )
        if changes[alias] is not None:
            stream = replace(stream, rules=read_rules(frame.schema))
        taken = sum(len(known.carried) for known in inputs)
        carried, unsupported = catalyst.carry(stream, columns.get(alias), taken)
        stream = replace(stream, carried=carried)
        asked = event_time.get(alias) if isinstance(event_time, Mapping) else event_time
        stream, found = _read_event_time(stream, schema, asked, needs_time, catalyst.is_case_sensitive)
        inputs.append(stream)
        problems += [*unsupported, *found]
    return ReadStreams(catalyst, schemas, tuple(inputs), problems)


def find_time_column(frame: DataFrame, asked: str | None) -> str | None:
    """Find the event time of a DataFrame: the column of its watermark, the one that is asked for, or its only
    timestamp if it is a batch; None if there is none."""
    marked = list_marked(frame.schema, MARK)
    if marked or frame.isStreaming:
        return marked[0] if len(marked) == 1 else None
    if asked is not None:
        return next((name for name in frame.columns if name.casefold() == asked.casefold()), None)
    stamps = [field.name for field in frame.schema.fields if field.dataType.simpleString() in INSTANTS]
    return stamps[0] if len(stamps) == 1 else None


def _find_duplicates(alias: str, schema: StructType, ignores_case: bool) -> list[QueryError]:
    """Return an error for each column name that occurs twice."""
    seen: dict[str, str] = {}
    problems = []
    for name in schema.names:
        folded = name.casefold() if ignores_case else name
        if folded in seen:
            problems.append(
                QueryError(
                    "DUPLICATE_COLUMN",
                    f"stream {alias!r} has the column {name!r} twice: the name is ambiguous; rename one",
                )
            )
        seen[folded] = name
    return problems


def _find_variables(alias: str, schema: StructType) -> list[QueryError]:
    """Return an error for each column in whose name Spark would put the value of a variable.

    Spark does so in all SQL text, also between backticks. The name ``${env:TOKEN}`` would show the variable
    ``TOKEN`` of the driver's environment in errors and results.
    """
    return [
        QueryError(
            "COLUMN_VARIABLE",
            f"stream {alias!r} has the column {name!r}: Spark would put the value of a variable in its place "
            "in SQL text; rename it, or set spark.sql.variable.substitute to false",
        )
        for name in schema.names
        if _VARIABLE.search(name)
    ]


def _read_event_time(
    stream: Stream, schema: StructType, wanted: str | None, needs_time: bool, is_case_sensitive: bool
) -> tuple[Stream, list[QueryError]]:
    """Find the event-time column, and list what is wrong with it. Returns the stream with it, if it has one.

    ``wanted`` is the column that the user names.
    """
    problems = []
    marked = list_marked(schema, MARK)
    if len(marked) > 1:
        # A column that Spark's window() returned has the mark of the time that it was made from.
        instants = [name for name in marked if stream.type_of(name) in INSTANTS]
        named = None if wanted is None else stream.find(wanted, is_case_sensitive)
        marked = [named] if named in marked else instants or marked[:1]
    column, origin = (marked[0], "watermark") if marked else (None, "watermark")
    if len(marked) > 1:
        problems.append(
            QueryError(
                "AMBIGUOUS_EVENT_TIME",
                f"stream {stream.alias!r} has a watermark on {' and '.join(marked)}; drop one, or name the "
                f'event time: event_time={{"{stream.alias}": "{marked[0]}"}}',
            )
        )
    if wanted is not None and not (stream.is_streaming and marked):
        column, origin = stream.find(wanted, is_case_sensitive), "event_time="
        if column is None or stream.is_streaming:
            problems.append(_make_event_time_error(stream, wanted, column))
    elif wanted is not None and stream.find(wanted, is_case_sensitive) != column:
        problems.append(_make_event_time_error(stream, wanted, column))
    if column is None and not stream.is_streaming:
        # Spark drops the mark of withWatermark from batch DataFrames. One timestamp column is unambiguous.
        stamps = [name for name, type_ in stream.types if type_ in INSTANTS]
        if len(stamps) == 1:
            column, origin = stamps[0], "only timestamp"
    if column is not None and not needs_time and stream.type_of(column) not in INSTANTS:
        # The mark is on a struct that Spark's window() returned. It is not an instant, and none is needed.
        column = None
    if column is None and list_marked(schema, LATE_RESULTS):
        origin = ORIGIN_LATE
    delay_ms = (schema[column].metadata or {}).get(MARK) if column is not None else None
    delay_us = None if delay_ms is None else int(delay_ms) * 1000
    mark = None if column is None else read_mark(schema[column])
    stream = replace(
        stream,
        event_time=column,
        event_time_origin=origin,
        watermark_delay_us=delay_us,
        idle_mark=mark,
    )
    return stream, problems


def _make_event_time_error(stream: Stream, wanted: str, column: str | None) -> QueryError:
    if not stream.is_streaming:
        return QueryError(
            "UNKNOWN_COLUMN",
            f"event_time names {wanted!r}, but stream {stream.alias!r} has the columns "
            + ", ".join(name for name, _ in stream.types),
        )
    return QueryError(
        "EVENT_TIME",
        f"event_time names {wanted!r}, but the event time of a stream is the column of its watermark "
        f'({column or "it has none"}); call .withWatermark("{wanted}", "delay") on {stream.alias}',
    )


def read_mark(field: StructField) -> tuple[str, str] | None:
    """Read folder and name from the mark of an event-time column; None if its stream has no ``idle=``."""
    found = (field.metadata or {}).get(IDLE_MARK)
    return None if found is None else (found[0], found[1])
