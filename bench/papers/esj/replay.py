"""Replays a handshake chain in one process, with a mailbox on disk as in Spark; measures CPU time by worker.

In an epoch, a worker opens its letters, runs, and seals and posts what it sends. Reading a file counts for
its sender. An epoch of the chain lasts as long as that of its slowest worker.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import cast

import pyarrow as pa

from bench.core import internals as inside
from bench.core.internals import BlockCost, HandshakeWorker, Message
from bench.core.query import Query
from bench.core.replay import Step
from thetastream.models import Chain

Epoch = tuple[pa.RecordBatch | None, pa.RecordBatch | None, int | None]
"""The new tuples of left and right, and the watermark."""
Sealed = tuple[int, str, bytes]
"""A message in the mailbox: origin, header, packed block."""


@dataclass
class ChainStep(Step):
    is_draining: bool
    """Whether the input is over."""
    loads: list[int] = field(default_factory=list)
    """The number of stored tuples of each worker, without copies."""
    blocks_sent: list[int] = field(default_factory=list)
    """The number of TUPLE_BLK messages of each worker."""
    block: list[int] = field(default_factory=list)
    """The largest number of tuples of a block, for each worker."""
    costs: list[BlockCost | None] = field(default_factory=list)
    """The costs that each worker has measured for the choice of a block."""


class Post:
    """Delivers the letters that workers have posted in the epoch before."""

    def __init__(self, folder: str, workers: int) -> None:
        self._box = inside.Mailbox(folder, "letters")
        self._box.create({})
        self._workers = range(workers)
        self._coming: list[list[Sealed]] = [[] for _ in self._workers]
        self._going: list[list[Sealed]] = [[] for _ in self._workers]

    def turn(self) -> bool:
        """Deliver the posted letters; return whether there are any."""
        self._coming, self._going = self._going, [[] for _ in self._workers]
        return any(self._coming)

    def send(self, epoch: int, place: int, messages: Sequence[Message]) -> None:
        """Write the file of a worker, and read it back."""
        self._box.post(epoch, place, list(inside.pages(messages, place, self._workers)))
        for batch in self._box.fetch(epoch, place) if messages else ():
            columns = [batch.column(n).to_pylist() for n in ("origin", "header", "block", "to")]
            for origin, header, block, to in zip(*columns, strict=True):
                for one in to:
                    self._going[one["unit"]].append((origin, header, block))

    def clear(self, epoch: int) -> None:
        self._box.clear(epoch)

    def messages(self, place: int) -> Iterator[Message]:
        """Unpack the messages to a worker in the order of their senders and numbers."""
        for origin, header, block in sorted(self._coming[place], key=itemgetter(0)):
            yield Message(header, inside.unpack(block) if block else None, sender=origin >> 32)


def replay(query: Query, model: Chain, epochs: Iterable[Epoch]) -> Iterator[ChainStep]:
    """Run epochs, and then further epochs until no worker has a message."""
    unit = query.unit_spec()
    spec = inside.HandshakeSpec(unit.condition, unit.indexes, unit.archive_period_us, model)
    run = inside.LocalRun(spec)
    coming = chain(((False, epoch) for epoch in epochs), repeat((True, (None, None, None))))
    with tempfile.TemporaryDirectory(prefix="bench-esj-") as folder:
        post = Post(folder, model.workers)
        volume, is_waiting, watermark = 0, False, None
        for number, (is_draining, (left, right, now)) in enumerate(coming):
            if not post.turn() and is_draining and not is_waiting:
                return
            watermark, is_waiting = watermark if is_draining else now, False
            volume += sum(batch.num_rows for batch in (left, right) if batch is not None)
            step = ChainStep(volume, 0, [], [], is_draining)
            for place, inbox in enumerate(run.deliver([left, right], watermark)):
                began = time.process_time()
                for message in post.messages(place):
                    inbox.deliver(message, 0)
                worker = cast(HandshakeWorker, run.open(place))
                step.results += sum(len(columns[0]) for columns in run.run(place, inbox, worker))
                # Letters go through the mailbox and not through the list of the local run.
                run.in_flight.clear()
                post.send(number, place, worker.messages)
                step.cpu_s.append(time.process_time() - began)
                note(step, worker)
                is_waiting |= worker.is_waiting
            post.clear(number)
            yield step


def note(step: ChainStep, worker: HandshakeWorker) -> None:
    """Add the counters of a worker to the step."""
    step.units.append(worker.counters)
    step.block.append(worker.block)
    step.blocks_sent.append(sum(isinstance(letter.header, inside.TupleBlk) for _, letter in worker.sent))
    known = worker.state.neighbourhood
    step.loads.append(sum(known.remembered.held))
    step.costs.append(BlockCost(*known.measured) if known.measured else None)
