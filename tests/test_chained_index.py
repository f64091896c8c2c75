"""How an epoch's archive periods are cut into segments."""

import warnings

import numpy as np
import pytest

from thetastream.joiner import chain


def test_periods_at_the_edges_of_int64() -> None:
    edges = np.iinfo(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chain.spans(np.array([edges.min, edges.max])) == [
            (edges.min, edges.min),
            (edges.max, edges.max),
        ]


def test_a_period_with_many_tuples_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SHARED_ROWS", 3)
    assert chain.spans(np.array([1, 2, 2, 3, 3, 3, 4])) == [(1, 2), (3, 3), (4, 4)]
