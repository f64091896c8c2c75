"""Compare local views of groups with a nested loop."""

import math
import random
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import datasketches
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetastream.aggregates import Measure
from thetastream.aggregates.distinct import Sketch
from thetastream.aggregates.moments import Moments
from thetastream.aggregates.operands import LESS, Calculation, SideColumn
from thetastream.aggregates.simple import Greatest, Least, MatchCount, Total, ValueCount, WideTotal
from thetastream.core.blocks import Matches
from thetastream.core.errors import ThetastreamError
from thetastream.core.sides import Side
from thetastream.engine.views import Fold, LocalView, Pane

ints = st.one_of(st.none(), st.integers(-(2**62), 2**62))
floats = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -1.5, 3.25]))
matches = st.tuples(st.sampled_from([None, "u", "v"]), ints, floats, st.integers(0, 40), st.integers(0, 40))
FOLD = Fold(
    ((Side.LEFT, "k"),),
    (
        Measure(MatchCount()),
        Measure(ValueCount(), SideColumn(Side.LEFT, "n")),
        Measure(Total(), SideColumn(Side.LEFT, "n")),
        Measure(Least(), SideColumn(Side.LEFT, "n")),
        Measure(Least(), SideColumn(Side.RIGHT, "x")),
        Measure(Greatest(), SideColumn(Side.RIGHT, "x")),
    ),
    ("t", "t"),
    Pane(7, 3),
)


def spark_key(value):
    """Compute a sort key for Spark's order of floats, in which NaN is the greatest."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def nested_loop(found):
    groups = defaultdict(list)
    for k, n, x, lt, rt in found:
        groups[k, (max(lt, rt) - 3) // 7].append((n, x, max(lt, rt)))
    rows = []
    for (k, _), members in groups.items():
        ns = [n for n, _, _ in members if n is not None]
        xs = sorted((x for _, x, _ in members if x is not None), key=spark_key)
        ends = (xs[0], xs[-1]) if xs else (None, None)
        total = Decimal(sum(ns)) if ns else None
        rows.append(
            (k, len(members), len(ns), total, min(ns, default=None), *ends, max(t for *_, t in members))
        )
    return rows


def comparable(rows):
    return sorted(repr(tuple(0.0 if value == 0 else value for value in row)) for row in rows)


@given(st.lists(st.lists(matches, max_size=12), max_size=5), st.booleans())
def test_a_view_is_what_a_nested_loop_counts(pieces, has_condition):
    where = Calculation(LESS, (SideColumn(Side.LEFT, "n"), SideColumn(Side.RIGHT, "t")), "boolean", False)
    view = LocalView(replace(FOLD, where=where) if has_condition else FOLD)
    for piece in pieces:
        k, n, x, lt, rt = zip(*piece, strict=True) if piece else ([],) * 5
        left = {"k": pa.array(k, pa.string()), "n": pa.array(n, pa.int64()), "t": pa.array(lt, pa.int64())}
        # With from_pandas=False, NaN does not become NULL.
        right = {"x": pa.array(x, pa.float64(), from_pandas=False), "t": pa.array(rt, pa.int64())}
        view.add(Matches(pa.RecordBatch.from_pydict(left), pa.RecordBatch.from_pydict(right)))
    found = [tuple(row.values()) for batch in view.rows() for row in batch.to_pylist()]
    kept = [match for piece in pieces for match in piece]
    if has_condition:
        kept = [match for match in kept if match[1] is not None and match[1] < match[4]]
    assert comparable(found) == comparable(nested_loop(kept))


small = st.one_of(st.none(), st.integers(-8, 8))
signed_matches = st.tuples(st.sampled_from([None, "u"]), ints, small, st.sampled_from([1, -1]))


@given(st.lists(st.lists(signed_matches, max_size=12), max_size=5), st.booleans())
def test_deleted_matches_are_taken_out_of_counts_and_sums(pieces, has_condition):
    n, x = SideColumn(Side.LEFT, "n"), SideColumn(Side.RIGHT, "x")
    where = Calculation(LESS, (x, n), "boolean", False) if has_condition else None
    measures = [MatchCount(), None], [ValueCount(), n], [Total(), n], [WideTotal(), n], [Total(), x]
    fold = Fold(((Side.LEFT, "k"),), tuple(Measure(*one) for one in measures), where=where, has_deletes=True)
    view = LocalView(fold)
    for piece in pieces:
        k, ns, xs, signs = zip(*piece, strict=True) if piece else ([],) * 4
        left = {"k": pa.array(k, pa.string()), "n": pa.array(ns, pa.decimal128(20, 0))}
        right = pa.RecordBatch.from_pydict({"x": pa.array(xs, pa.float64())})
        view.add(Matches(pa.RecordBatch.from_pydict(left), right, pa.array(signs, pa.int8())))
    wanted = defaultdict(lambda: [0, 0, None, None, None])
    for k, n, x, sign in (match for piece in pieces for match in piece):
        if has_condition and (n is None or x is None or x >= n):
            continue
        row = wanted[k]
        row[0] += sign
        row[1] += sign * (n is not None)
        for place, value in ((2, n), (3, n), (4, x)):
            row[place] = row[place] if value is None else (row[place] or 0) + sign * value
    found = {key: row for batch in view.rows() for key, *row in zip(*batch.to_pydict().values(), strict=True)}
    assert found == wanted


def test_a_sum_takes_out_the_least_number_of_a_narrow_type():
    fold = Fold((), (Measure(Total(), SideColumn(Side.LEFT, "n")),), has_deletes=True)
    view = LocalView(fold)
    left = pa.RecordBatch.from_pydict({"n": pa.array([-128, -128, 5], pa.int8())})
    view.add(Matches(left, left, pa.array([1, -1, -1], pa.int8())))
    assert view.rows()[0].to_pydict() == {"m0": [Decimal(-5)]}


def test_a_view_stays_small_and_sums_beyond_int64():
    view = LocalView(Fold(((Side.LEFT, "k"),), (Measure(Total(), SideColumn(Side.RIGHT, "x")),)))
    keys = pa.array(range(40_000))
    for _ in range(4):
        right = pa.RecordBatch.from_pydict({"x": pa.array([2**63 - 1] * 40_000)})
        view.add(Matches(pa.RecordBatch.from_pydict({"k": keys}), right))
    (rows,) = view.rows()
    assert rows.num_rows == 40_000
    assert set(rows.column(1).to_pylist()) == {Decimal(4 * (2**63 - 1))}


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), max_size=5), max_size=5)
)
def test_sums_of_wide_decimals_are_exact_or_an_error(pieces):
    view = LocalView(Fold((), (Measure(WideTotal(), SideColumn(Side.RIGHT, "x")),)))
    for piece in pieces:
        right = pa.RecordBatch.from_pydict({"x": pa.array(piece, pa.decimal128(38, 0))})
        view.add(Matches(pa.RecordBatch.from_pydict({"k": pa.array(piece, pa.decimal128(38, 0))}), right))
    values = [value for piece in pieces for value in piece if value is not None]
    if abs(sum(values)) >= 10**38:
        with pytest.raises(ThetastreamError, match="ARITHMETIC_OVERFLOW"):
            view.rows()
    else:
        found = [row for batch in view.rows() for row in batch.to_pylist()]
        assert found == ([{"m0": Decimal(sum(values)) if values else None}] if any(pieces) else [])


def moments_of(pieces, groups=1):
    """Compute n, mean and m2 of numbers that come in pieces."""
    fold = Fold(((Side.LEFT, "k"),) if groups > 1 else (), (Measure(Moments(), SideColumn(Side.LEFT, "x")),))
    view = LocalView(fold)
    for piece in pieces:
        x = pa.array(piece, pa.float64(), from_pandas=False)
        left = pa.RecordBatch.from_pydict({"x": x, "k": pa.array([n % groups for n in range(len(x))])})
        view.add(Matches(left, left))
    return [row for batch in view.rows() for row in batch.to_pylist()]


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=9), min_size=1, max_size=6))
def test_moments_do_not_depend_on_how_numbers_are_cut(pieces):
    found = moments_of(pieces)
    xs = [float(x) for piece in pieces for x in piece if x is not None]
    if not found:
        assert not any(pieces)
    elif not xs:
        assert found == [{"m0_n": 0, "m0_mean": None, "m0_m2": 0.0}]
    else:
        exact = [Fraction(x) for x in xs]
        mean = sum(exact) / len(exact)
        m2 = sum((x - mean) ** 2 for x in exact)
        assert found[0]["m0_n"] == len(xs)
        assert found[0]["m0_mean"] == pytest.approx(float(mean), rel=1e-12, abs=1e-9)
        assert found[0]["m0_m2"] == pytest.approx(float(m2), rel=1e-9, abs=1e-12)
        if len(set(xs)) == 1:
            assert found[0]["m0_m2"] == 0


def test_moments_keep_their_digits_far_from_zero():
    chance = random.Random(5)
    numbers = [1e9 + chance.random() for _ in range(5000)]
    exact = [Fraction(x) for x in numbers]
    mean = sum(exact) / len(exact)
    wanted = float(sum((x - mean) ** 2 for x in exact))
    for width in (7, 5000):
        (found,) = moments_of([numbers[n : n + width] for n in range(0, len(numbers), width)])
        assert found["m0_m2"] == pytest.approx(wanted, rel=1e-9)


def test_infinities_have_no_deviation():
    for numbers in ([math.inf], [1.0, -math.inf], [math.nan, 2.0]):
        assert math.isnan(moments_of([numbers])[0]["m0_m2"])
        assert math.isnan(moments_of([[x] for x in numbers])[0]["m0_m2"])


def test_sketches_of_pieces_are_the_sketch_of_all():
    fold = Fold(((Side.LEFT, "k"),), (Measure(Sketch(12), SideColumn(Side.LEFT, "h")),))
    view = LocalView(fold)
    chance = random.Random(3)
    hashes = [chance.randrange(-(2**63), 2**63) for _ in range(3000)]
    for piece in (hashes[:1000], hashes[500:2000], [None], hashes[1500:]):
        k = pa.array(["u" if n % 2 else "v" for n in range(len(piece))])
        view.add(Matches(*[pa.RecordBatch.from_pydict({"k": k, "h": pa.array(piece, pa.int64())})] * 2))
    view.add(Matches(*[pa.RecordBatch.from_pydict({"k": ["w"], "h": pa.array([None], pa.int64())})] * 2))
    found = {row["g0"]: row["m0"] for batch in view.rows() for row in batch.to_pylist()}
    assert found.pop("w") is None
    for packed in found.values():
        assert datasketches.hll_sketch.deserialize(packed).get_estimate() == pytest.approx(1500, rel=0.05)
