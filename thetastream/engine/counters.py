"""Counters of the work that a unit did in an epoch.

Every engine fills the counters that ``Counters`` names. An engine that does other work as well defines a
subclass with more counters in its own module. The sum over all units is the number for the whole join.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.sides import Side
from thetastream.engine.store.segment import SegmentMeta


@dataclass
class Arrived:
    """The tuples of one stream in one epoch. Each tuple is counted at one unit only."""

    timely: int = 0
    late: int = 0
    newest_us: int | None = None
    """Latest event time of the stream's tuples, in microseconds since 1970; None if there is none."""
    shed: int = 0
    """Tuples that the router dropped because the load was too high."""
    shed_probes: int = 0
    """Timely or late tuples that did not look for partners because the load was too high."""
    delay_us: int | None = None
    """Delay of the stream's watermark in microseconds; None if it has none, or is the result of a join."""


class LateTuples(NamedTuple):
    """Late tuples of one stream, with the columns of their block."""

    stream: int
    tuples: pa.RecordBatch


@dataclass
class Counters:
    """The work that one unit did in one epoch.

    ``late_tuples`` holds the late tuples that are counted, if they are kept. ``expects_tuples`` says whether
    stored tuples of other units may still pass this unit. ``partners_until_us`` is the watermark from which
    on no stored tuple can be a partner of a new preserved tuple; it is None if no such tuple is stored.
    ``arrived`` says how many left and right tuples have arrived so far, if results are ordered. They are no
    counters, so they are not reported.
    """

    left: int = 0
    right: int = 0
    """Timely tuples of the first and of the second stream. Each tuple is counted at one unit only."""
    received: int = 0
    received_bytes: int = 0
    """Tuples that the exchange delivered, copies included, and the bytes of their blocks and of messages."""
    stored: int = 0
    probed: int = 0
    matched: int = 0
    late: int = 0
    """Late tuples of all streams. Each tuple is counted at one unit only."""
    late_deletes: int = 0
    """The late tuples that are deletes: their rows stay in the answer."""
    unknown_deletes: int = 0
    """Deletes that leave the state without an insert: their rows were never there. Each copy counts."""
    shed: int = 0
    """Tuples of all streams that the router dropped because the load was too high."""
    shed_probes: int = 0
    """Tuples of all streams that did not look for partners because the load was too high."""
    expired: int = 0
    candidates: int = 0
    segments: int = 0
    held: int = 0
    """Stored tuples at the end of the epoch, copies included."""
    mlv_bytes: int = 0
    """Memory load volume: bytes of the stored tuples and their index."""
    state_bytes: int = 0
    """Bytes of the stored tuples in the durable store."""
    busy_ms: int = 0
    """Milliseconds in which the unit joined, stored and expired tuples."""
    predicate_us: int = 0
    """Microseconds of these in which predicates compared candidates: Python functions, and comparisons that
    an index only approximates."""
    emitted_bytes: int = 0
    """Bytes of the rows that leave the unit, in Arrow format."""
    streams: dict[str, Arrived] = field(default_factory=dict)
    """By alias, the arrived tuples of each stream whose home is this unit."""

    def __post_init__(self) -> None:
        self.late_tuples: list[LateTuples] | None = None
        self.expects_tuples = False
        self.partners_until_us: int | None = None
        self.arrived: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the unit holds nothing at the end of the epoch that a later epoch may need."""
        return self.held == 0 and not self.expects_tuples

    def keep_late(self) -> None:
        """Keep late tuples from now on."""
        self.late_tuples = []

    def list_streams(self, aliases: Iterable[str]) -> None:
        """List streams whose home is this unit, so that a stream without tuples is reported too."""
        for alias in aliases:
            self.streams.setdefault(alias, Arrived())

    def tell_delays(self, delays_us: Mapping[str, int]) -> None:
        """Tell the delay of the watermark of each stream that has one, by alias."""
        for alias, arrived in self.streams.items():
            arrived.delay_us = delays_us.get(alias)

    def admit(self, stream: int, alias: str, timely: int, late: int, newest_us: int | None) -> None:
        """Count tuples of one stream at their home, so that each is counted once."""
        self.left += timely if stream == Side.LEFT else 0
        self.right += timely if stream == Side.RIGHT else 0
        arrived = self.streams.setdefault(alias, Arrived())
        arrived.timely += timely
        arrived.late += late
        self.late += late
        if newest_us is not None:
            arrived.newest_us = newest_us if arrived.newest_us is None else max(arrived.newest_us, newest_us)

    def count_shed(self, alias: str, shed: int, shed_probes: int) -> None:
        """Count the tuples of one stream that a router dropped."""
        arrived = self.streams.setdefault(alias, Arrived())
        arrived.shed += shed
        arrived.shed_probes += shed_probes
        self.shed += shed
        self.shed_probes += shed_probes

    def count_state(self, segments: Sequence[SegmentMeta]) -> None:
        """Count the stored tuples at the end of the epoch."""
        self.segments = len(segments)
        self.held = sum(meta.n_rows for meta in segments)
        self.mlv_bytes = sum(meta.nbytes for meta in segments)
        self.state_bytes = sum(meta.durable_bytes for meta in segments)

    def count_sent(self, n_bytes: int) -> None:
        """Count the bytes of all messages that the unit sent; a unit without messages sends nothing."""
        assert n_bytes == 0


@dataclass
class SendingCounters(Counters):
    """The work of a unit that sends messages."""

    forwarded: int = 0
    """Tuples or partial results that the unit sent to another unit."""
    forwarded_bytes: int = 0
    """Bytes of all messages that the unit sent."""

    def count_sent(self, n_bytes: int) -> None:
        """Count the bytes of all messages that the unit sent."""
        self.forwarded_bytes = n_bytes
