"""Measures that rank partners by scores, the greatest of which is the nearest.

    score     the value of a pair, or its negative if the least value is the nearest
    tile      the scores of some seekers (rows) with some of the others (columns)

A heap has the k greatest scores of each seeker so far. A pair is proposed if its score is not less than the
least of them, so all that tie with it are proposed too.
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.core.measure import NearestSearch, PairMeasure, Singles, collect_places

TILE = 1 << 22
"""The number of scores in a tile, which then has 16 MB."""
MOST_SEEKERS = 1024


class ScoredMeasure(PairMeasure):
    """A measure that computes the scores of many pairs at once. What it derives has ``is_null``."""

    most_others: int = 4096
    """The number of columns of a tile."""

    @abstractmethod
    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        """Compute a tile of scores.

        A score is rounded to single precision. Those of values that are NULL do not matter. A score that is
        surely less than the least one of its heap may be any number that is less, too.

        Parameters
        ----------
        search : NearestSearch
        mine, theirs : int64
            Positions in ``search.seeker_rows`` and in ``search.other_rows``.
        best : float32, shape (len(mine), k)
            The heaps of these seekers.

        Returns
        -------
        float32, shape (len(mine), len(theirs))
        """

    def propose_nearest(self, search: NearestSearch, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
        others = np.arange(len(search.other_rows))
        n_others = max(1, min(len(others), self.most_others))
        step = max(1, min(MOST_SEEKERS, TILE // n_others))
        for begin in range(0, len(search.seeker_rows), step):
            mine = np.arange(begin, min(begin + step, len(search.seeker_rows)))
            for start in range(0, len(others), n_others):
                yield from self._propose_tile(search, mine, others[start : start + n_others], capacity)

    def _propose_tile(
        self, search: NearestSearch, mine: Int64s, theirs: Int64s, capacity: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Propose pairs of a tile, and update the heaps."""
        from thetastream.kernels.tiles import push_best, select_best  # loads Numba

        best = search.best[mine]
        tile = self.score(search, mine, theirs, best)
        tile[search.seekers.is_null[search.seeker_rows[mine]]] = -np.inf
        tile[:, search.others.is_null[search.other_rows[theirs]]] = -np.inf
        probes, stored = (mine, theirs) if search.seekers_probe else (theirs, mine)
        low, high, keys = search.inside
        inside = low[probes], high[probes], keys[stored], search.seekers_probe
        one, zero = (np.full(len(theirs), x, dtype=np.float32) for x in (1, 0))
        slack = np.zeros(len(mine), dtype=np.float32)
        push_best(tile, one, zero, slack, best, *inside)
        search.best[mine] = best
        # Scores of equal values may differ by a rounding to single precision.
        least = np.nextafter(best, np.float32(-np.inf))
        find = partial(select_best, tile, one, zero, slack, least, *inside)
        for found, columns in collect_places(find, capacity):
            yield mine[found], theirs[columns]
