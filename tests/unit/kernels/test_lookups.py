"""Sorts of keys, and searches in ascending keys, do what NumPy does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetastream.core.keys import Int64s, sort_keys, sort_neighbours
from thetastream.kernels.keys import find_cells
from thetastream.kernels.walk import lower_bound, step_to

ENDS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
any_key = st.integers(*ENDS) | st.integers(-9, 9) | st.integers(0, 3).map(lambda n: n << 40)
some_keys = st.lists(any_key, max_size=70).map(lambda keys: np.array(keys, dtype=np.int64))
NARROW = [np.arange(1000)[::-1] << 30, np.repeat([5, -5, 5], 400), np.full(9, ENDS[0]), np.array(ENDS)]


@given(some_keys)
@pytest.mark.parametrize("is_stable", [False, True])
def test_keys_are_sorted(is_stable: bool, keys: Int64s) -> None:
    order = sort_keys(keys, is_stable=is_stable)
    assert sorted(order.tolist()) == list(range(len(keys)))
    assert keys[order].tolist() == np.sort(keys).tolist()
    if is_stable:
        assert order.tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("keys", NARROW)
def test_a_rough_sort_of_keys_with_few_bits_is_exact_and_stable(keys: Int64s) -> None:
    assert sort_keys(keys, is_rough=True).tolist() == np.argsort(keys, kind="stable").tolist()


def test_a_rough_sort_exchanges_close_keys_only() -> None:
    random = np.random.default_rng(1)
    keys = random.integers(*ENDS, 50_000)
    ordered = keys[sort_keys(keys, is_rough=True)]
    assert np.abs(ordered / 2**64 - np.sort(keys) / 2**64).max() < 2**-45
    groups = sort_neighbours(keys, 100)
    assert (groups // 100 == np.arange(50_000) // 100).all()
    inside = keys[groups].reshape(-1, 100)
    assert np.abs(inside / 2**64 - np.sort(keys.reshape(-1, 100)) / 2**64).max() < 2**-35


@given(some_keys, st.lists(st.tuples(any_key, any_key), max_size=40))
def test_intervals_touch_the_cells_of_their_keys(keys: Int64s, ends: list[tuple[int, int]]) -> None:
    edges = np.sort(keys)
    low, high = (np.array([one[n] for one in ends], dtype=np.int64) for n in (0, 1))
    first, last = np.empty_like(low), np.empty_like(low)
    find_cells(edges, low, high, first, last)
    assert first.tolist() == np.maximum(np.searchsorted(edges, low) - 1, 0).tolist()
    assert last.tolist() == np.searchsorted(edges, high, side="right").tolist()


@given(some_keys, any_key, st.integers(0, 70), st.integers(0, 70))
def test_a_search_by_steps_finds_the_lower_bound(keys: Int64s, key: int, start: int, end: int) -> None:
    rows = np.sort(keys).reshape(-1, 1)
    end = min(end, len(rows))
    start = min(start, end)
    assert step_to(rows, 0, start, end, key) == lower_bound(rows, 0, start, end, key)
