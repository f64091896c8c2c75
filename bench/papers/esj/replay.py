"""Replays a handshake chain in one process, with a mailbox on disk as in Spark; measures CPU time by worker.

In an epoch, a worker opens its letters, runs, and seals and posts what it sends. Reading a file counts for
its sender. An epoch of the chain lasts as long as that of its slowest worker.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from bench.core import internals as inside
from bench.core.internals import BlockCost, HandshakeWorker, Message
from bench.core.query import Query
from bench.core.replay import Step, find_latest
from thetastream.models import Chain

Epoch = tuple[pa.RecordBatch | None, pa.RecordBatch | None, int | None]
"""The new tuples of left and right, and the watermark."""
Sealed = tuple[int, str, bytes]
"""A message in the mailbox: origin, header, packed block."""


@dataclass
class ChainStep(Step):
    is_draining: bool = False
    """Whether the input is over."""
    loads: list[int] = field(default_factory=list)
    """The number of stored tuples of each worker, without copies."""
    blocks_sent: list[int] = field(default_factory=list)
    """The number of TUPLE_BLK messages of each worker."""
    block: list[int] = field(default_factory=list)
    """The largest number of tuples of a block, for each worker."""
    costs: list[BlockCost | None] = field(default_factory=list)
    """The costs that each worker has measured for the choice of a block."""
    latest_us: list[int] = field(default_factory=list)
    """For each result, the event time of its later tuple."""

    def note(self, worker: HandshakeWorker) -> None:
        """Add the counters of a worker."""
        self.block.append(worker.block)
        self.blocks_sent.append(sum(isinstance(letter.header, inside.TupleBlk) for _, letter in worker.sent))
        known = worker.state.neighbourhood
        self.loads.append(sum(known.remembered.held))
        self.costs.append(BlockCost(*known.measured) if known.measured else None)


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
        self._box.post(epoch, place, list(inside.list_pages(messages, place, self._workers)))
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


class MailboxRun(inside.LocalRun):
    """A chain whose letters go through a mailbox, and not through the list of the local run."""

    def __init__(self, spec: inside.HandshakeSpec, post: Post) -> None:
        super().__init__(spec)
        self._post = post
        self.number = 0
        """The number of the epoch."""
        self.workers: list[HandshakeWorker] = []
        """The workers of the epoch."""

    def run(self, slot: int, inbox: inside.Inbox, engine: Any = None) -> Iterator[list[pa.Array]]:
        for message in self._post.messages(slot):
            inbox.deliver(message, 0)
        worker = cast(HandshakeWorker, self.open(slot))
        yield from super().run(slot, inbox, worker)
        self.in_flight.clear()
        self._post.send(self.number, slot, worker.messages)
        self.workers.append(worker)


def replay(query: Query, model: Chain, epochs: Iterable[Epoch]) -> Iterator[ChainStep]:
    """Run epochs, and then further epochs until no worker has a message."""
    unit = query.unit_spec()
    spec = inside.HandshakeSpec(unit.condition, unit.indexes, unit.archive_period_us, model)
    coming = chain(((False, epoch) for epoch in epochs), repeat((True, (None, None, None))))
    with tempfile.TemporaryDirectory(prefix="bench-esj-") as folder:
        post = Post(folder, model.workers)
        run = MailboxRun(spec, post)
        volume, watermark = 0, None
        for run.number, (is_draining, (*batches, now)) in enumerate(coming):
            if not post.turn() and is_draining and not any(worker.is_waiting for worker in run.workers):
                return
            run.workers = []
            watermark = watermark if is_draining else now
            volume += sum(batch.num_rows for batch in batches if batch is not None)
            step = ChainStep(volume, is_draining=is_draining)
            step.latest_us = find_latest(step.run(run, batches, watermark), query)
            for worker in run.workers:
                step.note(worker)
            post.clear(run.number)
            yield step
