"""Jaccard similarity: values are those of Python's sets, and proposals include every pair."""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core.errors import PredicateError
from thetastream.core.measure import MeasureLimit, compare
from thetastream.index.measures import REGISTRY

LIMITS = (-1.0, 0.0, 0.3, 0.5, float(np.nextafter(0.5, 1)), 0.7, 1.0, 1.5)


def draw(random: np.random.Generator, is_text: bool, n: int) -> pa.Array:
    """Draw arrays with NULL, duplicates and NULL elements; some are empty, and some elements are frequent."""

    def element() -> Any:
        number = int(min(random.zipf(1.5), 30)) - 3
        return None if random.random() < 0.05 else f"t{number}" if is_text else number

    rows = [
        None if random.random() < 0.1 else [element() for _ in range(random.integers(0, 9))] for _ in range(n)
    ]
    rows += [row and [*row[1:], row[0]] for row in rows[: n // 3]]  # the same set again
    return pa.array(rows, pa.list_(pa.string() if is_text else pa.int32()))


def measure(x: list[Any] | None, y: list[Any] | None) -> float | None:
    if x is None or y is None or not (x or y):
        return None
    return float(Fraction(len({*x} & {*y}), len({*x} | {*y})))


@pytest.mark.parametrize("seed", range(8))
def test_values_and_proposals(seed: int) -> None:
    random = np.random.default_rng(seed)
    one, is_text = REGISTRY["try_jaccard"], bool(seed % 2)
    left, right = (draw(random, is_text, 40).slice(3) for _ in range(2))
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    found = one.compute(left, i, right, j)
    expected = [
        measure(left[p].as_py(), right[s].as_py()) for p, s in zip(i.tolist(), j.tolist(), strict=True)
    ]
    values = [None if gone else x for x, gone in zip(found.values.tolist(), found.is_null, strict=True)]
    assert values == expected
    places, (start, stop) = (
        random.permutation(len(left)),
        sorted(random.integers(0, len(right) + 1, 2).tolist()),
    )
    for op in (">", ">=", "<", "<="):
        for value in LIMITS:
            limit = MeasureLimit(one, op, value)
            pieces = one.propose(limit, one.derive(left), places, one.derive(right), range(start, stop), 9)
            pairs = [(places[p], s) for piece in pieces for p, s in zip(*piece, strict=True)]
            assert len({*pairs}) == len(pairs)
            assert all(start <= s < stop for _, s in pairs)
            is_true = compare(found, op, value) & (j >= start) & (j < stop)
            assert {*zip(i[is_true], j[is_true], strict=True)} <= {*pairs}
            if value > 0 and op == ">=":
                empty = [p for p, s in pairs if not (left[int(p)].as_py() or right[int(s)].as_py())]
                is_near = (found.values >= value - 1e-8) & ~found.is_null & (j >= start) & (j < stop)
                assert len(pairs) - len(empty) == is_near.sum()


def test_two_empty_arrays_are_refused_when_they_meet() -> None:
    column = pa.array([[], [1], None], pa.list_(pa.int64()))
    one, rows = REGISTRY["jaccard"], np.zeros(1, dtype=np.int64)
    pieces = one.propose(
        MeasureLimit(one, ">=", 0.5), one.derive(column), rows, one.derive(column), range(3), 9
    )
    assert [pair for piece in pieces for pair in zip(*piece, strict=True) if pair[1] == 0] == [(0, 0)]
    with pytest.raises(PredicateError, match=r"EMPTY_SETS.*try_divide"):
        one.compute(column, rows, column, rows)
    found = one.compute(column, rows, column, np.array([2]))
    assert found.is_null.tolist() == [True]
