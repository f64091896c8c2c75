"""Hypothesis strategies for conditions, for streams with disorder and late tuples, and for epochs.

The value ranges are small, because joins fail at equal keys, touching bounds and empty intervals.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support import oracle
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    MeasuredPair,
    SideSpec,
)
from thetastream.core.measure import MeasureLimit
from thetastream.core.row_limit import RowLimit
from thetastream.core.sides import Side
from thetastream.index import REGISTRY as SHAPES
from thetastream.index import Indexable, IndexSpec
from thetastream.index.measures import REGISTRY as MEASURES
from thetastream.index.measures.vectors import VectorMeasure

INTS = st.one_of(st.integers(-6, 6), st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1]))
FLOATS = st.one_of(
    st.integers(-6, 6).map(float),
    st.sampled_from([-0.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324]),
)
VALUES = {Domain.INT: INTS, Domain.FLOAT: FLOATS}
OFFSETS = {
    Domain.INT: st.sampled_from([0, 0, -2, 1]),
    Domain.FLOAT: st.sampled_from([0.0, 0.0, -0.1, 2.0, float("inf")]),
}
TYPES: dict[Domain, pa.DataType] = {Domain.INT: pa.int64(), Domain.FLOAT: pa.float64()}


def values(key: Key) -> st.SearchStrategy[Any]:
    """Draw values of a key column. Sums must not overflow, because Spark would raise before the engine
    runs."""
    return st.integers(-6, 6) if key.domain is Domain.INT and key.offset else VALUES[key.domain]


@dataclass(frozen=True)
class Case:
    """A condition, the indexes of both sides, and epochs of (left rows, right rows, watermark)."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None
    epochs: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]], int | None], ...]

    def batch(
        self, side: Side, rows: list[dict[str, Any]], more: Mapping[str, pa.Array] | None = None
    ) -> pa.RecordBatch:
        """Convert rows to a block of ``side``, with more columns behind the payload."""
        spec = self.condition.sides[side]
        fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("t", pa.int64())]
        fields += [pa.field(key.column, TYPES[key.domain]) for key in spec.keys]
        vectors = [pair.columns[side] for pair in self.condition.measured]
        vectors += [] if self.condition.ranked is None else [self.condition.ranked.columns[side]]
        fields += [pa.field(name, pa.list_(pa.float32())) for name in dict.fromkeys(vectors)]
        thresholds = (pair.thresholds[side] for pair in self.condition.measured)
        fields += [pa.field(name, pa.float64()) for name in thresholds if name is not None]
        batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))
        for name, column in (more or {}).items():
            batch = batch.append_column(name, column)
        return batch

    def answer(self) -> tuple[Counter[tuple[Any, Any]], int]:
        """Compute the bag of (left id, right id) by a nested loop, and the number of late tuples."""
        kept: tuple[list[oracle.Row], list[oracle.Row]] = ([], [])
        late = 0
        for left, right, late_us in oracle.pair_with_late_watermark(self.epochs):
            for side, rows in zip(Side, (left, right), strict=True):
                timely = oracle.timely(rows, late_us, "t")
                late += len(rows) - len(timely)
                kept[side].extend(timely)
        return oracle.join(self.condition, *kept), late


PLACES = ("last", "first", "before 1970")
"""Where ``stretch`` puts the times of a case. The first and the last times that a block can have are those of
int64, except the highest, which stands for NULL."""
GAPS_US = (1, 60_000_000, 365 * 86_400_000_000)
"""A microsecond, a minute and a year."""


def stretch(case: Case, place: str, gap_us: int) -> Case:
    """Make a microsecond of a case last for ``gap_us``, and move all its times to another place."""
    times = [row["t"] for left, right, _ in case.epochs for row in (*left, *right)]
    base = {
        "before 1970": -(10**17),
        "first": -(2**63) - min(times, default=0) * gap_us,
        "last": 2**63 - 2 - max(times, default=0) * gap_us,
    }[place]

    def move(time: int | None) -> int | None:
        return None if time is None else base + time * gap_us

    def move_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "t": move(row["t"])} for row in rows]

    window = case.condition.window
    if window is not None:
        low, high = (
            None if bound is None else replace(bound, delta=bound.delta * gap_us)
            for bound in (window.low, window.high)
        )
        window = Dimension(window.point, window.key, low, high)
    period = None if case.archive_period_us is None else case.archive_period_us * gap_us
    epochs = [(move_rows(left), move_rows(right), move(watermark)) for left, right, watermark in case.epochs]
    return Case(replace(case.condition, window=window), case.indexes, period, tuple(epochs))


@st.composite
def conditions(draw: st.DrawFn, keys: tuple[Key, ...] | None = None) -> Condition:
    """Draw a condition over keys of both domains: up to two equalities, three dimensions and an overlap of
    intervals, with or without a window."""
    if keys is None:
        drawn = draw(st.lists(st.sampled_from([Domain.INT, Domain.FLOAT]), min_size=1, max_size=4))
        keys = tuple(Key(f"k{i}", domain, draw(OFFSETS[domain])) for i, domain in enumerate(drawn))
    domains = [key.domain for key in keys]
    position = st.integers(0, len(keys) - 1)

    def same_domain(key: int) -> st.SearchStrategy[int]:
        return st.sampled_from([i for i, d in enumerate(domains) if d is domains[key]])

    equalities = []
    for _ in range(draw(st.integers(0, 2))):
        left = draw(position)
        equalities.append(Equality(left, draw(same_domain(left))))
    dimensions = []
    for _ in range(draw(st.integers(0, 3))):
        key = draw(position)
        # A shifted float bound needs a residual, which the local runner does not have.
        delta = st.integers(-3, 3) if domains[key] is Domain.INT else st.just(0)
        bound = st.builds(Bound, same_domain(key), delta, st.booleans())
        low, high = draw(st.one_of(st.none(), bound)), draw(st.one_of(st.none(), bound))
        if low is not None or high is not None:
            dimensions.append(Dimension(draw(st.sampled_from(Side)), key, low, high))
    start = draw(position)
    ends = [end for end in range(len(keys)) if end != start and domains[end] is domains[start]]
    has_overlap = draw(st.booleans())
    if ends and has_overlap:
        # The overlap of intervals.
        end = Bound(draw(st.sampled_from(ends)), 0, draw(st.booleans()))
        dimensions += [Dimension(side, start, None, end) for side in Side]
    window = None
    if draw(st.booleans()):
        window = Dimension(
            Side.LEFT, TIME, Bound(TIME, -draw(st.integers(0, 12))), Bound(TIME, draw(st.integers(0, 12)))
        )
    columns = ("id", "t", *(key.column for key in keys))
    sides = tuple(SideSpec(alias, columns, (), keys, Key("t", Domain.INT)) for alias in "ab")
    return Condition((sides[0], sides[1]), tuple(equalities), tuple(dimensions), window)


@st.composite
def measure_vectors(draw: st.DrawFn, condition: Condition) -> Condition:
    """Add a measure of the vectors in a column ``v`` of both sides to a condition. Its limit is a constant,
    or a column ``least`` of one side."""
    measure, op = draw(st.sampled_from(OF_VECTORS)), draw(st.sampled_from(["<", "<=", ">", ">="]))
    side = draw(st.sampled_from([None, *Side]))
    if side is None:
        pair = MeasuredPair(("v", "v"), MeasureLimit(measure, op, draw(st.integers(-4, 8)) / 4))
    else:
        own = ("least", None) if side is Side.LEFT else (None, "least")
        pair = MeasuredPair(("v", "v"), RowLimit(measure, op, side), own)
    left, right = (
        replace(spec, columns=(*spec.columns, "v", *([] if name is None else [name])))
        for spec, name in zip(condition.sides, pair.thresholds, strict=True)
    )
    return replace(condition, sides=(left, right), measured=(pair,), predicates=(pair.check,))


OF_VECTORS = [measure for measure in MEASURES.values() if isinstance(measure, VectorMeasure)]
THRESHOLDS = st.one_of(
    st.integers(-4, 8).map(lambda n: n / 4),
    st.sampled_from([None, float("nan"), float("inf"), float("-inf")]),
)
VECTORS = st.one_of(st.none(), st.lists(st.integers(-2, 2).map(float), min_size=3, max_size=3))


def index_specs(condition: Condition) -> st.SearchStrategy[IndexSpec]:
    """Draw an index of any registered shape that evaluates some part of the condition."""
    offer = Indexable.of(condition)

    def specs(ranges: list[int]) -> list[IndexSpec]:
        # All ranges count as bands and are permuted, so that each shape is tried over each of them.
        drawn = Indexable(
            offer.equalities, tuple(ranges), tuple(ranges), (), (), offer.overlaps, offer.has_measure
        )
        fits = [(shape, shape.fit(drawn, is_asked=True)) for shape in SHAPES.values()]
        return [IndexSpec(shape, fit.equalities, fit.dimensions) for shape, fit in fits if fit is not None]

    ranges = [*offer.comparisons, *offer.window]
    return st.permutations(ranges).flatmap(lambda ranges: st.sampled_from(specs(ranges)))


@st.composite
def cases(draw: st.DrawFn, has_measures: bool = True) -> Case:
    """Draw a whole run: watermarks only rise, and tuples are early, late and out of order.

    ``has_measures`` says whether conditions may have measures, which read the payload of both sides.
    """
    condition = draw(conditions())
    if has_measures and draw(st.booleans()):
        condition = draw(measure_vectors(condition))
    identity = iter(range(10_000))

    def rows(side: Side) -> list[dict[str, Any]]:
        return [
            {
                "id": next(identity),
                "t": draw(st.integers(-5, 40)),
                **{key.column: draw(values(key)) for key in condition.sides[side].keys},
                **{pair.columns[side]: draw(VECTORS) for pair in condition.measured},
                **{name: draw(THRESHOLDS) for pair in condition.measured if (name := pair.thresholds[side])},
            }
            for _ in range(draw(st.integers(0, 6)))
        ]

    epochs = []
    watermark: int | None = None
    for _ in range(draw(st.integers(1, 4))):
        epochs.append((rows(Side.LEFT), rows(Side.RIGHT), watermark))
        rise = draw(st.integers(0, 10))
        watermark = rise if watermark is None and rise else (watermark + rise if watermark else None)
    specs = index_specs(condition)
    period = draw(st.one_of(st.none(), st.integers(1, 8))) if condition.window else None
    return Case(condition, (draw(specs), draw(specs)), period, tuple(epochs))
