"""A handshake chain in one process, its letters through a mailbox on disk as Spark's are; CPU time by worker.

An epoch of a worker is: open its letters, run, seal and post what it sends; reading a worker's file counts as
the sender's. An epoch of the chain lasts as long as its slowest worker.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa

from thetastream.joiner.block_size import BlockCost
from thetastream.joiner.clock import BEFORE
from thetastream.joiner.handshake import ChainInbox, ChainJoin, ChainWorker
from thetastream.joiner.protocol import TupleBlk
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.unit import Counters, UnitState
from thetastream.mailbox import Mailbox
from thetastream.spark.letters import opened, posted
from thetastream.types import Side

Epoch = tuple[pa.RecordBatch | None, pa.RecordBatch | None, int | None]
"""New tuples of left and right, and the watermark."""


@dataclass(frozen=True)
class Step:
    """The state of things after an epoch."""

    results: int
    workers: list[Counters]
    loads: list[int]
    """Per worker the stored tuples, copies aside."""
    cpu_s: list[float]
    blocks_sent: list[int]
    """Per worker, TUPLE_BLK."""
    block: list[int]
    """Per worker, the most tuples of one."""
    costs: list[BlockCost | None]
    """Per worker, what it has measured for the choice of a block."""
    is_draining: bool
    """Whether the input is over."""


def replay(spec: ChainJoin, epochs: Iterable[Epoch]) -> Iterator[Step]:
    """Run epochs, then more of them until nobody has anything to say."""
    k = spec.model.workers
    states, stores = [UnitState() for _ in range(k)], [MemoryStore() for _ in range(k)]
    with tempfile.TemporaryDirectory(prefix="bench-esj-") as folder:
        box = Mailbox(folder, "letters")
        box.create({})
        rows: list[list[list[Any]]] = [[] for _ in range(k)]
        is_waiting, clock = False, BEFORE
        coming = chain(((False, epoch) for epoch in epochs), repeat((True, (None, None, None))))
        for number, (is_draining, (left, right, now)) in enumerate(coming):
            if is_draining and not is_waiting and not any(rows):
                return
            clock = clock.then(clock.watermark_us if is_draining else now)
            step = Step(0, [], [], [], [], [], [], is_draining)
            results, is_waiting = 0, False
            fresh = {
                side: batch for side, batch in zip(Side, (left, right), strict=True) if batch is not None
            }
            going: list[list[list[Any]]] = [[] for _ in range(k)]
            for place in range(k):
                began = time.process_time()
                inbox = ChainInbox(is_quiet=not fresh)
                inbox.tuples = {side: new for side, new in fresh.items() if spec.model.end(side) == place}
                for side, kind, _, data in sorted(rows[place], key=itemgetter(0, 2)):
                    inbox.letters[side].append(opened(kind, data))
                worker = ChainWorker(spec, place, states[place], stores[place])
                results += sum(matches.left.num_rows for matches in worker.epoch(inbox, clock))
                box.post(number, place, posted(place, worker.sent, range(k)))
                states[place] = worker.state
                if worker.sent:
                    for batch in box.fetch(number, place):
                        names = ("side", "kind", "origin", "block", "to")
                        columns = (batch.column(name).to_pylist() for name in names)
                        for *row, to in zip(*columns, strict=True):
                            going[to].append(row)
                step.cpu_s.append(time.process_time() - began)
                step.workers.append(worker.counters)
                step.block.append(worker.block)
                step.blocks_sent.append(
                    sum(isinstance(letter.message, TupleBlk) for _, letter in worker.sent)
                )
                known = states[place].chained
                step.loads.append(sum(known["remembered"]["held"]))
                step.costs.append(BlockCost(*known["measured"]) if known["measured"] else None)
                is_waiting |= worker.is_waiting
            box.clear(number)
            rows = going
            yield Step(results, *list(vars(step).values())[1:])
