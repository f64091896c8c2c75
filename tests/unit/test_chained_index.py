"""The archive periods of an epoch are cut into segments."""

import warnings

import numpy as np
import pytest

from thetastream.engine.store import chained_index


def test_periods_at_the_edges_of_int64() -> None:
    edges = np.iinfo(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chained_index.cut_periods(np.array([edges.min, edges.max])) == [
            (edges.min, edges.min),
            (edges.max, edges.max),
        ]


def test_a_period_with_many_tuples_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "SHARED_ROWS", 3)
    assert chained_index.cut_periods(np.array([1, 2, 2, 3, 3, 3, 4])) == [(1, 2), (3, 3), (4, 4)]
