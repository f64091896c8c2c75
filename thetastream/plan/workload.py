"""What a join asks of any model: how many tuples come, how long each stays, how large it is.

held(i) = rate(i) * (W(i) + watermark delay + epoch + half a segment)

A tuple of stream i is dropped when the watermark has passed t + W(i); the watermark is ``delay`` behind
the latest event time, and an epoch begins with the one that the epoch before left. A segment goes when its
last tuple may go, so its tuples outlive their time by half its span on average.
"""

from dataclasses import dataclass, replace

from thetastream.condition import Domain
from thetastream.joiner.chain import SHARED_PERIODS, SHARED_ROWS
from thetastream.joiner.placing import band_to_route_by
from thetastream.joiner.unit import SUBINDEXES_PER_WINDOW
from thetastream.models.base import Model
from thetastream.plan.lower import Lowered, lifetimes
from thetastream.plan.query import Query
from thetastream.plan.statistics import Statistics
from thetastream.types import Side

HOUR_S = 3_600.0
_DIRECTORY = 16
"""Bytes of an edge and an offset."""
_NUMBERS = 24
"""Bytes that count windows add to a stored tuple: its two numbers, one of them a key too."""
_FIXED = {
    "boolean": 0.125,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "float": 4,
    "date": 4,
    "decimal": 16,
    "string": 20,
    "char": 20,
    "varchar": 20,
    "binary": 20,
    "array": 64,
    "map": 64,
    "struct": 64,
    "variant": 64,
    "geometry": 64,
    "geography": 64,
}
"""Bytes of a value in Arrow by the head of its Spark type: text of 16 bytes and an offset; others 8."""


@dataclass(frozen=True)
class Inflow:
    """One stream as costs see it."""

    alias: str
    rate: float
    """Tuples per second of event time."""
    span_s: float | None
    """Event time for which a tuple is kept; None: for ever."""
    stored_bytes: float
    """Of a stored tuple, with its key row and its share of the directory."""
    sent_bytes: float
    """Of a tuple in a block."""
    n_segments: float
    """Subindexes that a probe of this stream's stored tuples visits."""

    def held(self, hours: float = 1.0) -> float:
        """Tuples kept at a time: those of the window, or of ``hours`` if none ever go."""
        return self.rate * (hours * HOUR_S if self.span_s is None else self.span_s)


@dataclass(frozen=True)
class Workload:
    """Both streams, and what a probe costs."""

    inflows: tuple[Inflow, Inflow]
    index: str
    candidates: float | None
    """Pairs the index offers per tuple; None: not known."""
    heaviest_key: float
    """Share of tuples with the most frequent key, or in the fullest cell of a band; 0 without both."""
    content: str | None = None
    """What tuples can be routed by: ``hash`` of an equality's keys, ``range`` of a band's, or nothing."""
    skew_is_known: bool = False

    def is_ranged(self, model: Model) -> bool:
        """Whether a model routes by cells of a band here."""
        return (self.content if model.routing == "auto" else model.routing) == "range"

    @property
    def is_bounded(self) -> bool:
        """Whether state stops growing."""
        return all(inflow.span_s is not None for inflow in self.inflows)


def workload(query: Query, lowered: Lowered, statistics: Statistics) -> Workload:
    """The figures of a planned join."""
    condition = lowered.physical.condition
    content = "hash" if condition.equalities else None if band_to_route_by(condition) is None else "range"
    inflows = [_inflow(side, query, lowered, statistics) for side in Side]
    return Workload(
        inflows=(inflows[0], inflows[1]),
        index=lowered.physical.indexes[0].kind,
        candidates=statistics.candidates_per_tuple,
        heaviest_key=0.0 if content is None else statistics.skew,
        content=content,
        skew_is_known=statistics.heaviest_key is not None,
    )


def delay_s(query: Query, statistics: Statistics) -> float:
    """How far the watermark is behind: the slower stream's holds it."""
    if statistics.watermark_delay_s is not None:
        return statistics.watermark_delay_s
    return max(stream.watermark_delay_us or 0 for stream in query.streams) / 1e6


def _inflow(side: Side, query: Query, lowered: Lowered, statistics: Statistics) -> Inflow:
    alias = query.aliases[side]
    rate = statistics.rate(side, alias)
    sent, stored = _nbytes(side, lowered)
    flow = Inflow(alias, rate, None, statistics.nbytes(side, alias) or stored, sent, 1.0)
    if lowered.physical.counts is not None:
        # The last n, those of an epoch that came too late to drop others, and half a subindex.
        n = lowered.physical.counts[side] * (1 + 0.5 / SUBINDEXES_PER_WINDOW)
        return replace(
            flow, span_s=n / max(rate, 1e-9) + statistics.epoch_s, n_segments=SUBINDEXES_PER_WINDOW
        )
    life_us = lifetimes(lowered.physical.condition.window)[side]
    if life_us is None or lowered.physical.archive_period_us is None:
        return flow
    segment_s = _segment_s(lowered.physical.archive_period_us / 1e6, statistics.epoch_s, rate)
    span_s = life_us / 1e6 + delay_s(query, statistics) + statistics.epoch_s + segment_s / 2
    return replace(flow, span_s=span_s, n_segments=max(1.0, span_s / segment_s))


def _segment_s(period_s: float, epoch_s: float, rate: float) -> float:
    """Event time of a segment: an archive period, or as many as thin ones of one epoch share."""
    shared = min(SHARED_PERIODS, epoch_s / period_s, SHARED_ROWS / max(rate * period_s, 1.0))
    return period_s * max(1.0, shared)


def _nbytes(side: Side, lowered: Lowered) -> tuple[float, float]:
    """Bytes of a tuple as sent, and as stored: its key row (event time and keys) and directory beside it."""
    spec = lowered.physical.condition.sides[side]
    carried = sum(width(column.block_type) for column in lowered.physical.sides[side].carried)
    domains = {key.column: key.domain for key in spec.keys}
    computed = sum(_KEY_WIDTH.get(domains.get(column, Domain.INT), 8) for column in spec.computed)
    sent = carried + computed
    kind = lowered.physical.indexes[side].kind
    numbers = 0 if lowered.physical.counts is None else _NUMBERS
    # At most one entry per tuple: as if every tuple had a key of its own.
    return sent, sent + numbers + 8 * (1 + len(spec.keys)) + (
        _DIRECTORY if kind in ("hash", "hash_sorted") else 0
    )


_KEY_WIDTH = {Domain.DECIMAL: 16, Domain.WIDE_DECIMAL: 16, Domain.TEXT: 20}


def width(type_: str) -> float:
    """Bytes of a value.

    >>> [width(type_) for type_ in ("bigint", "decimal(10,2)", "varchar(9)", "array<int>", "interval day")]
    [8, 16, 20, 64, 8]
    """
    head = type_.split("<")[0].split("(")[0].split(" ")[0]
    return _FIXED.get(head, 8)
