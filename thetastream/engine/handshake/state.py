"""The state that a worker of the handshake chain keeps from epoch to epoch."""

from dataclasses import dataclass, field

from thetastream.engine.handshake.protocol import ProtocolState
from thetastream.engine.store.segment import SegmentMeta

QUIET_EPOCHS = 2
"""The number of epochs without a new tuple after which a silence begins."""


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
