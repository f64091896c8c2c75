"""The inbox of a unit: the blocks of new tuples and the messages that it receives in an epoch."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.blocks import concat
from thetastream.core.sides import Role
from thetastream.engine.peers import ALONE, Peers


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
