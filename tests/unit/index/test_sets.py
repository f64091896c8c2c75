"""Measures of sets: values are those of Python's sets, with the rules of Spark for NULL and duplicates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.measured_values import draw_columns
from thetastream.core.errors import PredicateError
from thetastream.core.measure import LimitSearch, MeasureLimit
from thetastream.index.measures import REGISTRY

Row = list[Any]
RATIOS: dict[str, Callable[[Row, Row, int], float]] = {
    "jaccard": lambda x, y, shared: len({*x} | {*y}),
    "jaccard_of_sizes": lambda x, y, shared: len(x) + len(y) - shared,
    "contained": lambda x, y, shared: len(x),
    "contains": lambda x, y, shared: len(y),
    "overlap": lambda x, y, shared: min(len(x), len(y)),
    "dice": lambda x, y, shared: (len(x) + len(y)) / 2,
}
"""By what each ratio divides the number of shared elements."""


def measure(name: str, x: Row | None, y: Any) -> float | None:
    if x is None or y is None:
        return None
    if name == "array_contains":
        return 1.0 if y in x else None if None in x else 0.0
    shared = {*x} & {*y}
    if name == "arrays_overlap":
        is_unknown = bool(x) and bool(y) and None in (*x, *y)
        return 1.0 if shared - {None} else None if is_unknown else 0.0
    if name == "shared":
        return float(len(shared))
    whole = RATIOS[name.removeprefix("try_")](x, y, len(shared))
    return len(shared) / whole if whole else None


@pytest.mark.parametrize(
    "name", [*map("try_{}".format, RATIOS), "shared", "arrays_overlap", "array_contains"]
)
def test_values(name: str) -> None:
    for seed in range(6):
        left, right = draw_columns(REGISTRY[name], np.random.default_rng(seed), 40, 40)
        left, right = left.slice(3), right.slice(3)
        i, j = (part.ravel() for part in np.indices((len(left), len(right))))
        found = REGISTRY[name].compute(left, i, right, j)
        expected = [measure(name, left[p].as_py(), right[s].as_py()) for p, s in zip(i, j, strict=True)]
        values = [None if gone else x for x, gone in zip(found.values.tolist(), found.is_null, strict=True)]
        assert values == expected
        assert len({*values}) > 2


def test_a_ratio_proposes_no_pair_below_the_limit() -> None:
    """Only pairs that divide by zero are proposed, too."""
    for name in RATIOS:
        one = REGISTRY[name]
        left, right = draw_columns(one, np.random.default_rng(5), 40, 40)
        limit, derived = MeasureLimit(one, ">=", 0.5), (one.derive(left), one.derive(right))
        every = np.arange(40)
        pieces = one.propose(LimitSearch(limit, derived[0], every, derived[1], every), 1 << 17)
        values = [
            measure(name, left[p].as_py(), right[s].as_py())
            for piece in pieces
            for p, s in zip(piece.probes.tolist(), piece.stored.tolist(), strict=True)
        ]
        assert 0 < len(values) < 800
        assert all(value is None or value >= 0.5 for value in values), name


def test_two_empty_arrays_are_refused_when_they_meet() -> None:
    column = pa.array([[], [1], None], pa.list_(pa.int64()))
    one, rows = REGISTRY["jaccard"], np.zeros(1, dtype=np.int64)
    sets = one.derive(column)
    pieces = one.propose(LimitSearch(MeasureLimit(one, ">=", 0.5), sets, rows, sets, np.arange(3)), 9)
    assert [pair for piece in pieces for pair in zip(*piece[:2], strict=True) if pair[1] == 0] == [(0, 0)]
    with pytest.raises(PredicateError, match=r"EMPTY_SETS.*try_divide"):
        one.compute(column, rows, column, rows)
    found = one.compute(column, rows, column, np.array([2]))
    assert found.is_null.tolist() == [True]
