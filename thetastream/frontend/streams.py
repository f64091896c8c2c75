"""The streams of a join: what they are called, what kind they are, which column is their event time."""

import re
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.plan.query import Stream
from thetastream.spark.carriers import carry
from thetastream.spark.catalyst import Catalyst

MARK = "spark.watermarkDelayMs"


def check_streams(streams: Mapping[str, DataFrame]) -> None:
    """Raise unless these are DataFrames of one kind, two or more, under good names."""
    if not isinstance(streams, Mapping) or not streams:
        raise QueryError(
            "STREAMS", f'streams must map aliases to DataFrames, {{"a": df1, "b": df2}}, not {streams!r}'
        )
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
        if not isinstance(alias, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", alias):
            problems.append(
                QueryError("INVALID_ALIAS", f"an alias must be a plain identifier, not {alias!r}")
            )
        if not hasattr(frame, "sparkSession") or not hasattr(frame, "isStreaming"):
            problems.append(
                QueryError(
                    "STREAMS", f"stream {alias!r} must be a Spark DataFrame, not {type(frame).__name__}"
                )
            )
    raise_problems(problems)
    if len({alias.casefold() for alias in streams}) < len(streams):
        raise QueryError("DUPLICATE_ALIAS", f"aliases ignore case, so two of {', '.join(streams)} are one")
    kinds = {alias: "streaming" if frame.isStreaming else "batch" for alias, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{alias} is {kind}" for alias, kind in kinds.items())
        raise QueryError(
            "MIXED_INPUTS",
            f"all inputs must be streaming or all batch, but {listed}; "
            "join a stream with a table by Spark's own join, or read the table as a stream",
        )


def read_streams(
    streams: Mapping[str, DataFrame], needs_time: bool, event_time: str | Mapping[str, str] | None
) -> tuple[Catalyst, list[Stream], list[ThetastreamError]]:
    """The streams, their resolver, and what is wrong with them but lets the rest be read."""
    check_streams(streams)
    spark = next(iter(streams.values())).sparkSession
    problems: list[ThetastreamError] = []
    schemas = {alias: frame.schema for alias, frame in streams.items()}
    is_case_sensitive = (spark.conf.get("spark.sql.caseSensitive") or "").lower() == "true"
    for alias, schema in schemas.items():
        problems += _duplicates(alias, schema, is_case_sensitive)
    raise_problems(problems)
    catalyst = Catalyst(spark, schemas)
    inputs: list[Stream] = []
    for alias, frame in streams.items():
        taken = sum(len(stream.carried) for stream in inputs)
        carried, unsupported = carry(alias, schemas[alias], taken)
        problems += unsupported
        types = tuple((field.name, field.dataType.simpleString()) for field in schemas[alias].fields)
        stream = Stream(alias, types, carried, is_streaming=frame.isStreaming)
        inputs.append(_with_event_time(stream, schemas[alias], event_time, needs_time, catalyst, problems))
    return catalyst, inputs, problems


def _duplicates(alias: str, schema: StructType, is_case_sensitive: bool) -> list[QueryError]:
    """Columns whose name is another's too."""
    seen: dict[str, str] = {}
    problems = []
    for name in schema.names:
        folded = name if is_case_sensitive else name.casefold()
        if folded in seen:
            problems.append(
                QueryError(
                    "DUPLICATE_COLUMN",
                    f"stream {alias!r} has the column {name!r} twice: the name is ambiguous; rename one",
                )
            )
        seen[folded] = name
    return problems


def _with_event_time(
    stream: Stream,
    schema: StructType,
    asked: str | Mapping[str, str] | None,
    needs_time: bool,
    catalyst: Catalyst,
    problems: list[ThetastreamError],
) -> Stream:
    """The stream with its event-time column, if it has one that can be known."""
    marked = [field.name for field in schema.fields if MARK in (field.metadata or {})]
    column, origin = (marked[0], "watermark") if marked else (None, "watermark")
    if len(marked) > 1:
        problems.append(
            QueryError(
                "AMBIGUOUS_EVENT_TIME",
                f"stream {stream.alias!r} has a watermark on {' and '.join(marked)}; drop one",
            )
        )
    wanted = asked.get(stream.alias) if isinstance(asked, Mapping) else asked
    if wanted is not None and not (stream.is_streaming and marked):
        column, origin = stream.find(wanted, catalyst.is_case_sensitive), "event_time="
        if column is None or stream.is_streaming:
            problems.append(_bad_event_time(stream, wanted, column))
    elif wanted is not None and stream.find(wanted, catalyst.is_case_sensitive) != column:
        problems.append(_bad_event_time(stream, wanted, column))
    if column is None and not stream.is_streaming and needs_time:
        # Spark takes the mark of withWatermark off a batch DataFrame; one timestamp column says as much.
        stamps = [name for name, type_ in stream.types if type_ in ("timestamp", "timestamp_ntz")]
        if len(stamps) == 1:
            column, origin = stamps[0], "only timestamp"
    if column is not None and not needs_time and stream.type_of(column) not in ("timestamp", "timestamp_ntz"):
        # The mark is on a struct behind Spark's window(): no instant, and none is asked for.
        column = None
    delay_ms = (schema[column].metadata or {}).get(MARK) if column is not None else None
    delay_us = None if delay_ms is None else int(delay_ms) * 1000
    return replace(stream, event_time=column, event_time_origin=origin, watermark_delay_us=delay_us)


def _bad_event_time(stream: Stream, wanted: str, column: str | None) -> QueryError:
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
