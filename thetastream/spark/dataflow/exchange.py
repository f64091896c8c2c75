"""The exchange brings each unit the tuples of all streams and the messages of the previous epoch, as rows.

    stream -> filters, key columns -> router: blocks -+
    stream -> filters, key columns -> router: blocks -+- union -> one row per destination
    mailbox: messages of the previous epoch ----------+

``thetastream.core.columns`` says what the columns of a row mean.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType, TimestampType

from thetastream.core.columns import HASH, MARK, PUNCTUATION, SIGN
from thetastream.engine.routing import reads_hashes
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import SidePlan
from thetastream.lowering.plain_columns import NotPlain, find_name
from thetastream.lowering.statistics import MOST_CHOSEN
from thetastream.runtime.choice import FittedSpec, find_unit_keys
from thetastream.runtime.epoch import NO_COORDINATION, Coordination
from thetastream.runtime.punctuations import NO_TIME_US
from thetastream.runtime.reading_step import READ_TIME, StreamReading, make_reading_step
from thetastream.runtime.routing_step import make_routing_step
from thetastream.spark.dataflow.file_readings import FileReading, find_readings
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.event_time import list_marked
from thetastream.spark.sources.identity import SCHEMA
from thetastream.spark.task_properties import read_task

NO_TIME = f"CAST({NO_TIME_US} AS BIGINT)"
"""The value of the column ``PUNCTUATION`` of a punctuation without an event time, as SQL."""
_UNHASHED = ("map<", "variant", "geometry", "geography")
"""Beginnings of the type names that xxhash64 refuses, at any depth of a column's type."""
_COLLATED = "collate "
"""A part of the type names of collated texts. Texts that a collation takes for equal have equal hashes."""


def build_exchange(
    fitted: FittedSpec,
    sides: Sequence[SidePlan],
    streams: Sequence[DataFrame],
    messages: DataFrame | None,
    coordination: Coordination = NO_COORDINATION,
) -> DataFrame:
    """Build the rows of the exchange, with the columns unit, kind, stream, origin, header, block.

    Parameters
    ----------
    fitted : FittedSpec
        The spec of the query.
    sides : sequence of SidePlan
        For each stream, how its tuples become blocks.
    streams : sequence of DataFrame
        The inputs, all streaming or all batch.
    messages : DataFrame, optional
        For streams, the mailbox, or a source without rows for an engine whose units send no messages.
    coordination : Coordination, optional
        What routers and units agree on while the query runs.
    """
    is_streaming = messages is not None
    readings = find_readings(sides, streams, coordination.punctuations is not None)
    parts = [
        _route_stream(fitted, number, plan, stream, coordination, reading, is_streaming=is_streaming)
        for number, (plan, stream, reading) in enumerate(zip(sides, streams, readings, strict=True))
    ]
    if messages is not None:
        parts.append(messages)
    return reduce(DataFrame.unionByName, parts)


def list_announced(fitted: FittedSpec) -> tuple[int, ...]:
    """List the grouping keys of the units to which a source announces itself.

    If the planner has chosen the number of units, a restarted query may have more of them than this plan. The
    keys of fewer units are the first keys of more units.
    """
    if fitted.choice is None:
        return find_unit_keys(fitted.planned.n_units)
    return find_unit_keys(max(fitted.planned.n_units, MOST_CHOSEN))


def _route_stream(
    fitted: FittedSpec,
    number: int,
    plan: SidePlan,
    stream: DataFrame,
    coordination: Coordination,
    reading: FileReading | NotPlain | None,
    *,
    is_streaming: bool,
) -> DataFrame:
    """Filter the tuples of a stream, compute their keys and route them; the result has one row per block."""
    if isinstance(reading, FileReading):
        return _read_and_route(fitted, number, plan, stream, coordination, reading)
    marks = {} if coordination.punctuations is None else coordination.punctuations.marks
    flat = select_block_columns(plan, stream, marks.get(plan.alias))
    spreads_equal = False
    if HASH not in flat.columns and _needs_hashes(fitted, coordination):
        # A delete has the hash of its insert. Both go to the same units, so that they can cancel each other.
        columns = StructType([field for field in flat.schema if field.name not in (SIGN, PUNCTUATION)])
        hashed = list_hashable(columns)
        # Tuples that differ must not share a hash by their types, or an order would decide who goes where.
        spreads_equal = (
            len(hashed) == len(columns)
            and not any(_COLLATED in field.dataType.simpleString() for field in columns)
            and SIGN not in flat.columns
        )
        hashes = f"xxhash64({', '.join(map(quote, hashed))})" if hashed else "0L"
        flat = flat.selectExpr("*", f"{hashes} AS {HASH}")
    return route_rows(
        fitted,
        number,
        flat,
        plan.alias,
        coordination,
        is_streaming=is_streaming,
        spreads_equal=spreads_equal,
    )


def _needs_hashes(fitted: FittedSpec, coordination: Coordination) -> bool:
    """Whether routers read the hash of each tuple, now or when the units change."""
    may_drop_or_change = coordination.shed is not None or coordination.control is not None
    return may_drop_or_change or reads_hashes(fitted.planned.router.model)


def _read_and_route(
    fitted: FittedSpec,
    number: int,
    plan: SidePlan,
    stream: DataFrame,
    coordination: Coordination,
    found: FileReading,
) -> DataFrame:
    """Read the files of a stream and route their tuples in one step; the result has one row per block."""
    files, plain, _ = found
    marked = list_marked(stream.schema, MARK)
    # A selection of columns may write its name in another case than the files.
    time = find_name(marked[0], files.columns.types) if marked else None
    reading = StreamReading(
        plan.alias,
        number,
        files.columns,
        plain,
        _needs_hashes(fitted, coordination),
        time,
        plan.moves_watermark,
        find_unit_keys(1)[0],
    )
    route = make_routing_step(fitted, number, coordination, is_streaming=True, read_task=read_task)
    step = make_reading_step(reading, route)
    name = f"read and route {plan.alias} to units"
    if time is None:
        return run_step(files.paths, step, SCHEMA, name)
    timed = StructType([*SCHEMA, StructField(READ_TIME, TimestampType())])
    delay_ms = (stream.schema[marked[0]].metadata or {})[MARK]
    rows = run_step(files.paths, step, timed, name).withWatermark(READ_TIME, f"{delay_ms} milliseconds")
    return rows.select(*SCHEMA.names)


def list_hashable(columns: StructType) -> list[str]:
    """List the columns that xxhash64 takes."""
    types = {field.name: field.dataType.simpleString() for field in columns}
    return [name for name, text in types.items() if not any(word in text for word in _UNHASHED)]


def route_rows(
    fitted: FittedSpec,
    number: int,
    flat: DataFrame,
    alias: str,
    coordination: Coordination = NO_COORDINATION,
    *,
    is_streaming: bool,
    spreads_equal: bool = False,
) -> DataFrame:
    """Route block columns as the tuples of the stream ``number``; the result has one row per block."""
    step = make_routing_step(
        fitted,
        number,
        coordination,
        is_streaming=is_streaming,
        spreads_equal=spreads_equal,
        has_punctuations=PUNCTUATION in flat.columns,
        read_task=read_task,
    )
    filled = fill_up(flat, f"a tuple of stream {alias!r}")
    return run_step(filled, step, SCHEMA, f"route {alias} to units")


def select_block_columns(
    plan: SidePlan, stream: DataFrame, punctuation: tuple[str, str] | None = None
) -> DataFrame:
    """Select payload and computed keys of the tuples that pass a stream's filters, as columns of blocks.

    ``punctuation`` is the condition that marks punctuations and their time, if the stream has some. They pass
    all filters, and their keys are NULL. The last column is ``PUNCTUATION`` then.
    """
    nested = stream.selectExpr(f"struct(*) AS {quote(plan.alias)}")
    passes = " AND ".join(f"({one.text}\n)" for one in plan.filters)
    computed: list[tuple[str, str]] = [*plan.computed]
    if punctuation is not None:
        is_mark = f"coalesce(({punctuation[0]}\n), FALSE)"
        passes = f"{is_mark} OR {passes}" if passes else ""
        computed = [(name, f"CASE WHEN NOT {is_mark} THEN ({text}\n) END") for name, text in computed]
        time = f"CASE WHEN {is_mark} THEN coalesce(unix_micros({punctuation[1]}), {NO_TIME}) END"
        computed.append((PUNCTUATION, time))
    if plan.filters and plan.moves_watermark:
        # Spark moves a deterministic filter before the watermark, and leaves out a stream whose filters it
        # finds to be false. It takes this filter for non-deterministic.
        nested = nested.where(f"({passes}) OR spark_partition_id() < 0")
    elif plan.filters:
        nested = nested.where(passes)
    columns = *((carried.block_column, carried.to_block) for carried in plan.carried), *computed
    return nested.selectExpr(*(f"({text}\n) AS {quote(name)}" for name, text in columns))
