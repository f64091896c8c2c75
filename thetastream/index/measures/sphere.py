"""Distance on the sphere, in the form that ``th.metres`` writes: 2 R arcsin(c / 2), where c is the length of
the straight line between two points on the unit sphere.

*Proposals.* A distance has one c, and points that are nearer than c differ by at most c in each coordinate.
So stored points lie in the order of the coordinate in which they differ most, and the near ones lie side by
side. Of a comparison ``distance > d``, all others are proved.

*The nearest.* In the order of this coordinate, blocks of points are compared from the nearest block outward,
until a block is farther than the k-th nearest point of each seeker.

*Decisions.* A sum of three squares, a square root and the arcsine of Java (fdlibm), bit for bit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    Bools,
    DerivedArrays,
    Floats,
    LimitSearch,
    NearestSearch,
    Proposal,
    Singles,
    Values,
    collect_places,
    join_places,
    pair_all,
    pair_others,
)
from thetastream.core.sphere import DIAMETER_M, METRES
from thetastream.index.measures.scores import ScoredMeasure

ROOM = 1e-9
"""More than the relative error of a squared length, and of its limit."""
BLOCK = 1024
"""The number of points that are compared together."""


@dataclass(frozen=True)
class Points(DerivedArrays):
    """The points of a column."""

    coordinates: Floats
    """Of shape (n, 3). Rows that are no points have zeros."""
    is_null: Bools


class Metres(ScoredMeasure):
    """The distance of two points on the Earth, in metres."""

    name = "metres"
    forms = (METRES,)
    arguments = "two points, as th.metres writes them"

    def takes(self, left: str, right: str) -> bool:
        return left == right == "array<double>"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        from thetastream.kernels.points import measure_metres  # loads Numba

        mine, theirs = left.take(pa.array(left_rows)), right.take(pa.array(right_rows))
        x, y = self.derive(mine), self.derive(theirs)
        values = np.zeros(len(left_rows))
        measure_metres(x.coordinates, y.coordinates, DIAMETER_M, values)
        return Values(values, x.is_null | y.is_null)

    def derive(self, column: pa.Array) -> Points:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        known = column.drop_null()
        floats = known.flatten()
        found = floats.fill_null(np.nan).to_numpy(zero_copy_only=False)
        if len(found) != 3 * len(known) or not np.isfinite(found).all():
            raise PredicateError("POINT", "a point of th.metres is an array of three numbers")
        coordinates = np.zeros((len(column), 3))
        coordinates[~is_null] = found.reshape(-1, 3)
        return Points(coordinates, is_null)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        usual, others = search.find_known()
        points = search.probes.coordinates[search.probe_rows]
        found = search.stored.coordinates[search.stored_rows[others]]
        axis = _find_axis(found)
        order = np.argsort(found[:, axis], kind="stable")
        others, ordered = others[order], np.ascontiguousarray(found[order])
        square = _find_square(search.limit.value)
        reach = math.sqrt(max(square, 0.0))

        def find_near(some: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
            from thetastream.kernels.points import select_points  # loads Numba

            mine = points[some]
            first = np.searchsorted(ordered[:, axis], mine[:, axis] - reach, side="left")
            last = np.searchsorted(ordered[:, axis], mine[:, axis] + reach, side="right")
            return collect_places(partial(select_points, mine, ordered, first, last, square), capacity)

        if search.limit.is_far:
            yield from pair_others(usual, others, lambda some: join_places(find_near(some)), capacity)
            return
        for near, columns in find_near(usual):
            yield Proposal(usual[near], others[columns])

    def propose_nearest(self, search: NearestSearch, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
        if search.is_descending:
            yield from super().propose_nearest(search, capacity)
            return
        left, right = search.seekers, search.others
        usual = np.flatnonzero(~left.is_null[search.seeker_rows])
        others = np.flatnonzero(~right.is_null[search.other_rows])
        missing = np.flatnonzero(right.is_null[search.other_rows])
        # 1. Order both sides by the coordinate in which the others differ most.
        mine = left.coordinates[search.seeker_rows[usual]]
        theirs = right.coordinates[search.other_rows[others]]
        axis = _find_axis(theirs)
        usual = usual[np.argsort(mine[:, axis], kind="stable")]
        others = others[np.argsort(theirs[:, axis], kind="stable")]
        places = [
            points.coordinates[rows[found], axis]
            for points, rows, found in (
                (left, search.seeker_rows, usual),
                (right, search.other_rows, others),
            )
        ]
        # 2. Compare blocks from the nearest one outward.
        starts = np.arange(0, len(others), BLOCK)
        lows, highs = places[1][starts], places[1][np.minimum(starts + BLOCK, len(others)) - 1]
        for begin in range(0, len(usual), BLOCK):
            some, at = usual[begin : begin + BLOCK], places[0][begin : begin + BLOCK]
            gaps = np.maximum(0, np.maximum(lows - at[-1], at[0] - highs))
            for number in np.argsort(gaps, kind="stable"):
                if -(gaps[number] ** 2) * (1 - 1e-6) < search.best[some, 0].min():
                    break
                block = others[starts[number] : starts[number] + BLOCK]
                yield from self._propose_tile(search, some, block, capacity)
            # 3. NULL is the last. Only seekers without k other partners may need it.
            lacking = some[search.best[some, 0] == -np.inf]
            yield from pair_all(lacking, missing, capacity)
        every = np.arange(len(search.other_rows))
        yield from pair_all(np.flatnonzero(left.is_null[search.seeker_rows]), every, capacity)

    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        from thetastream.kernels.points import score_points  # loads Numba

        left, right = search.seekers, search.others
        rows, other_rows = search.seeker_rows[mine], search.other_rows[theirs]
        tile = np.empty((len(mine), len(theirs)), dtype=np.float32)
        score_points(left.coordinates[rows], right.coordinates[other_rows], tile)
        return -tile if search.is_descending else tile


def _find_axis(points: Floats) -> int:
    """Return the coordinate in which points differ most."""
    return int(points.std(axis=0).argmax()) if len(points) else 0


def _find_square(metres: float) -> float:
    """Return a squared length that points within a distance do not exceed; -1 if there are none."""
    if metres < 0:
        return -1.0
    half = min(metres / DIAMETER_M, math.pi / 2)
    return 4 * math.sin(half) ** 2 * (1 + ROOM) + 1e-30
