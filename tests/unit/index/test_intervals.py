"""The overlap of intervals by one index: the pairs of the nested loop, and few candidates."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalJoin
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.keys import HIGHEST, LOWEST
from thetastream.core.sides import Side
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import IndexSpec, Intervals, Sorted
from thetastream.index.base import Indexable, Shape
from thetastream.lowering.lower import choose_index
from thetastream.models import Biclique

START, END = 0, 1
INTERVALS = {
    Domain.INT: st.tuples(*[st.one_of(st.integers(-20, 20), st.sampled_from([LOWEST, HIGHEST - 1, 0]))] * 2),
    Domain.FLOAT: st.tuples(
        *[st.one_of(st.floats(-9, 9), st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0]))] * 2
    ),
}


def make_condition(domain: Domain, delta: int = 0, is_strict: bool = False) -> Condition:
    """a.start <= b.end + delta AND b.start <= a.end, written over a point of each side."""
    keys = Key("start", domain), Key("end", domain)
    sides = tuple(SideSpec(alias, ("id",), ("start", "end"), keys) for alias in "ab")
    return Condition(
        (sides[0], sides[1]),
        dimensions=(
            Dimension(Side.LEFT, START, None, Bound(END, delta, is_strict)),
            Dimension(Side.RIGHT, START, None, Bound(END)),
        ),
    )


def choose(shape: Shape, condition: Condition) -> IndexSpec:
    fit = shape.fit(Indexable.of(condition), is_asked=True)
    assert fit is not None
    return IndexSpec(shape, fit.equalities, fit.dimensions)


def join(condition: Condition, index: IndexSpec, *sides: list[tuple[float, float]]) -> tuple[Counter, int]:
    """Join in two epochs; return the pairs of positions, and the number of candidates."""
    run = LocalJoin(UnitSpec(condition, (index, index), None), Biclique(1))
    type_ = pa.int64() if condition.sides[0].keys[0].domain is Domain.INT else pa.float64()
    found: Counter = Counter()
    candidates = 0
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(range(len(side)), pa.int64()),
                *(pa.array([pair[n] for pair in side], type_) for n in range(2)),
            ],
            names=["id", "start", "end"],
        )
        for side in sides
    ]
    for part in (slice(0, None, 2), slice(1, None, 2)):
        rows = [batch.take(np.arange(batch.num_rows)[part]) for batch in batches]
        for matches in run.epoch(*rows):
            found.update(
                zip(
                    matches.left.column("id").to_pylist(), matches.right.column("id").to_pylist(), strict=True
                )
            )
        candidates += sum(counters.candidates for counters in run.counters)
    return found, candidates


def test_the_planner_chooses_it_for_an_overlap_without_a_band() -> None:
    index, reason = choose_index(make_condition(Domain.INT))
    assert index == IndexSpec(Intervals(), (), (0, 1))
    assert "overlap" in reason


@pytest.mark.parametrize("domain", INTERVALS, ids=str)
@settings(deadline=None)
@given(data=st.data(), delta=st.integers(-2, 2), is_strict=st.booleans())
def test_the_pairs_of_the_nested_loop(
    domain: Domain, data: st.DataObject, delta: int, is_strict: bool
) -> None:
    delta = delta if domain is Domain.INT else 0
    condition = make_condition(domain, delta, is_strict)
    left, right = (data.draw(st.lists(INTERVALS[domain], max_size=25)) for _ in range(2))

    def at_most(a: float, b: float) -> bool:
        return b != b or a <= b  # NaN is the largest value

    def comes_before(a: float, b: float) -> bool:
        b += delta
        return at_most(a, b) and not (is_strict and at_most(b, a))

    wanted = Counter(
        (i, j)
        for i, (start, end) in enumerate(left)
        for j, (other_start, other_end) in enumerate(right)
        if comes_before(start, other_end) and at_most(other_start, end)
    )
    assert join(condition, choose(Intervals(), condition), left, right)[0] == wanted


def test_lengths_of_all_sizes_leave_few_candidates() -> None:
    """Lengths follow a Pareto law: most intervals are short, and a few span everything."""
    chance, n = np.random.default_rng(1), 4_000
    condition = make_condition(Domain.FLOAT)
    sides = []
    for _ in Side:
        start = chance.uniform(1e6, 2e6, n)
        sides.append(list(zip(start.tolist(), (start + 20 * chance.pareto(1, n)).tolist(), strict=True)))
    pairs, candidates = join(condition, choose(Intervals(), condition), *sides)
    same, before = join(condition, choose(Sorted(), condition), *sides)
    assert pairs == same
    assert sum(pairs.values()) > n
    assert candidates < 3 * sum(pairs.values()) + n
    assert before > 5 * candidates
