"""What a node of a multi-way join keeps from epoch to epoch, and what it counts in an epoch."""

from dataclasses import dataclass, field
from typing import NamedTuple

from thetastream.engine.counters import SendingCounters
from thetastream.engine.multiway.hop_orders import HopMeasurements
from thetastream.engine.multiway.query import Horizon
from thetastream.engine.store.segment import SegmentMeta


class Waiting(NamedTuple):
    """Tuples of one stream and epoch that wait, all or in part. Their block is stored."""

    id: str
    """The name under which the block is stored."""
    stream: int
    horizon: Horizon
    """The horizon of the epoch in which these tuples arrived."""
    n_rows: int
    done: int
    """The number of tuples that have begun already. They are the first rows of the block."""


@dataclass
class MultiwayState:
    """The state of a node."""

    segments: list[SegmentMeta] = field(default_factory=list)
    arrived: tuple[int, ...] = ()
    """The number of tuples of each stream so far."""
    waiting: list[Waiting] = field(default_factory=list)
    admitted: list[tuple[int, int]] = field(default_factory=list)
    """For each epoch whose tuples may be in flight, its number and the number of tuples that began in it."""
    measured: HopMeasurements | None = None
    """The measurements of hops, if hop orders are refined."""
    ends_us: int | None = None
    """For a generation of ATR that a newer one replaces: the watermark at which it has ended."""


@dataclass
class MultiwayCounters(SendingCounters):
    """The work that one node did in one epoch."""

    waiting: int = 0
    """Stored tuples that have not begun to look for partners, because too many tuples are in flight."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """By alias, the hop order of the tuples of each stream, if hop orders are refined."""
