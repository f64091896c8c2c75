"""Compare the local runner with the nested loop: random conditions, disorder, late tuples, epochs and
units."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.draws import draw_cases
from tests.support.local import LocalJoin
from tests.support.strategies import GAPS_US, PLACES, Case, cases, stretch
from tests.support.tiny import make_all_tiny, make_time_cells_tiny
from thetastream.core.columns import ARRIVAL
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    SideSpec,
)
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.engine.two_stream.content_routing import choose_placing
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import Hash, HashSorted, IndexSpec, Scan, Sorted
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model

UNITS = st.integers(1, 3)
MODELS = st.one_of(
    st.builds(Biclique, st.tuples(UNITS, UNITS)),
    st.tuples(UNITS, UNITS, UNITS, UNITS, st.sampled_from(["auto", "hash", "range"])).map(
        lambda n: Biclique(
            (n[0] + n[1] - 1, n[2] + n[3] - 1), (n[0], n[2]), n[4] if n[0] + n[2] > 2 else "auto"
        )
    ),
    st.builds(Matrix, UNITS, UNITS),
    st.builds(Split, UNITS),
)
"""Routing by content needs an equality or a band. Without them, ``run`` uses random routing with the same
units."""


def run(case: Case, model: Model) -> tuple[Counter, int]:
    try:
        choose_placing(model, case.condition)
    except QueryError:
        model = Biclique(model.units)
    join = LocalJoin(UnitSpec(case.condition, case.indexes, case.archive_period_us), model)
    found: Counter = Counter()
    late = 0
    for left, right, watermark in case.epochs:
        for matches in join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark):
            found.update(zip(matches.left["id"].to_pylist(), matches.right["id"].to_pylist(), strict=True))
        late += sum(counters.late for counters in join.counters)
    return found, late


@draw_cases(50)
@given(cases(), MODELS)
def test_same_bag_as_the_nested_loop(case: Case, model: Model) -> None:
    assert run(case, model) == case.answer()


@draw_cases(40)
@given(case=cases(), model=MODELS)
def test_same_bag_with_tiny_tiers_and_outputs(case: Case, model: Model) -> None:
    """Two segments are merged at once, pieces have one pair, and segments have one period."""
    with pytest.MonkeyPatch.context() as patch:
        make_all_tiny(patch)
        assert run(case, model) == case.answer()


@draw_cases(40)
@given(case=cases(), model=MODELS)
def test_same_bag_with_tiny_time_cells(case: Case, model: Model) -> None:
    """Segments span several periods, and each one that spans more than a window is cut."""
    with pytest.MonkeyPatch.context() as patch:
        make_time_cells_tiny(patch)
        assert run(case, model) == case.answer()


@draw_cases(40)
@given(
    case=cases().filter(lambda case: case.condition.window is not None),
    model=MODELS,
    place=st.sampled_from(PLACES),
    gap_us=st.sampled_from(GAPS_US),
    is_tiny=st.booleans(),
)
def test_same_bag_of_sparse_history_at_any_time(
    case: Case, model: Model, place: str, gap_us: int, is_tiny: bool
) -> None:
    """Tuples are years apart, before 1970, or at the first and the last times of int64."""
    case = stretch(case, place, gap_us)
    with pytest.MonkeyPatch.context() as patch:
        if is_tiny:
            make_all_tiny(patch)
        else:
            make_time_cells_tiny(patch)
        assert run(case, model) == case.answer()


@draw_cases(30)
@given(cases(), UNITS, st.tuples(st.integers(1, 6), st.integers(1, 6)), st.booleans())
def test_count_windows_are_a_sequential_replay(
    case: Case, cores: int, counts: tuple[int, int], is_tiny: bool
) -> None:
    condition = replace(case.condition, window=None)
    spec = UnitSpec(condition, _without_window(case), None, counts, is_ordered=True)
    join = LocalJoin(spec, Split(cores))
    found: Counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        if is_tiny:
            make_all_tiny(patch)
        for left, right, watermark in case.epochs:
            for a, b, _ in join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark):
                places = zip(a[ARRIVAL].to_pylist(), b[ARRIVAL].to_pylist(), strict=True)
                ids = zip(a["id"].to_pylist(), b["id"].to_pylist(), strict=True)
                found.update(
                    oracle.Meeting(*pair, max(place), min(place))
                    for pair, place in zip(ids, places, strict=True)
                )
    has_time = condition.sides[0].time is not None
    timely = [
        tuple(oracle.timely(rows, late_us, "t") if has_time else rows for rows in (left, right))
        for left, right, late_us in oracle.pair_with_late_watermark(case.epochs)
    ]
    assert found == Counter(
        oracle.replay(partial(oracle.holds, condition), timely, counts, "t" if has_time else None)
    )


def _without_window(case: Case) -> tuple[IndexSpec, IndexSpec]:
    left, right = (IndexSpec(Scan()) if TIME in index.dimensions else index for index in case.indexes)
    return left, right


LOWEST, HIGHEST = -(2**63), 2**63 - 1
INFINITY, NAN = float("inf"), float("nan")
AT_THE_EDGE = [LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]


def one_key(domain: Domain, n_keys: int = 1, **parts) -> Condition:
    keys = tuple(Key(f"k{n}", domain) for n in range(n_keys))
    columns = ("id", "t", *(key.column for key in keys))
    a, b = (SideSpec(alias, columns, (), keys) for alias in "ab")
    return Condition((a, b), **parts)


# Random cases of the tests above found each of these.
NAMED = {
    "a bound below the highest integer": (
        one_key(Domain.INT, dimensions=(Dimension(Side.LEFT, 0, None, Bound(0, -1)),)),
        AT_THE_EDGE,
    ),
    "a bound that leaves int64 on the far side holds for nobody": (
        one_key(Domain.INT, dimensions=(Dimension(Side.LEFT, 0, Bound(0, 3), None),)),
        AT_THE_EDGE,
    ),
    "strict and shifted at the lowest integer": (
        one_key(Domain.INT, dimensions=(Dimension(Side.RIGHT, 0, Bound(0, 1, is_strict=True), None),)),
        AT_THE_EDGE,
    ),
    "equal and less at once is nothing": (
        one_key(
            Domain.INT,
            equalities=(Equality(0, 0),),
            dimensions=(Dimension(Side.LEFT, 0, None, Bound(0, is_strict=True)),),
        ),
        AT_THE_EDGE,
    ),
    "intervals as wide as the doubles": (
        one_key(Domain.FLOAT, 2, dimensions=(Dimension(Side.LEFT, 0, Bound(0), Bound(1)),)),
        [-INFINITY, -0.0, 0.0, 1e300, INFINITY, NAN],
    ),
    "an interval that just reaches the probe": (
        one_key(Domain.FLOAT, 2, dimensions=(Dimension(Side.LEFT, 0, Bound(0), Bound(1)),)),
        [0.01, 0.69, 0.7, -0.3, 1e16],
    ),
    "intervals from NaN to NaN": (
        one_key(Domain.FLOAT, 2, dimensions=(Dimension(Side.RIGHT, 1, Bound(0), Bound(1, is_strict=True)),)),
        [NAN, INFINITY, 1.0],
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_cases(name: str) -> None:
    condition, values = NAMED[name]
    keys = [key.column for key in condition.sides[0].keys]
    rows = [
        {"id": number, "t": 0, **dict(zip(keys, combination, strict=True))}
        for number, combination in enumerate(itertools.product(values, repeat=len(keys)))
    ]
    equalities = tuple(range(len(condition.equalities)))
    indexes = [IndexSpec(Scan()), IndexSpec(Sorted(), (), (0,))]
    if equalities:
        indexes += [IndexSpec(Hash(), equalities), IndexSpec(HashSorted(), equalities, (0,))]
    for index in indexes:
        for epochs in ([(rows, rows)], [(rows, []), ([], rows)], [([], rows), (rows, [])]):
            case = Case(condition, (index, index), None, tuple((*epoch, None) for epoch in epochs))
            assert run(case, Biclique(1)) == case.answer(), (index, epochs)


def test_a_side_without_end_keeps_few_segments() -> None:
    """Its tuples never expire, so the number of its archive periods would grow forever."""
    key, time = Key("k0", Domain.INT), Key("t", Domain.INT)
    a, b = (SideSpec(alias, ("id", "t", "k0"), (), (key,), time) for alias in "ab")
    window = Dimension(Side.LEFT, TIME, Bound(TIME, 0), None)
    condition = Condition((a, b), (Equality(0, 0),), window=window)
    join = LocalJoin(UnitSpec(condition, (IndexSpec(Hash(), (0,)),) * 2, 1_000_000), Biclique(1))
    for epoch in range(200):
        second = epoch * 10_000_000
        batch = pa.record_batch({"id": [epoch], "t": [second], "k0": [epoch % 3]})
        for _ in join.epoch(batch, batch, second - 1 if epoch else None):
            pass
    assert sum(counters.segments for counters in join.counters) < 40


def test_equal_hashes_of_other_bytes_do_not_join() -> None:
    key, time = Key("k0", Domain.INT), Key("t", Domain.INT)
    a, b = (SideSpec(alias, ("id", "name"), ("k0",), (key,), time) for alias in "ab")
    condition = Condition((a, b), (Equality(0, 0),), same=(("name", "name"),))
    index = IndexSpec(Hash(), (0,))
    names = ["", "x", "xy", "x"]
    batch = pa.record_batch(
        {"id": range(4), "t": [0] * 4, "name": names, "k0": pa.array([7] * 4, pa.int64())}
    )
    join = LocalJoin(UnitSpec(condition, (index, index), None), Biclique(1))
    found: Counter = Counter()
    for matches in join.epoch(batch, batch, None):
        found.update(zip(matches.left["id"].to_pylist(), matches.right["id"].to_pylist(), strict=True))
    assert found == Counter((i, j) for i in range(4) for j in range(4) if names[i] == names[j])
