"""The ring as Spark runs it.

stream -> filters, key columns -> blocks -+
stream -> filters, key columns -> blocks -+- union -> one copy a node -> exchange -> node -> results
mailbox: partial results of last epoch   -+                                            |
   ^------------------------------------------- messages ------------------------------+
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.blocks import concat, gather, nullable, pack, unpack
from thetastream.joiner.ring import Message, RingInbox, RingNode, RingSpec
from thetastream.joiner.unit import UnitState
from thetastream.keys import LOWEST
from thetastream.plan.graph import LoweredGraph
from thetastream.spark import metrics
from thetastream.spark.dataflow import block_columns, partition, slots
from thetastream.spark.emit import Emitter, unpack_blocks, weighed
from thetastream.spark.epoch import begin, end
from thetastream.spark.mailbox import HELLO, SCHEMA, messages, pages, read_mailbox
from thetastream.spark.manifest import Fingerprint, digest
from thetastream.spark.operator import stateful, with_counters
from thetastream.spark.output import is_flat, schema_of, struct_of
from thetastream.spark.posting import TICK, TUPLES, addressed, mailbox_name, post
from thetastream.spark.segments import DurableStore, PartMap
from thetastream.spark.session import meaning
from thetastream.spark.worker import settle

# The kind of a partial result is the number of its members, 2 or more.
NO_WATERMARK = LOWEST


@dataclass(frozen=True)
class RingEpoch:
    """What travels to the workers."""

    ring: RingSpec
    slots: dict[int, int] = field(hash=False)
    """Grouping key -> node."""
    fingerprint: Fingerprint = field(hash=False)
    emitter: Emitter
    mailboxes: str
    """Folder of mailboxes."""
    cache_folder: str | None
    has_watermark: bool = False

    def run(
        self, key: int, rows: Iterator[pd.DataFrame], timers: Any, manifest: Any, parts: PartMap, handle: Any
    ) -> Iterator[pd.DataFrame]:
        """One node's epoch, as ``EpochSpec.run`` is one of a unit: results, messages, a row of counters."""
        # 1. State as committed by the epoch before, and what came in.
        state, clock, root = begin(manifest, self.fingerprint, self.cache_folder, UnitState, timers)
        inbox, hello = read_inbox(rows)
        if self.ring.has_mailbox:
            state.mailbox = mailbox_name(state.mailbox, hello)
        plans = {chain.stream: chain.plan for chain in self.ring.chains}
        slot = self.slots[key]
        node = RingNode(self.ring, slot, state, DurableStore(parts, plans, root))
        # 2. The epoch.
        found = node.epoch(inbox, clock)
        yield from self.emitter.gathered(weighed(found, node.counters))
        # 3. What the next one needs.
        if state.mailbox is not None:
            keys = {slot: key for key, slot in self.slots.items()}
            sent, is_wanted = _packed(node.messages, keys), node.is_waiting and slot == 0
            node.counters.forwarded_bytes = post(
                self.mailboxes, state.mailbox, self.fingerprint, slot, sent, is_wanted
            )
        end(manifest, self.fingerprint, clock, node.state, self.has_watermark, handle)
        yield self.emitter.counters(slot, node.counters)


def read_inbox(frames: Iterator[pd.DataFrame]) -> tuple[RingInbox, str | None]:
    """This epoch's new tuples in the order of their source, its messages, and the mailbox they come from."""
    inbox, mailbox = RingInbox(), None
    fresh: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
    for frame in frames:
        headers = (frame[name] for name in ("side", "kind", "origin", "block", "path"))
        for side, kind, origin, data, path in zip(*headers, strict=True):
            if kind in (HELLO, TICK):
                mailbox = bytes(data).decode() or mailbox
                continue
            inbox.received_bytes += len(data)
            if kind == TUPLES:
                fresh.setdefault(int(side), []).append((int(origin), unpack(data)))
            else:
                since = None if origin == NO_WATERMARK else int(origin)
                streams = tuple(int(stream) for stream in path.split())
                inbox.messages.append(Message(streams, int(kind), since, unpack(data)))
    for side, blocks in fresh.items():
        ordered = sorted(blocks, key=lambda block: block[0])
        inbox.tuples[side] = concat([block for _, block in ordered])
    return inbox, mailbox


def _packed(sent: Sequence[Message], keys: Mapping[int, int]) -> list[pa.RecordBatch]:
    """Messages as they are posted."""
    rows = [
        (
            message.origin,
            message.n_members,
            NO_WATERMARK if message.since_us is None else message.since_us,
            pack(message.block),
        )
        for message in sent
    ]
    to = [None if message.to is None else keys[message.to] for message in sent]
    paths = [" ".join(map(str, message.path)) for message in sent]
    return pages(rows, to, paths)


def build(
    plan: LoweredGraph,
    ring: RingSpec,
    fingerprint: Fingerprint,
    streams: Sequence[DataFrame],
    mailboxes: str,
    cache_folder: str | None = None,
) -> DataFrame:
    """The joined DataFrame of streams: one struct column per alias.

    Parameters
    ----------
    plan : LoweredGraph
    ring : RingSpec
    fingerprint : mapping of str to str
        What must stay the same for a checkpoint to be continued.
    streams : sequence of DataFrame
        Streaming, in the order of the graph.
    mailboxes : str
        Folder, of the driver and all workers, for mailboxes.
    cache_folder : str, optional
        Host-local folder for mapped segments; Spark's local directory when left out.
    """
    spark = streams[0].sparkSession
    fingerprint = {**fingerprint, **meaning(spark)}
    join_id = uuid.uuid4().hex
    has_watermark = any(side.time is not None for side in plan.graph.sides)
    blocks = [
        block_columns(side, stream).mapInArrow(_packing(number, has_watermark, join_id), SCHEMA)
        for number, (side, stream) in enumerate(zip(plan.sides, streams, strict=True))
    ]
    if ring.has_mailbox:
        blocks.append(read_mailbox(spark, mailboxes, fingerprint))
    rows = addressed(reduce(DataFrame.unionByName, blocks), ring.model.n_units)
    fields = [f"{c.block_column} {c.block_type}" for side in plan.sides for c in side.carried]
    columns = schema_of(spark, fields)

    def spec_of(emitter: Emitter) -> RingEpoch:
        return RingEpoch(
            ring, slots(ring.model), fingerprint, emitter, mailboxes, cache_folder, has_watermark
        )

    results = stateful(rows, columns, is_flat(columns), has_watermark, spec_of)
    if not is_flat(columns):
        results = results.mapInArrow(unpack_blocks, with_counters(columns))
    results = metrics.observe(results, digest(fingerprint), join_id)
    joined = results.select(*(struct_of(side).alias(side.alias) for side in plan.sides))
    for conjunct in plan.residual:
        joined = joined.where(F.expr(conjunct))
    return joined


def _packing(
    stream: int, has_watermark: bool, join_id: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The step that makes blocks; ``join_id`` makes it a function of one join."""

    def to_blocks(batches: Iterator[pa.RecordBatch], _join_id: str = join_id) -> Iterator[pa.RecordBatch]:
        settle()
        origin = partition() << 32
        if has_watermark and not origin:
            yield messages([(stream, TICK, 0, b"")])
        for number, batch in enumerate(gather(batches)):
            yield messages([(stream, TUPLES, origin + number, pack(nullable(batch)))])

    return to_blocks
