"""The exchange brings each unit the tuples of all streams and the messages of the previous epoch, as rows.

    stream -> filters, key columns -> router: blocks -+
    stream -> filters, key columns -> router: blocks -+- union -> one row per destination
    mailbox: messages of the previous epoch ----------+

``thetastream.core.columns`` says what the columns of a row mean.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.control.notices import Notice
from thetastream.control.routing import build_router
from thetastream.core.blocks import gather, make_binary, make_nullable, pack, unpack
from thetastream.core.columns import (
    ANNOUNCEMENT,
    BLOCK,
    EMPTY,
    HASH,
    HEADER,
    KIND,
    MESSAGE,
    NOTICE,
    ORIGIN,
    SHED,
    STREAM,
    UNIT,
)
from thetastream.engine.inbox import Inbox, Message, ShedReport
from thetastream.plan.choose import MOST_CHOSEN
from thetastream.plan.domains import quote
from thetastream.plan.physical import SidePlan
from thetastream.spark.choice import FittedSpec
from thetastream.spark.control.access import ControlAccess
from thetastream.spark.grouping_keys import find_unit_keys
from thetastream.spark.shed_loads import ShedLoads
from thetastream.spark.state.identity_source import SCHEMA
from thetastream.spark.wide_rows import FILLER, count_fillers, fill_up
from thetastream.spark.worker import settle

if TYPE_CHECKING:
    import pandas as pd

Batches = Iterator[pa.RecordBatch]
_UNHASHED = ("map<", "variant", "geometry", "geography")
"""Beginnings of the type names that xxhash64 refuses, at any depth of a column's type."""


def build_exchange(
    fitted: FittedSpec,
    sides: Sequence[SidePlan],
    streams: Sequence[DataFrame],
    messages: DataFrame | None,
    shed: ShedLoads | None = None,
    control: ControlAccess | None = None,
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
    shed : ShedLoads, optional
        The load shedder.
    control : ControlAccess, optional
        Where routers find the plan of an epoch, if the units of the query may change.
    """
    parts = [
        _route_stream(fitted, number, plan, stream, shed, control)
        for number, (plan, stream) in enumerate(zip(sides, streams, strict=True))
    ]
    if messages is not None:
        parts.append(messages)
    return reduce(DataFrame.unionByName, parts)


def list_announced(fitted: FittedSpec) -> tuple[int, ...]:
    """List the grouping keys of the units to which the mailbox announces itself.

    If the planner has chosen the number of units, a restarted query may have more of them than this plan. The
    keys of fewer units are the first keys of more units.
    """
    if fitted.choice is None or not fitted.planned.has_messages:
        return find_unit_keys(fitted.planned.n_units)
    return find_unit_keys(max(fitted.planned.n_units, MOST_CHOSEN))


def _route_stream(
    fitted: FittedSpec,
    number: int,
    plan: SidePlan,
    stream: DataFrame,
    shed: ShedLoads | None,
    control: ControlAccess | None,
) -> DataFrame:
    """Filter the tuples of a stream, compute their keys and route them; the result has one row per block."""
    flat = select_block_columns(plan, stream)
    has_hash = fitted.planned.router.model.needs_hash or shed is not None or control is not None
    if has_hash:
        hashable = [
            F.col(field.name)
            for field in flat.schema
            if not any(word in field.dataType.simpleString() for word in _UNHASHED)
        ]
        flat = flat.select("*", F.xxhash64(*(hashable or [F.lit(0)])).alias(HASH))
    return route_rows(fitted, number, flat, plan.alias, shed, control)


def route_rows(
    fitted: FittedSpec,
    number: int,
    flat: DataFrame,
    alias: str,
    shed: ShedLoads | None = None,
    control: ControlAccess | None = None,
) -> DataFrame:
    """Route block columns as the tuples of the stream ``number``; the result has one row per block."""
    step = _make_routing_step(fitted, number, flat.isStreaming, shed, control)
    return fill_up(flat, alias).mapInArrow(step, SCHEMA)


def select_block_columns(plan: SidePlan, stream: DataFrame) -> DataFrame:
    """Select payload and computed keys of the tuples that pass a stream's filters, as columns of blocks."""
    nested = stream.select(F.struct(*(F.col(quote(name)) for name in stream.columns)).alias(plan.alias))
    for text in plan.filters:
        nested = nested.where(F.expr(text))
    columns = [F.expr(carried.to_block).alias(carried.block_column) for carried in plan.carried]
    columns += [F.expr(text).alias(name) for name, text in plan.computed]
    return nested.select(*columns)


def _make_routing_step(
    fitted: FittedSpec,
    stream: int,
    is_streaming: bool,
    shed: ShedLoads | None,
    control: ControlAccess | None = None,
) -> Callable[[Batches], Batches]:
    """Make the function that turns batches into blocks."""
    is_announced = is_streaming and fitted.planned.has_event_time
    has_hash = fitted.planned.router.model.needs_hash or shed is not None or control is not None

    def to_rows(batches: Batches) -> Batches:
        settle()
        keys, plan = fitted.keys, None if control is None else control.find_plan()
        if plan is None:
            route, called = fitted.spec.router.route, keys[: fitted.spec.n_units]
        else:
            route = build_router(fitted.planned, plan).route
            called = tuple(keys[slot] for slot in plan.slots)
        # Origins order the blocks of a stream by partition.
        task = read_partition()
        origin, sent = task << 32, 0
        if is_announced and not origin:
            # An announcement calls every unit in every epoch, so each unit knows the watermark of the
            # previous one.
            empty = pa.array([b""] * len(called), pa.binary())
            yield _make_rows(called, ANNOUNCEMENT, stream, origin, empty)
        batches = map(drop_fillers, batches)
        if fitted.spec.router.model.needs_hash and not has_hash:
            batches = map(_add_hash, batches)
        shedder = None
        if shed is not None:
            least = 0.0 if plan is None else plan.shed_factor
            shedder = shed.open(stream, is_first=not task and not stream, least=least)
        for number, batch in enumerate(map(make_nullable, gather(batches))):
            tuples, probing = (batch, None) if shedder is None else shedder.drop(batch)
            if not tuples.num_rows:
                continue
            # A block that goes to several units is packed once. The list keeps all blocks alive, so that no
            # two of them have the same id().
            routes = list(route(stream, tuples, probing))
            packed: dict[int, pa.Array] = {}
            for unit, role, block in routes:
                name = id(block)
                if name not in packed:
                    packed[name] = make_binary(pack(block))
                # Each batch has one row, because all blocks together may exceed what an Arrow array can hold.
                yield _make_rows([keys[unit]], int(role), stream, origin + number, packed[name])
                n = count_fillers(task, sent, packed[name].nbytes)
                sent += packed[name].nbytes
                if n:
                    yield _make_rows(
                        [keys[unit]] * n, EMPTY, stream, origin, pa.array([b""] * n, pa.binary())
                    )
        if shedder is not None and shedder.report is not None:
            nothing = pa.array([b""], pa.binary())
            yield _make_rows(called[:1], SHED, stream, origin, nothing, json.dumps(shedder.report))

    return to_rows


def _make_rows(
    units: Sequence[int], kind: int, stream: int, origin: int, blocks: pa.Array, header: str | None = None
) -> pa.RecordBatch:
    """Make one row of the exchange per unit, in the schema ``SCHEMA``."""
    n = len(units)
    columns = {
        UNIT: pa.array(units, pa.int32()),
        KIND: pa.array([kind] * n, pa.int8()),
        STREAM: pa.array([stream] * n, pa.int8()),
        ORIGIN: pa.array([origin] * n, pa.int64()),
        HEADER: pa.array([header] * n, pa.string()),
        BLOCK: blocks,
    }
    return pa.RecordBatch.from_pydict(columns)


def drop_fillers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the fillers that ``fill_up`` has put behind wide rows."""
    if FILLER not in batch.schema.names:
        return batch
    is_tuple = pc.equal(batch.column(FILLER), 0)
    tuples = batch.drop_columns([FILLER])
    return tuples if pc.all(is_tuple).as_py() else tuples.filter(is_tuple)


def _add_hash(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the hash of each tuple, for a model that needs it when the planned model does not.

    It need not be Spark's hash: any hash spreads tuples, in the same way whenever a Spark task is run again.
    """
    import pandas as pd

    flat = [
        name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _is_hashable(column)
    ]
    hashes = pd.util.hash_pandas_object(batch.select(flat).to_pandas(), index=False).to_numpy()
    return batch.append_column(HASH, pa.array(hashes.view(np.int64)))


def _is_hashable(column: pa.Array) -> bool:
    """Whether a column has no nested values, which pandas cannot hash."""
    return not pa.types.is_nested(column.type)


def read_partition() -> int:
    """Read the partition number of the current Spark task; 0 outside of Spark tasks."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


COLUMNS = (KIND, STREAM, ORIGIN, HEADER, BLOCK)
"""The columns of a row that ``take_in`` reads."""


class Told(NamedTuple):
    """What rows that are not for the engine tell a unit."""

    mailbox: str | None = None
    """The name of the mailbox, if a row contains it."""
    notice: Notice | None = None
    """The change of the control plan that is about this unit."""


def take_in(inbox: Inbox, found: Iterable[Sequence[Any]]) -> Told:
    """Put all rows of an epoch into a unit's inbox; return what the other rows tell.

    Parameters
    ----------
    inbox : Inbox
    found : iterable of sequences
        All rows of the unit, because only together can they be sorted. A row has the values of the columns
        ``COLUMNS``. Its block is bytes or an Arrow buffer.
    """
    mailbox: str | None = None
    notice: Notice | None = None
    messages: list[tuple[int, str, pa.RecordBatch | None, int]] = []
    for kind, stream, origin, header, block in found:
        size = len(block)
        if kind == EMPTY:
            continue
        if kind == ANNOUNCEMENT:
            mailbox = bytes(block).decode() or mailbox
        elif kind == SHED:
            inbox.shed.append(ShedReport(*json.loads(header)))
        elif kind == NOTICE:
            notice = Notice.read(header)
        elif kind == MESSAGE:
            messages.append((int(origin), header, unpack(block) if size else None, size))
        else:
            inbox.add(int(stream), int(kind), int(origin), unpack(block), size)
    # The upper half of the origin is the number of the sender, the lower half numbers its messages.
    for origin, header, carried, size in sorted(messages, key=lambda message: message[0]):
        inbox.deliver(Message(header, carried, sender=origin >> 32), size)
    return Told(mailbox, notice)


def list_rows(frames: "Iterable[pd.DataFrame]") -> Iterator[Sequence[Any]]:
    """Yield the rows that Spark gives a stateful processor, frame by frame, as ``take_in`` reads them."""
    for frame in frames:
        yield from zip(*(frame[name] for name in COLUMNS), strict=True)


def fill_inboxes(batches: Batches) -> dict[int, Inbox]:
    """Fill one inbox per unit from the rows of batch DataFrames: grouping key of the unit -> inbox."""
    inboxes: dict[int, Inbox] = {}
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (UNIT, *COLUMNS[:-1])]
        blocks = (block.as_buffer() for block in batch.column(BLOCK))
        # Batch rows are tuples only, and an inbox sorts its tuples, so rows may come one by one.
        for key, *row in zip(*columns, blocks, strict=True):
            take_in(inboxes.setdefault(key, Inbox()), [row])
    return inboxes
