"""The handshake chain as Spark runs it.

left  -> filters, key columns -> blocks -> to the first worker -+
right -> filters, key columns -> blocks -> to the last worker  -+- union -> exchange -> worker -> results
mailbox: letters of last epoch ---------> to neighbours        -+                         |
   ^----------------------------------------- letters -----------------------------------+
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.blocks import concat, gather, nullable, pack, unpack
from thetastream.joiner.chain_join import ChainJoin
from thetastream.joiner.handshake import ChainInbox, ChainWorker
from thetastream.joiner.unit import UnitState
from thetastream.models.chain import Chain
from thetastream.plan.physical import PhysicalPlan
from thetastream.spark import metrics
from thetastream.spark.dataflow import block_columns, fingerprint, partition, slots
from thetastream.spark.emit import Emitter, outcome, unpack_blocks, weighed
from thetastream.spark.epoch import begin, end
from thetastream.spark.letters import opened, posted
from thetastream.spark.mailbox import HELLO, SCHEMA, messages, read_mailbox
from thetastream.spark.manifest import Fingerprint, digest
from thetastream.spark.operator import stateful, with_counters
from thetastream.spark.output import pairs
from thetastream.spark.placement import unit_keys
from thetastream.spark.posting import TICK, TUPLES, addressed, mailbox_name, post
from thetastream.spark.segments import DurableStore, PartMap
from thetastream.spark.session import meaning
from thetastream.spark.worker import settle
from thetastream.types import Side


@dataclass(frozen=True)
class ChainEpoch:
    """What travels to the workers."""

    join: ChainJoin
    slots: dict[int, int] = field(hash=False)
    """Grouping key -> place on the chain."""
    fingerprint: Fingerprint = field(hash=False)
    emitter: Emitter
    mailboxes: str
    """Folder of mailboxes."""
    cache_folder: str | None
    has_watermark: bool = False

    def run(
        self, key: int, rows: Iterator[pd.DataFrame], timers: Any, manifest: Any, parts: PartMap, handle: Any
    ) -> Iterator[pd.DataFrame]:
        """One worker's epoch, as ``EpochSpec.run`` is one of a unit: results, letters, a row of counters."""
        # 1. State as committed by the epoch before, and what came in.
        state, clock, root = begin(manifest, self.fingerprint, self.cache_folder, UnitState, timers)
        inbox, hello = read_inbox(rows)
        state.mailbox = mailbox_name(state.mailbox, hello)
        place = self.slots[key]
        worker = ChainWorker(self.join, place, state, DurableStore(parts, self.join.plans, root))
        # 2. The epoch.
        found = outcome(None, worker.epoch(inbox, clock))
        yield from self.emitter.gathered(weighed(found, worker.counters))
        # 3. What the next one needs.
        letters = posted(place, worker.sent, sorted(self.slots, key=self.slots.__getitem__))
        worker.counters.forwarded_bytes = post(
            self.mailboxes, state.mailbox, self.fingerprint, place, letters, worker.is_waiting
        )
        end(manifest, self.fingerprint, clock, worker.state, self.has_watermark, handle)
        yield self.emitter.counters(place, worker.counters)


def read_inbox(frames: Iterator[pd.DataFrame]) -> tuple[ChainInbox, str | None]:
    """This epoch's new tuples and letters in their order, and the mailbox that letters come from."""
    inbox, mailbox = ChainInbox(), None
    fresh: dict[int, list[tuple[int, bytes]]] = {}
    letters: dict[int, list[tuple[int, int, bytes]]] = {}
    for frame in frames:
        headers = (frame[name] for name in ("side", "kind", "origin", "block"))
        for side, kind, origin, data in zip(*headers, strict=True):
            if kind in (HELLO, TICK):
                mailbox = bytes(data).decode() or mailbox
                continue
            inbox.received_bytes += len(data)
            if kind == TUPLES:
                fresh.setdefault(int(side), []).append((int(origin), data))
            else:
                letters.setdefault(int(side), []).append((int(origin), int(kind), bytes(data)))
    inbox.is_quiet = not fresh
    for side, blocks in fresh.items():
        # The right end is told of left blocks, without their tuples.
        found = [unpack(data) for _, data in sorted(blocks, key=lambda block: block[0]) if len(data)]
        if found:
            inbox.tuples[Side(side)] = concat(found)
    for neighbour, sent in letters.items():
        sent.sort(key=lambda row: row[0])
        inbox.letters[neighbour].extend(opened(kind, data) for _, kind, data in sent)
    return inbox, mailbox


def build(
    plan: PhysicalPlan,
    model: Chain,
    streams: tuple[DataFrame, DataFrame],
    mailboxes: str,
    cache_folder: str | None = None,
) -> DataFrame:
    """The joined DataFrame: one struct column per alias, streaming.

    Parameters
    ----------
    plan : PhysicalPlan
        From ``thetastream.plan.lower``.
    model : Chain
        One that hands tuples on.
    streams : pair of DataFrame
        Left and right input.
    mailboxes : str
        Folder, of the driver and all workers, for mailboxes.
    cache_folder : str, optional
        Host-local folder for mapped segments; Spark's local directory when left out.
    """
    spark = streams[0].sparkSession
    join_id = uuid.uuid4().hex
    has_watermark = any(side.time is not None for side in plan.condition.sides)
    output = pairs(spark, plan, None)
    query = fingerprint(plan, model) | meaning(spark)
    blocks = [
        block_columns(plan.sides[side], stream).mapInArrow(
            _entering(side, model, has_watermark, join_id), SCHEMA
        )
        for side, stream in zip(Side, streams, strict=True)
    ]
    together = blocks[0].unionByName(blocks[1]).unionByName(read_mailbox(spark, mailboxes, query))
    rows = addressed(together, model.n_units)
    join = ChainJoin(plan.condition, plan.indexes, plan.archive_period_us, model)

    def spec_of(emitter: Emitter) -> ChainEpoch:
        return ChainEpoch(join, slots(model), query, emitter, mailboxes, cache_folder, has_watermark)

    results = stateful(rows, output.columns, output.is_flat, has_watermark, spec_of)
    if not output.is_flat:
        results = results.mapInArrow(unpack_blocks, with_counters(output.columns))
    joined = metrics.observe(results, digest(query), join_id).select(*output.restored)
    for conjunct in output.residual:
        joined = joined.where(F.expr(conjunct))
    return joined


def _entering(
    side: Side, model: Chain, has_watermark: bool, join_id: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The step that makes blocks; ``join_id`` makes it a function of one join."""
    keys = unit_keys(model.n_units)
    end, last = keys[model.end(side)], keys[-1]

    def to_blocks(batches: Iterator[pa.RecordBatch], _join_id: str = join_id) -> Iterator[pa.RecordBatch]:
        settle()
        origin = partition() << 32
        if has_watermark and not origin:
            yield messages([(side, TICK, 0, b"")])
        for number, batch in enumerate(gather(batches)):
            yield messages([(side, TUPLES, origin + number, pack(nullable(batch)))], [end])
            if end != last:
                yield messages([(side, TUPLES, origin + number, b"")], [last])

    return to_blocks
