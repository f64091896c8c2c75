"""The join as Spark runs it.

    stream -> filters, key columns -> route into blocks -+
                                                         +- union -> exchange by unit -> unit -> results
    stream -> filters, key columns -> route into blocks -+

Left and right are built by one function. On streams the unit is a stateful processor; on batch
frames it is one pass over the same blocks with state in memory.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from thetastream.aggregate import Fold
from thetastream.blocks import HASH_COLUMN, gather, nullable, pack, route, unpack
from thetastream.joiner.clock import BATCH
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.placing import Placing, placing
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.unit import Unit, UnitSpec, UnitState
from thetastream.models.base import Model
from thetastream.order import Order
from thetastream.plan.domains import quoted
from thetastream.plan.folding import Folding
from thetastream.plan.physical import PhysicalPlan, SidePlan, described
from thetastream.spark import metrics
from thetastream.spark.emit import Emitter, outcome, result_batch, unpack_blocks
from thetastream.spark.epoch import EpochSpec
from thetastream.spark.manifest import digest
from thetastream.spark.operator import stateful, with_counters
from thetastream.spark.ordered import gathered, punctuations
from thetastream.spark.output import pairs, views
from thetastream.spark.placement import unit_keys
from thetastream.spark.session import meaning
from thetastream.spark.worker import settle
from thetastream.types import Role, Side

_BLOCKS = "unit int, side byte, role byte, origin long, block binary"
_UNHASHED = ("map<", "variant", "geometry", "geography")
"""Types xxhash64 refuses, wherever in a column they are."""
Batches = Iterator[pa.RecordBatch]


def build(
    plan: PhysicalPlan,
    model: Model,
    streams: tuple[DataFrame, DataFrame],
    cache_folder: str | None = None,
    folding: Folding | None = None,
    order: Order | None = None,
) -> DataFrame:
    """The joined DataFrame: one struct column per alias; or the units' views of it.

    Parameters
    ----------
    plan : PhysicalPlan
        From ``thetastream.plan.lower``.
    model : Model
        Router.
    streams : pair of DataFrame
        Left and right input, both streaming or both batch.
    cache_folder : str, optional
        Host-local folder for mapped segments; Spark's local directory when left out.
    folding : Folding, optional
        What units fold their matches into.
    order : Order, optional
        How results are ordered; they then have one column more, ``arrival``.
    """
    spark = streams[0].sparkSession
    # Two joins of one query may have equal exchanges. Spark would run one for both, and its watermark,
    # which it follows from node to node of the plan, would end at the place of the other.
    join_id = uuid.uuid4().hex
    output = pairs(spark, plan, order) if folding is None else views(streams, plan, folding)
    has_watermark = any(side.time is not None for side in plan.condition.sides)
    together = routed(plan.sides, streams, model, placing(model, output.condition), has_watermark, join_id)
    zone = spark.conf.get("spark.sql.session.timeZone")
    unit = UnitSpec(output.condition, plan.indexes, plan.archive_period_us, plan.counts, order is not None)
    if any(stream.isStreaming for stream in streams):
        schema = with_counters(output.columns)
        # What is to be ordered crosses one exchange more, as blocks.
        is_flat = output.is_flat and order is None
        query = fingerprint(plan, model, order) | meaning(spark)
        if folding is not None:  # stored columns are computed, so their names do not say what they are
            query["folded"] = repr([folding.computed, folding.measures, folding.pane])
            if folding.lazy is not None:  # otherwise nobody would look for views that wait
                query["lazy"] = "every"
        punctuated = order if order is not None and order.is_punctuated else None

        def spec_of(emitter: Emitter) -> EpochSpec:
            return EpochSpec(
                unit,
                model,
                slots(model),
                query,
                emitter,
                cache_folder,
                has_watermark,
                output.fold,
                punctuated,
            )

        results = stateful(together, output.columns, is_flat, has_watermark, spec_of)
        if order is not None:
            results = gathered(results, schema, order)
        elif not is_flat:
            results = results.mapInArrow(unpack_blocks, schema)
        results = metrics.observe(results, digest(query), join_id)
    else:
        step = _batch_units(unit, model, output.fold, order, to_arrow_schema(output.columns, timezone=zone))
        results = together.repartition(F.col("unit")).mapInArrow(step, output.columns)
        if order is not None:
            results = gathered(results, output.columns, order)
    joined = results.select(*output.restored)
    for conjunct in output.residual:
        joined = joined.where(F.expr(conjunct))
    return joined


def fingerprint(plan: PhysicalPlan, model: Model, order: Order | None = None) -> dict[str, str]:
    """What must stay the same for a checkpoint to be continued."""
    condition = plan.condition
    return {
        **described(plan.sides),
        "event times": repr([side.time for side in condition.sides]),
        "keys": repr([side.keys for side in condition.sides]),
        "condition": repr((condition.equalities, condition.dimensions)),
        "window": repr(condition.window or plan.counts),
        "ordered": repr(order is not None),
        "same": repr(condition.same),
        "predicates": repr([predicate.name for predicate in condition.predicates]),
        "residual": repr(plan.residual),
        "archive period": repr(plan.archive_period_us),
        "model": repr(model.kept),
    }


def routed(
    sides: Sequence[SidePlan],
    streams: Sequence[DataFrame],
    model: Model,
    placing: Placing | None,
    has_watermark: bool,
    join_id: str,
) -> DataFrame:
    """The blocks of both streams: one row per destination block; ``join_id`` makes them those of one join.

    With a watermark every unit also gets an empty block whenever a stream is read: it hears of the epoch.
    """
    left, right = (
        _blocks(
            sides[side],
            stream,
            model.needs_hash,
            _router(side, model, placing, has_watermark and stream.isStreaming, join_id),
        )
        for side, stream in zip(Side, streams, strict=True)
    )
    return left.unionByName(right)


def _blocks(
    plan: SidePlan, stream: DataFrame, needs_hash: bool, router: Callable[[Batches], Batches]
) -> DataFrame:
    """Filter, compute keys, route: one row per destination block."""
    flat = block_columns(plan, stream)
    if needs_hash:
        hashable = [
            F.col(field.name)
            for field in flat.schema
            if not any(word in field.dataType.simpleString() for word in _UNHASHED)
        ]
        flat = flat.select("*", F.xxhash64(*(hashable or [F.lit(0)])).alias(HASH_COLUMN))
    return flat.mapInArrow(router, _BLOCKS)


def block_columns(plan: SidePlan, stream: DataFrame) -> DataFrame:
    """The columns of a stream's blocks: payload and computed keys of the tuples that pass its filters."""
    nested = stream.select(F.struct(*(F.col(quoted(name)) for name in stream.columns)).alias(plan.alias))
    for text in plan.filters:
        nested = nested.where(F.expr(text))
    columns = [F.expr(carried.to_block).alias(carried.block_column) for carried in plan.carried]
    columns += [F.expr(text).alias(name) for name, text in plan.computed]
    return nested.select(*columns)


def _router(
    side: Side, model: Model, placing: Placing | None, is_announced: bool, join_id: str
) -> Callable[[Batches], Batches]:
    """The step that makes blocks; ``join_id`` makes it a function of one join."""
    keys = unit_keys(model.n_units)

    def to_blocks(batches: Batches, _join_id: str = join_id) -> Batches:
        settle()
        # Of the blocks of a stream, in the order of its partitions.
        origin = partition() << 32
        if is_announced and not origin:
            for key in keys:
                yield _row(key, side, Role.BOTH, origin, b"")
        for number, batch in enumerate(gather(batches)):
            packed: dict[int, bytes] = {}
            # A list keeps every block alive, so that id() names it.
            places = None if placing is None else placing.places
            routes = list(route(model, side, nullable(batch), places))
            for unit, role, block in routes:
                # A block that goes to several units is packed once.
                data = packed.get(id(block))
                if data is None:
                    data = packed[id(block)] = pack(block)
                # One row to a batch: all copies together may be more than an Arrow array holds.
                yield _row(keys[unit], side, role, origin + number, data)

    return to_blocks


def _row(key: int, side: Side, role: Role, origin: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key], pa.int32()),
            pa.array([int(side)], pa.int8()),
            pa.array([int(role)], pa.int8()),
            pa.array([origin], pa.int64()),
            pa.array([data], pa.binary()),
        ],
        names=["unit", "side", "role", "origin", "block"],
    )


def slots(model: Model) -> dict[int, int]:
    """Grouping key -> slot of the model."""
    return {key: slot for slot, key in enumerate(unit_keys(model.n_units))}


def partition() -> int:
    """Of the task this runs in."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _batch_units(
    spec: UnitSpec, model: Model, fold: Fold | None, order: Order | None, schema: pa.Schema
) -> Callable[[Batches], Batches]:
    by_key = slots(model)

    def join(batches: Batches) -> Batches:
        for key, inbox in batch_inboxes(batches).items():
            unit = Unit(spec, model, by_key[key], UnitState(), MemoryStore())
            for columns in outcome(fold, unit.epoch(inbox, BATCH)):
                yield result_batch(columns, schema)
            if order is not None and order.is_punctuated and by_key[key] == 0:
                numbers = order.punctuations(0, sum(unit.state.arrived))
                yield result_batch(punctuations(numbers, schema), schema)

    return join


def batch_inboxes(batches: Batches) -> dict[int, Inbox]:
    """What batch frames bring each unit, by its grouping key."""
    inboxes: dict[int, Inbox] = {}
    for batch in batches:
        *columns, blocks = batch.columns
        headers = [column.to_pylist() for column in columns]
        for key, side, role, origin, data in zip(*headers, blocks, strict=True):
            buffer = data.as_buffer()
            inboxes.setdefault(key, Inbox()).add(side, role, origin, unpack(buffer), buffer.size)
    return inboxes
