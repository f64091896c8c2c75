"""An epoch's blocks for one unit."""

from dataclasses import dataclass, field

import pyarrow as pa

from thetastream.blocks import concat
from thetastream.types import Role, Side


@dataclass
class Inbox:
    """What the exchange brought a unit; blocks are put in the order of their source, however they came."""

    received: int = 0
    """Tuples, copies included."""
    received_bytes: int = 0
    """Bytes of the blocks as they travelled."""
    _blocks: dict[tuple[Side, Role], list[tuple[int, pa.RecordBatch]]] = field(default_factory=dict)

    def add(self, side: int, role: int, origin: int, block: pa.RecordBatch, sent_bytes: int) -> None:
        """Take in a block; ``origin`` is its place among the blocks of its stream."""
        self.received += block.num_rows
        self.received_bytes += sent_bytes
        self._blocks.setdefault((Side(side), Role(role)), []).append((origin, block))

    def batch(self, side: Side, role: Role) -> pa.RecordBatch | None:
        """The tuples of one side and role; None if there are none."""
        blocks = sorted(self._blocks.get((side, role), []), key=lambda block: block[0])
        return concat([block for _, block in blocks]) if blocks else None
