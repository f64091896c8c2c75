"""The fixed properties of a join on the handshake chain, and the state of its workers.

After a silence (``thetastream.engine.handshake.protocol``), R meet the S whose numbers lie in an interval.
For this, the probing side has two more keys, the stored side has one more, and a dimension compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from thetastream.core.columns import END, FIRST, NUMBER
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, compute_lifetime_us
from thetastream.core.sides import Side
from thetastream.engine.handshake.instructions import Group
from thetastream.engine.handshake.protocol import ProtocolState
from thetastream.engine.store.box import IndexPlan, StoredStream
from thetastream.engine.store.segment import SegmentMeta
from thetastream.index.base import IndexSpec
from thetastream.models.chain import Chain

COPIES = 3
"""The stream number of the first copies in a manifest. The copies of each block have their own stream
number."""
QUIET_EPOCHS = 2
"""The number of epochs without a new tuple after which a silence begins."""


@dataclass(frozen=True)
class HandshakeQuery:
    """The fixed properties of a join on the handshake chain. Picklable."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None
    model: Chain

    @cached_property
    def numbered(self) -> Condition:
        """The condition in which S have their numbers as an additional key."""
        left, right = self.condition.sides
        return replace(
            self.condition, sides=(left, replace(right, keys=(*right.keys, Key(NUMBER, Domain.INT))))
        )

    @cached_property
    def limited(self) -> IndexPlan:
        """The index plan by which R look for S whose numbers lie in an interval."""
        left, right = self.numbered.sides
        n = len(left.keys)
        probing = replace(left, keys=(*left.keys, Key(FIRST, Domain.INT), Key(END, Domain.INT)))
        numbers = Dimension(Side.RIGHT, len(right.keys) - 1, Bound(n), Bound(n + 1, is_strict=True), NUMBER)
        condition = replace(
            self.numbered, sides=(probing, right), dimensions=(*self.numbered.dimensions, numbers)
        )
        return IndexPlan(condition, Side.RIGHT, self.indexes[Side.RIGHT])

    def describe_stored(self, stream: int) -> StoredStream:
        """Describe how the tuples of a group, or copies, are stored."""
        side = Group(min(stream, Group.S)).side
        lifetime = compute_lifetime_us(self.condition.window, side)
        plan = self._plans[side]
        return StoredStream(stream, plan, None if lifetime is None else self.archive_period_us, lifetime)

    @cached_property
    def _plans(self) -> tuple[IndexPlan, IndexPlan]:
        left, right = (IndexPlan(self.numbered, side, self.indexes[side]) for side in Side)
        return left, right

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return any(side.time is not None for side in self.condition.sides)

    @property
    def plans(self) -> Mapping[int, IndexPlan]:
        """The index plan of every stream in a manifest."""
        return _Plans(self._plans)


class _Plans(dict[int, IndexPlan]):
    def __init__(self, plans: tuple[IndexPlan, IndexPlan]) -> None:
        super().__init__({group: plans[group.side] for group in Group})

    def __missing__(self, stream: int) -> IndexPlan:
        return self[Group.S]


@dataclass
class Neighbourhood:
    """The state of a worker without its tuples."""

    remembered: ProtocolState = field(default_factory=ProtocolState)
    """The state of the protocol."""
    copies: list[int] = field(default_factory=list)
    """The stream numbers of the copies, oldest first."""
    quiet_epochs: int = 0
    """The number of epochs without a new tuple since the last new tuple."""
    has_news: bool = False
    """Whether new tuples have arrived since the last silence. Only the right end of the chain uses it."""
    empty_epochs: int = 0
    """For how many epochs the worker has held nothing while a newer chain stores the new tuples."""
    measured: list[float] = field(default_factory=list)
    """The arguments of ``BlockCost``, as weighted means over recent epochs."""

    def falls_silent(self, is_quiet: bool) -> bool:
        """Whether a silence begins, after an epoch in which new tuples have arrived or not."""
        self.quiet_epochs = self.quiet_epochs + 1 if is_quiet else 0
        self.has_news = self.has_news or not is_quiet
        if self.quiet_epochs < QUIET_EPOCHS or not self.has_news:
            return False
        self.has_news = False
        return True


@dataclass
class HandshakeState:
    """The state of a worker: its segments, the number of tuples that entered there, and its neighbourhood."""

    segments: list[SegmentMeta] = field(default_factory=list)
    arrived: tuple[int, int] = (0, 0)
    """The numbers of left and of right tuples that have entered the chain at this worker."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
