"""Distance on the sphere: few pairs beside the near ones are proposed, and what is no point is refused."""

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core.errors import PredicateError
from thetastream.core.measure import LimitSearch, MeasureLimit, NearestSearch, Ranges
from thetastream.index.measures import REGISTRY


def draw_points(n: int) -> pa.Array:
    points = np.random.default_rng(3).normal(size=(n, 3))
    return pa.array([*(points / np.linalg.norm(points, axis=1)[:, None])], pa.list_(pa.float64()))


def test_few_pairs_are_proposed() -> None:
    one, column = REGISTRY["metres"], draw_points(3000)
    points, every = one.derive(column), np.arange(3000)
    near, far = (
        [*one.propose(LimitSearch(MeasureLimit(one, op, 100_000.0), points, every, points, every), 1 << 17)]
        for op in ("<=", ">")
    )
    i, j = (np.concatenate([piece[n] for piece in near]) for n in (0, 1))
    n_near = (one.compute(column, i, column, j).values <= 100_000).sum()
    assert 3000 < n_near == len(i)
    assert sum(len(piece.probes) for piece in far if piece.is_proved) == 3000**2 - n_near
    none, best = np.zeros((3000, 0), dtype=np.int64), np.full((3000, 4), -np.inf, dtype=np.float32)
    search = NearestSearch(False, points, every, points, every, best, Ranges(none, none, none), True)
    assert 12_000 <= sum(len(found) for found, _ in one.propose_nearest(search, 1 << 17)) < 30_000


def test_what_is_no_point_is_refused() -> None:
    for value in ([1.0, 0.0], [1.0, None, 0.0], [float("nan"), 0.0, 0.0]):
        with pytest.raises(PredicateError, match=r"\[POINT\]"):
            REGISTRY["metres"].derive(pa.array([None, value], pa.list_(pa.float64())))
