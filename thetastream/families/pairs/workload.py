"""The workload of a join: how many tuples arrive, how long they are stored, and how large they are.

held(i) = rate(i) * (W(i) + watermark delay + epoch + half a segment)

A tuple of stream i is dropped when the watermark has passed t + W(i). The watermark is ``delay`` behind the
latest event time, and an epoch uses the watermark that the epoch before it left. A segment is dropped when
its last tuple expires, so its tuples are stored half its span too long on average.

The second exchange of a join that answers tuples by a condition that Spark evaluates in part.

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> second exchange -> second units

How many pairs Spark drops is not known, so costs are those of all candidate pairs.
"""

from dataclasses import dataclass, replace

from thetastream.core.condition import SUBINDEXES_PER_WINDOW, Domain
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.store.period_spans import (
    SEGMENTS_PER_EPOCH,
    SHARED_PERIODS,
    SHARED_ROWS,
    SPARSE_ROWS,
)
from thetastream.engine.two_stream.content_routing import find_routable_band
from thetastream.index.base import CANDIDATE_S, Shape
from thetastream.lowering.lower import Lowered
from thetastream.lowering.physical import compute_lifetimes
from thetastream.lowering.query import Query
from thetastream.lowering.statistics import Statistics, estimate_width
from thetastream.models.base import AUTO, Model

HOUR_S = 3_600.0
_NUMBERS = 24
"""Bytes that count windows add to a stored tuple: two numbers, of which one is also a key."""


@dataclass(frozen=True)
class Inflow:
    """The figures of one stream that costs depend on."""

    alias: str
    rate: float
    """Tuples per second of event time."""
    span_s: float | None
    """Event time for which a tuple is stored, in seconds. None means for ever."""
    stored_bytes: float
    """Bytes of a stored tuple, with its key row and its share of the directory."""
    sent_bytes: float
    """Bytes of a tuple in a block."""
    n_segments: float
    """Number of subindexes that a probe of this stream's stored tuples visits."""

    def estimate_held(self, hours: float = 1.0) -> float:
        """Estimate the stored tuples: those of the window, or those of ``hours`` if there is no window."""
        return self.rate * (hours * HOUR_S if self.span_s is None else self.span_s)


@dataclass(frozen=True)
class SecondExchange:
    """The rows that first units hand to second units: candidate pairs, and each preserved tuple once."""

    preserved: tuple[Side, ...]
    """The streams whose tuples are answered one by one."""
    row_bytes: float
    """Bytes of a row. It has the columns of both streams, and numbers of tuples."""


@dataclass(frozen=True)
class Workload:
    """The figures of both streams, and those that determine the cost of a probe."""

    inflows: tuple[Inflow, Inflow]
    index: Shape
    """The shape of the index in which the tuples of both streams are stored."""
    candidates: float | None
    """Candidates that the index offers per tuple. None means that the number is not known."""
    heaviest_key: float
    """Share of tuples with the most frequent key, or in the fullest cell of a band. It is 0 without keys."""
    content: str | None = None
    """How tuples can be routed: by ``hash`` of an equality's keys, by ``range`` of a band's, or None."""
    skew_is_known: bool = False
    """Whether the user gave the heaviest key's share."""
    needs_partners: bool = False
    """Whether all partners of a tuple must meet it at one unit.

    Without routing by content, one stream is then copied to all units, so that no number of units is more
    than twice as fast as one unit if both streams have the same rate. Therefore content routes such a join
    even if the skew is not known."""
    second: SecondExchange | None = None
    """The exchange behind the units; None if there is none."""
    candidate_s: float = CANDIDATE_S
    """Seconds to compare one candidate, Python predicates included."""

    @property
    def step_s(self) -> float:
        """Seconds of one step of a search. If each stored tuple is a candidate, predicates are included."""
        in_predicates = max(0.0, self.candidate_s - CANDIDATE_S) if self.index.cost.looks_at_all else 0.0
        return self.index.cost.step_s + in_predicates

    def is_ranged(self, model: Model) -> bool:
        """Whether a model routes this workload by cells of a band."""
        routing = model.needs_places or AUTO
        return (self.content if routing == AUTO else routing) == "range"

    @property
    def is_bounded(self) -> bool:
        """Whether the size of the state is bounded."""
        return all(inflow.span_s is not None for inflow in self.inflows)


def build_workload(query: Query, lowered: Lowered, statistics: Statistics) -> Workload:
    """Build the workload of a planned join."""
    condition = lowered.physical.condition
    content = "hash" if condition.equalities else None if find_routable_band(condition) is None else "range"
    inflows = [_estimate_inflow(side, query, lowered, statistics) for side in Side]
    return Workload(
        inflows=(inflows[0], inflows[1]),
        index=lowered.physical.indexes[0].shape,
        candidates=statistics.candidates_per_tuple,
        heaviest_key=0.0 if content is None else statistics.skew,
        content=content,
        skew_is_known=statistics.heaviest_key is not None,
        needs_partners=not query.how.is_inner,
        second=find_second_exchange(lowered),
        candidate_s=statistics.candidate_s(bool(query.predicates)),
    )


def estimate_delay_s(query: Query, statistics: Statistics) -> float:
    """Estimate the seconds that the watermark is behind. The largest delay of the streams determines it."""
    if statistics.watermark_delay_s is not None:
        return statistics.watermark_delay_s
    return max(stream.watermark_delay_us or 0 for stream in query.streams) / 1e6


def _estimate_inflow(side: Side, query: Query, lowered: Lowered, statistics: Statistics) -> Inflow:
    alias = query.aliases[side]
    rate = statistics.rate(side, alias)
    sent, stored = _estimate_nbytes(side, lowered)
    flow = Inflow(alias, rate, None, statistics.nbytes(side, alias) or stored, sent, 1.0)
    if lowered.physical.counts is not None:
        # A side stores the last n tuples, those of the current epoch, and half a subindex on average.
        n = lowered.physical.counts[side] * (1 + 0.5 / SUBINDEXES_PER_WINDOW)
        return replace(
            flow, span_s=n / max(rate, 1e-9) + statistics.epoch_s, n_segments=SUBINDEXES_PER_WINDOW
        )
    life_us = compute_lifetimes(lowered.physical.condition.window)[side]
    if life_us is None or lowered.physical.archive_period_us is None:
        return flow
    segment_s = _estimate_segment_s(lowered.physical.archive_period_us / 1e6, statistics.epoch_s, rate)
    span_s = life_us / 1e6 + estimate_delay_s(query, statistics) + statistics.epoch_s + segment_s / 2
    return replace(flow, span_s=span_s, n_segments=max(1.0, span_s / segment_s))


def _estimate_segment_s(period_s: float, epoch_s: float, rate: float) -> float:
    """Estimate the event time that a segment spans: one archive period, or several if they are thin.

    ``cut_periods`` decides it.
    """
    shared = min(SHARED_PERIODS, epoch_s / period_s, SHARED_ROWS / max(rate * period_s, 1.0))
    sparse_s = max(SPARSE_ROWS / max(rate, 1e-9), epoch_s / SEGMENTS_PER_EPOCH)
    return max(period_s, period_s * shared, min(epoch_s, sparse_s))


def _estimate_nbytes(side: Side, lowered: Lowered) -> tuple[float, float]:
    """Estimate the bytes of a tuple as sent and as stored.

    A stored tuple also has a key row (event time and keys) and a share of the directory.
    """
    spec = lowered.physical.condition.sides[side]
    carried = sum(estimate_width(column.block_type) for column in lowered.physical.sides[side].carried)
    domains = {key.column: key.domain for key in spec.keys}
    computed = sum(_KEY_WIDTH.get(domains.get(column, Domain.INT), 8) for column in spec.computed)
    sent = carried + computed
    numbers = 0 if lowered.physical.counts is None else _NUMBERS
    directory = lowered.physical.indexes[side].shape.cost.entry_bytes
    return sent, sent + numbers + 8 * (1 + len(spec.keys)) + directory


_KEY_WIDTH = {Domain.DECIMAL: 16, Domain.WIDE_DECIMAL: 16, Domain.TEXT: 20}


def find_second_exchange(lowered: Lowered) -> SecondExchange | None:
    """Return the second exchange of a planned join; None if there is none."""
    physical = lowered.physical
    if physical.how.is_inner or not physical.residual:
        return None
    left, right = (tuple(column.block_column for column in side.carried) for side in physical.sides)
    numbers = CandidateColumns(physical.how, (left, right), physical.ranking).types.values()
    values = [estimate_width(column.block_type) for side in physical.sides for column in side.carried]
    return SecondExchange(physical.how.preserved, sum(values) + sum(type_.bit_width / 8 for type_ in numbers))
