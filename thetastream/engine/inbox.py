"""The inbox of a unit: the blocks of new tuples and the messages that it receives in an epoch.

If units may change while the join runs, the inbox also says which other units there are in the epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.core.blocks import concat
from thetastream.core.sides import Role


class Message(NamedTuple):
    """A message from one unit to another unit or to all units. It arrives in the next epoch."""

    header: str
    """The header as JSON. Each engine defines the meaning of its headers."""
    block: pa.RecordBatch | None = None
    """The tuples that the message carries."""
    to: int | None = None
    """Slot of the unit that receives the message; None means all units of the epoch that reads it."""
    sender: int = -1
    """Slot of the unit that sent the message. The code that delivers the message fills it in."""


class ShedReport(NamedTuple):
    """What one router task did with the tuples of one stream in an epoch."""

    stream: int
    shed: int = 0
    """Tuples that were dropped."""
    shed_probes: int = 0
    """Tuples that are stored but do not look for partners."""
    counted: int = 0
    median_us: int | None = None
    """The median event time of ``counted`` tuples, in microseconds, dropped ones included. It is None if
    nothing needs it."""
    arrived: Sequence[int] | None = None
    kept: Sequence[int] | None = None
    """For each cell, the tuples that arrived, and those that later tuples can find. None if tuples are
    dropped at random."""


class Peers(NamedTuple):
    """The generations of units that are alive, and whether this unit still stores new tuples."""

    generations: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    """For each generation that holds tuples, newest first: its model, and the slots of its units. It is empty
    for an engine whose units send no messages."""
    slots: tuple[int, ...] = ()
    """The slots of the generation of this unit. It is empty in the epoch before a unit stores its first
    tuple."""
    last_epoch: int | None = None
    """The last epoch in which this unit stores new tuples. None if its generation is the newest one."""
    slot: int | None = None
    """The slot of this unit. None if it is the number of the unit, because units do not change."""
    began: int | None = -1
    """The epoch in which this unit took over from an older generation; None if it has not."""
    arrived: Sequence[int] | None = None
    """How many left and right tuples had arrived before this unit began to count. It is told once."""

    def is_newest(self, epoch: int) -> bool:
        """Whether this unit stores the new tuples of an epoch, in a join whose generations take over.

        >>> Peers(began=4).is_newest(4), Peers(began=4).is_newest(5), Peers(began=None).is_newest(5)
        (False, True, False)
        """
        return self.began is not None and epoch > self.began and not self.has_left(epoch)

    def has_left(self, epoch: int) -> bool:
        """Whether new tuples of an epoch are stored by a newer generation.

        >>> Peers(last_epoch=4).has_left(4), Peers(last_epoch=4).has_left(5), Peers().has_left(5)
        (False, True, False)
        """
        return self.last_epoch is not None and epoch > self.last_epoch

    @property
    def share_of_sender(self) -> float:
        """Which part of the tuples that a unit may receive in an epoch comes from each unit that leaves.

        >>> Peers(((None, (4, 5)), (None, (0, 1, 2, 3)))).share_of_sender
        0.5
        >>> Peers(((None, (2, 3, 4)), (None, (0, 1, 2)))).share_of_sender
        1.0
        """
        newest, *older = (slots for _, slots in self.generations)
        senders = {slot for slots in older for slot in slots} - set(newest)
        return min(1.0, len(newest) / max(1, len(senders)))


ALONE = Peers()
"""The peers of a unit of a join whose units do not change."""


@dataclass
class Inbox:
    """The new tuples and messages of one unit and epoch.

    Both are in the order in which their sources sent them, whatever the order in which the exchange delivered
    them.
    """

    received: int = 0
    """Tuples that the exchange delivered, copies included."""
    received_bytes: int = 0
    """Bytes of blocks and messages in the exchange."""
    messages: list[Message] = field(default_factory=list)
    shed: list[ShedReport] = field(default_factory=list)
    """What the routers dropped. Only the first unit gets these reports."""
    peers: Peers = ALONE
    """The other units of a join whose units may change."""
    tasks: Sequence[Any] | None = None
    """The join tasks that run from the next epoch on, as plain values; None if they stay as they are."""
    _blocks: dict[tuple[int, Role], list[tuple[int, pa.RecordBatch]]] = field(default_factory=dict)

    def add(self, stream: int, role: int, origin: int, block: pa.RecordBatch, sent_bytes: int) -> None:
        """Add a block. ``origin`` is its place among the blocks of its stream."""
        self.received += block.num_rows
        self.received_bytes += sent_bytes
        self._blocks.setdefault((int(stream), Role(role)), []).append((origin, block))

    def deliver(self, message: Message, sent_bytes: int) -> None:
        """Add a message. The messages of one sender must be added in the order in which they were sent."""
        self.received += 0 if message.block is None else message.block.num_rows
        self.received_bytes += sent_bytes
        self.messages.append(message)

    @property
    def is_quiet(self) -> bool:
        """Whether the inbox has no block of any stream."""
        return not self._blocks

    def batch(self, stream: int, role: Role) -> pa.RecordBatch | None:
        """Return the tuples of one stream and role; None if there are none."""
        blocks = self.blocks(stream, role)
        return concat(blocks) if blocks else None

    def blocks(self, stream: int, role: Role) -> list[pa.RecordBatch]:
        """Return the tuples of one stream and role, block by block."""
        found = sorted(self._blocks.get((int(stream), role), []), key=lambda block: block[0])
        return [block for _, block in found]
