"""The archive periods of an epoch are cut into segments."""

import warnings

import numpy as np
import pytest

from tests.support.tiny import make_segments_tiny
from thetastream.engine.store import period_spans
from thetastream.engine.store.period_spans import LARGE_GAPS, SEGMENTS_PER_EPOCH, cut_periods


def test_periods_at_the_edges_of_int64() -> None:
    edges = np.iinfo(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cut_periods(np.array([edges.min, edges.max])) == [
            (edges.min, edges.min),
            (edges.max, edges.max),
        ]


def test_a_period_with_many_tuples_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period_spans, "SPARSE_ROWS", 1)
    monkeypatch.setattr(period_spans, "SHARED_ROWS", 3)
    assert cut_periods(np.array([1, 2, 2, 3, 3, 3, 4])) == [(1, 2), (3, 3), (4, 4)]


def test_tiny_segments_hold_one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    make_segments_tiny(monkeypatch)
    assert cut_periods(np.array([5, 1, 2, 5])) == [(1, 1), (2, 2), (5, 5)]


@pytest.mark.parametrize("n_rows", [1, 1_000, 12_288, 131_072])
@pytest.mark.parametrize("gap", [1, 30, 10_000])
def test_sparse_history_makes_few_segments(n_rows: int, gap: int) -> None:
    periods = np.arange(n_rows) * gap
    spans = cut_periods(periods)
    assert len(spans) <= SEGMENTS_PER_EPOCH + LARGE_GAPS + 1
    found = np.concatenate([periods[(periods >= first) & (periods <= last)] for first, last in spans])
    assert np.array_equal(found, periods)


def test_a_tuple_far_ahead_keeps_no_other_tuple() -> None:
    periods = np.concatenate([np.arange(0, 1_000, 10), [10**9]])
    assert cut_periods(periods)[-1] == (10**9, 10**9)
    assert max(last for _, last in cut_periods(periods)[:-1]) == 990
