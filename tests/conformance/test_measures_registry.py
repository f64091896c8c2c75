"""Every measure of the registry proposes all pairs that satisfy a comparison, and all of the nearest."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.measured_values import draw_columns
from tests.support.oracle import COMPARE, rank
from thetastream.core import row_limit
from thetastream.core.condition import RankedPair
from thetastream.core.errors import PredicateError
from thetastream.core.how import MeasuredRanking, select_nearest
from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    LimitSearch,
    MeasureLimit,
    NearestSearch,
    PairMeasure,
    Ranges,
    Values,
    compare,
)
from thetastream.core.row_limit import RowLimit, read_thresholds
from thetastream.core.sides import Side
from thetastream.index import tiles
from thetastream.index.base import MeasuredSearch, Search, Span
from thetastream.index.measures import REGISTRY, scores
from thetastream.index.measures import vectors as vectors_module
from thetastream.index.measures.bits import HammingSum
from thetastream.index.measures.ranges import Outside
from thetastream.index.measures.subtraction import Subtraction
from thetastream.index.tiles import match_tiles

DISTANCES = [
    Subtraction(REGISTRY["vector_cosine_similarity"], 1.0, is_single=False),
    Subtraction(REGISTRY["vector_inner_product"], 0.7, is_single=True),
    Subtraction(REGISTRY["try_contained"], 1.0, is_single=False),
    Subtraction(HammingSum(), 9.0, is_single=False),
]
MEASURES = [*REGISTRY.values(), Outside(), HammingSum(), *DISTANCES]
OPS = ("<", "<=", ">", ">=")


def compute(
    measure: PairMeasure, left: pa.Array, i: Int64s, right: pa.Array, j: Int64s
) -> tuple[Values, np.ndarray]:
    """Compute pairs. Also return which of them end the query."""
    try:
        return measure.compute(left, i, right, j), np.zeros(len(i), dtype=np.bool_)
    except PredicateError:
        found, is_fatal = [], np.zeros(len(i), dtype=np.bool_)
        for n in range(len(i)):
            try:
                found.append(measure.compute(left, i[[n]], right, j[[n]]))
            except PredicateError:
                is_fatal[n] = True
                found.append(Values(np.zeros(1), np.ones(1, dtype=np.bool_)))
        parts = [np.concatenate([one[n] for one in found]) for n in (0, 1)]
        return Values(parts[0], parts[1].astype(np.bool_)), is_fatal


def choose_limit(random: np.random.Generator, values: np.ndarray) -> float:
    """Choose a value of a pair or the number beside it, or another number."""
    limit = float(random.choice([-1.0, 0.0, 0.3, 1.0, 2.0, 2.5, math.inf, -math.inf]))
    if len(values) and random.integers(3):
        limit = float(values[random.integers(len(values))])
        limit = float(np.nextafter(limit, random.choice([-9e9, 9e9]))) if random.integers(2) else limit
    return 0.5 if math.isnan(limit) else limit


SEEDS = [range(5), pytest.param(range(5, 200), marks=pytest.mark.slow)]


@pytest.mark.parametrize("measure", MEASURES, ids=lambda one: one.name)
@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_all_pairs_of_a_comparison_are_proposed(measure: PairMeasure, seeds: range) -> None:
    for seed in seeds:
        check_comparison(measure, seed)


def check_comparison(measure: PairMeasure, seed: int) -> None:
    random = np.random.default_rng([seed, len(measure.name)])
    left, right = draw_columns(measure, random, *random.integers(0, 26, 2))
    if seed % 2:  # the probes are right operands
        measure, left, right = measure.mirrored, right, left
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    found, is_fatal = compute(measure, left, i, right, j)
    places = random.permutation(len(left))
    start, stop = sorted(int(n) for n in random.integers(0, len(right) + 1, 2))
    limit = MeasureLimit(measure, OPS[random.integers(4)], choose_limit(random, found.values))
    if measure.is_test:
        limit = MeasureLimit(measure, *((">=", 1.0), ("<=", 0.0))[random.integers(2)])
    if isinstance(measure, Outside):
        limit = MeasureLimit(measure, ">=", 1.0)
    proposed, proved = [], []
    rows = np.arange(start, stop) if random.integers(2) else start + random.permutation(stop - start)
    search = LimitSearch(limit, measure.derive(left), places, measure.derive(right), rows)
    for one in measure.propose(search, 7):
        assert len(one.probes) <= 7
        pairs = [*zip(places[one.probes].tolist(), rows[one.stored].tolist(), strict=True)]
        proposed += pairs
        proved += pairs if one.is_proved else []
    assert len({*proposed}) == len(proposed)
    is_inside = (j >= start) & (j < stop)
    is_true, is_nan = compare(found, limit.op, limit.value), np.isnan(found.values) & ~found.is_null
    true, wanted = (
        {*zip(i[mask].tolist(), j[mask].tolist(), strict=True)}
        for mask in (is_true & is_inside, (is_true | is_fatal | is_nan) & is_inside)
    )
    assert wanted <= {*proposed}
    assert {*proved} <= true - {*zip(i[is_nan].tolist(), j[is_nan].tolist(), strict=True)}
    assert all(start <= s < stop for _, s in proposed)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda one: one.name)
@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_all_pairs_within_thresholds_are_proposed(
    measure: PairMeasure, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_limit, "LEAST_ROWS", 4)
    for name, value in {"SMALL": 0, "TILE_PROBES": 9}.items():
        monkeypatch.setattr(tiles, name, value)
    for seed in seeds:
        if not measure.is_test:
            check_thresholds(measure, seed)


def check_thresholds(measure: PairMeasure, seed: int) -> None:
    """Each row of one side has a threshold. Some are NULL or NaN, and some are equal."""
    random = np.random.default_rng([seed, len(measure.name)])
    left, right = draw_columns(measure, random, *random.integers(0, 26, 2))
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    found, is_fatal = compute(measure, left, i, right, j)
    if is_fatal.any():
        return
    side = Side(random.integers(2))
    n_distinct, kinds = random.integers(1, 9), [None, math.nan, math.inf, -math.inf]
    distinct = [choose_limit(random, found.values) for _ in range(n_distinct)]
    distinct += [kinds[random.integers(4)] for _ in range(random.integers(3))]
    drawn = pa.array(
        [distinct[n] for n in random.integers(len(distinct), size=(len(left), len(right))[side])]
    )
    column = drawn.cast(pa.float64())
    limit = RowLimit(measure, OPS[random.integers(4)], side)
    places = random.permutation(len(left))
    every = np.zeros(len(left), dtype=np.int64), np.full(len(left), len(right), dtype=np.int64)
    thresholds = read_thresholds(column)
    measured = MeasuredSearch(limit, measure.derive(left), places, measure.derive(right), thresholds)
    run: Any = SimpleNamespace(offsets=np.arange(len(right) + 1))
    pieces = match_tiles(run, Search(Span(*every), {}, measured=measured), 7)
    assert pieces is not None
    proposed, proved = [], []
    for one in pieces:
        assert len(one.probes) <= 7
        pairs = [*zip(places[one.probes].tolist(), one.stored.tolist(), strict=True)]
        proposed += pairs
        proved += pairs if one.is_proved else []
    assert len({*proposed}) == len(proposed)
    values = [SimpleNamespace(value=encode(rows, at)) for rows, at in ((left, i), (right, j))]
    values[side].threshold = encode(column, (i, j)[side])
    is_true = limit(*values)
    own = column.to_pylist()
    for p, s, value, is_null, is_in in zip(i, j, found.values, found.is_null, is_true, strict=True):
        one = own[(p, s)[side]]
        wanted = not is_null and one is not None and COMPARE[limit.op](rank(float(value)), rank(one))
        assert is_in == wanted
    true = {*zip(i[is_true].tolist(), j[is_true].tolist(), strict=True)}
    assert {*proved} <= true <= {*proposed}


def encode(column: pa.Array, rows: Int64s) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(rows), column)


@pytest.mark.parametrize("measure", [one for one in MEASURES if one.ranks], ids=lambda one: one.name)
@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_the_nearest_are_proposed(
    measure: PairMeasure, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TILE_ROWS": 5, "TILE_SEEKERS": 3}.items():
        monkeypatch.setattr(vectors_module, name, value)
    monkeypatch.setattr(scores, "MOST_SEEKERS", 3)
    for seed in seeds:
        monkeypatch.setattr(type(measure), "most_others", (5, 1 << 22)[seed % 2], raising=False)
        check_nearest(measure, seed)


def check_nearest(measure: PairMeasure, seed: int) -> None:
    random = np.random.default_rng([seed, len(measure.name)])
    columns = draw_columns(measure, random, *random.integers(0, 40, 2))
    k, is_descending, seekers_probe = int(random.integers(1, 5)), *map(bool, random.integers(2, size=2))
    rows = [random.permutation(len(column))[: random.integers(len(column) + 1)] for column in columns]
    n_probes, n_stored = (len(one) for one in (rows if seekers_probe else rows[::-1]))
    low = random.integers(0, 3, (n_probes, 2))
    inside = Ranges(low, low + random.integers(0, 3, (n_probes, 2)), random.integers(0, 4, (n_stored, 2)))
    best = np.full((len(rows[0]), k), -np.inf, dtype=np.float32)
    derived = [measure.derive(column) for column in columns]
    search = NearestSearch(
        is_descending, derived[0], rows[0], derived[1], rows[1], best, inside, seekers_probe
    )
    pieces = [*measure.propose_nearest(search, 7)]
    proposed = [pair for piece in pieces for pair in zip(*(part.tolist() for part in piece), strict=True)]
    assert len({*proposed}) == len(proposed)
    # The expected pairs, by all pairs.
    i, j = (part.ravel() for part in np.indices((len(rows[0]), len(rows[1]))))
    probes, stored = (i, j) if seekers_probe else (j, i)
    keys = inside.keys[stored]
    is_partner = ((inside.low[probes] <= keys) & (keys <= inside.high[probes])).all(axis=1)
    i, j = i[is_partner], j[is_partner]
    _, is_fatal = compute(measure, columns[0], rows[0][i], columns[1], rows[1][j])
    assert {*zip(i[is_fatal].tolist(), j[is_fatal].tolist(), strict=True)} <= {*proposed}
    if is_fatal.any():
        return
    batches = [pa.RecordBatch.from_arrays([column], names=["v"]) for column in columns]
    ranking = MeasuredRanking(RankedPair(k, ("v", "v"), measure, is_descending))
    ranks = ranking.rank_pairs(batches[0], rows[0][i], batches[1], rows[1][j])
    chosen = select_nearest(i, ranks, k)
    assert {*zip(i[chosen].tolist(), j[chosen].tolist(), strict=True)} <= {*proposed}
