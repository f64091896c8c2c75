"""The counters of a node of a multi-way join."""

from dataclasses import dataclass, field

from thetastream.engine.counters import SendingCounters


@dataclass
class MultiwayCounters(SendingCounters):
    """The work that one node did in one epoch."""

    waiting: int = 0
    """Stored tuples that have not begun to look for partners, because too many tuples are in flight."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """By alias, the hop order of the tuples of each stream, if hop orders are refined."""
