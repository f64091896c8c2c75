"""Finds the nearest rows of a run for left tuples, without looking at all partners.

The rows of a run lie in the order of their values, apart by the keys of the equalities. Away from one place,
the distance from a tuple only grows: in both directions if it is ``abs(f - g)``, and in one direction if it
is a difference or a value of the row. So a search takes a few rows beside that place, checks the rest of the
condition, and takes four times as many for the tuples that have not found enough.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import RowFacts
from thetastream.core.columns import RANKED
from thetastream.core.condition import Domain
from thetastream.core.how import Ranking
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, Mask, combine_keys, encode
from thetastream.engine.store.box import Box, IndexPlan
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.run import Run

FIRST_ROWS = 4
"""The number of rows that a search takes at first, in each direction, beside ``k``."""
PAIRS_AT_ONCE = 1 << 20
SAMPLE = 16
"""The number of tuples that tell how many partners a tuple has."""
SEARCHED = 8
"""A search costs as much as ranking this many partners."""
COMPARED = 32
"""Ranking a partner costs as much as comparing a tuple with this many rows."""


def can_search(plan: IndexPlan) -> bool:
    """Whether the intervals of a probe say which rows are partners. If not, all candidates must be ranked."""
    return not (plan.condition.same or plan.condition.predicates)


def cost_more(
    tuples: pa.RecordBatch,
    keys: Int64s,
    probe: Callable[[Int64s, RowFacts], Iterable[Candidates]],
    most: float,
) -> bool:
    """Whether to find and rank all partners of tuples costs more than to rank ``most`` partners.

    Parameters
    ----------
    tuples : pyarrow.RecordBatch
    keys : int64, shape (n, 1 + keys)
        Their key rows.
    probe : callable
        Finds the partners of some of them. It is called for a sample, and asked until that costs too much.
    most : float
    """
    sample = np.arange(0, len(keys), max(1, len(keys) // SAMPLE))
    left = most * len(sample) / max(1, len(keys))
    for one in probe(keys.take(sample, axis=0), RowFacts(tuples.take(pa.array(sample)))):
        left -= len(one.probes) + one.n_compared / COMPARED
        if left < 0:
            return True
    return False


@dataclass(frozen=True)
class RankedRun:
    """A run whose rows also lie in the order of their values."""

    run: Run
    plan: IndexPlan
    ranking: Ranking

    @classmethod
    def of(cls, run: Run, plan: IndexPlan, ranking: Ranking) -> Self:
        """Return what is kept with the run, so that later searches find its arrays."""
        return run.facts.keep(("order of values", ranking), lambda: cls(run, plan, ranking))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that were computed so far, without those that the run has itself."""
        arrays = [self.__dict__.get(name) for name in ("values", "groups", "order", "sorted_values", "rows")]
        return sum(array.nbytes for array in arrays if array is not None and array is not self.run.rows)

    @cached_property
    def values(self) -> Int64s:
        """The encoded value of each row. NULL and NaN have the highest ones."""
        return encode(self.run.payload.column(RANKED), self.ranking.domain)

    @cached_property
    def _begins_with_nan(self) -> bool:
        """Whether a row has NaN, and NaN is the nearest: it is greater than all numbers."""
        ranking = self.ranking
        if ranking.domain is not Domain.FLOAT or not ranking.is_descending or ranking.has_nan_last:
            return False
        return bool((self.values == HIGHEST - 1).any())

    @cached_property
    def groups(self) -> Int64s:
        """The keys of the equalities of each row, combined."""
        columns = self.plan.access.group
        if not columns:
            return np.zeros(self.run.n_rows, dtype=np.int64)
        return combine_keys([np.ascontiguousarray(self.run.rows[:, column]) for column in columns])

    @cached_property
    def order(self) -> Int64s:
        """The rows by group and value."""
        groups, values = self.groups, self.values
        is_ascending = (groups[1:] > groups[:-1]) | (
            (groups[1:] == groups[:-1]) & (values[1:] >= values[:-1])
        )
        if is_ascending.all():
            return np.arange(len(values))  # The index has the same order, as for an as-of join.
        return np.lexsort((values, groups)).astype(np.int64)

    @cached_property
    def sorted_values(self) -> Int64s:
        """The values in this order."""
        return self.values[self.order]

    @cached_property
    def edges(self) -> tuple[Int64s, Int64s, Int64s]:
        """The groups in this order, each once; where each begins; and where its rows without a value begin.

        The last group of the second array is no group. It begins where the last one ends.
        """
        groups = self.groups[self.order]
        is_first = np.append(True, groups[1:] != groups[:-1])[: len(groups)]
        starts = np.append(np.flatnonzero(is_first), len(groups))
        known = self._bisect(starts[:-1], starts[1:], np.full(len(starts) - 1, HIGHEST - 1), False)
        return groups[starts[:-1]], starts, known

    @cached_property
    def rows(self) -> Int64s:
        """The key rows in this order."""
        is_same = np.array_equal(self.order, np.arange(len(self.order)))
        return self.run.rows if is_same else self.run.rows.take(self.order, axis=0)

    @cached_property
    def bounding(self) -> tuple[int, ...]:
        """The key columns that are the values themselves, so that their bounds cut the search."""
        width = self.run.rows.shape[1]
        return tuple(n for n in range(width) if np.array_equal(self.run.rows[:, n], self.values))

    def find(self, box: Box, values: pa.Array | None) -> tuple[Int64s, Int64s, Int64s, Mask]:
        """Find rows among which the nearest partners are.

        Parameters
        ----------
        box : Box
            The boxes of n tuples.
        values : pyarrow.Array, optional
            The value of each tuple, if the ranking reads one.

        Returns
        -------
        tuple of three int64 arrays, and a mask of shape (n,)
            The tuple, the row and the key of the rank of each pair; and for which tuples a search is not
            enough, because a value is NULL or NaN.
        """
        # Tuples in the order of the rows read neighbouring cache lines.
        order = self._sequence(box)
        box, values = box.arrange(order), None if values is None else values.take(pa.array(order))
        start, end, stop = self._bound(box)
        mine = None if values is None else encode(values, self.ranking.domain)
        is_hard = np.zeros(box.n_probes, dtype=np.bool_)
        if values is not None and mine is not None:
            is_hard = mine >= HIGHEST - 1
            if self.ranking.domain is Domain.FLOAT:
                # The difference of two infinite values is NaN, which is not at the end of the order.
                is_hard |= np.isinf(values.fill_null(0).to_numpy(zero_copy_only=False))
        if self.ranking.has_nulls_first or self._begins_with_nan:
            is_hard |= stop > end
        origin = None if mine is None or not self.ranking.is_abs else self._bisect(start, end, mine, False)
        found: list[tuple[Int64s, Int64s, Int64s]] = []
        active = np.flatnonzero(~is_hard & (end > start))
        # If the bounds are the whole condition, one row behind the k nearest ones tells that there is no tie.
        is_bounded = box.spans.keys() <= {*self.bounding, *self.plan.access.group}
        width = self.ranking.k + (1 if is_bounded else FIRST_ROWS)
        while len(active):
            unfinished = []
            step = max(1, PAIRS_AT_ONCE // (2 * width))
            for part in (active[n : n + step] for n in range(0, len(active), step)):
                pairs, is_done, n_accepted = self._look(box, part, start, end, origin, width, values)
                lacks = n_accepted < self.ranking.k
                is_hard[part[is_done & lacks & (stop[part] > end[part])]] = True
                kept = is_done[np.searchsorted(part, pairs[0])]
                found.append((pairs[0][kept], pairs[1][kept], pairs[2][kept]))
                unfinished.append(part[~is_done])
            active, width = np.concatenate(unfinished), 4 * width
        is_hard |= (end <= start) & (stop > end)
        empty = np.zeros(0, dtype=np.int64)
        probe, row, key = (np.concatenate([empty, *(one[n] for one in found)]) for n in range(3))
        return order[probe], self.order[row], key, is_hard[np.argsort(order)]

    def _sequence(self, box: Box) -> Int64s:
        """Order the tuples as the rows that they look for."""
        keys = [] if box.group is None else [box.group]
        for column in self.bounding:
            if column in box.spans:
                span = box.spans[column]
                keys.insert(0, span.high if self._goes_down else span.low)
        return np.lexsort(keys).astype(np.int64) if keys else np.arange(box.n_probes)

    def _bound(self, box: Box) -> tuple[Int64s, Int64s, Int64s]:
        """Find the rows with a value that each tuple may meet, and where the rows of its group end."""
        n = box.n_probes
        edges, starts, known = self.edges
        place, after = np.zeros(n, dtype=np.int64), np.full(n, len(edges))
        if box.group is not None:
            from thetastream.kernels.keys import find_equal  # loads Numba

            find_equal(edges, np.ascontiguousarray(box.group), place, after)
        start, stop = starts[place], starts[after]
        end = np.where(place < after, np.append(known, 0)[place], start)  # without NULL and NaN
        for column in self.bounding:
            if column in box.spans:
                low, high = box.spans[column]
                if low.max(initial=LOWEST) > LOWEST:
                    start = self._bisect(start, end, low, False)
                if high.min(initial=HIGHEST) < HIGHEST:
                    end = self._bisect(start, end, high, True)
        return start, end, stop

    def _bisect(self, low: Int64s, high: Int64s, keys: Int64s, is_after: bool) -> Int64s:
        """Find the first row in [low, high) whose value is at least a key, or beyond it if ``is_after``."""
        from thetastream.kernels.keys import bisect  # loads Numba

        found = np.empty_like(low)
        bisect(self.sorted_values, low, high, np.ascontiguousarray(keys), is_after, found)
        return found

    def _look(
        self,
        box: Box,
        part: Int64s,
        start: Int64s,
        end: Int64s,
        origin: Int64s | None,
        width: int,
        values: pa.Array | None,
    ) -> tuple[tuple[Int64s, Int64s, Int64s], Mask, Int64s]:
        """Look at ``width`` rows in each direction; return the partners, who is done, and their numbers."""
        first, last = start[part], end[part]
        steps = np.arange(width, dtype=np.int64)
        if origin is not None:
            place = np.clip(origin[part], first, last)
            at = np.concatenate([place[:, None] - 1 - steps[::-1], place[:, None] + steps], axis=1)
            edges = [(place - width > first, 0), (place + width < last, 2 * width - 1)]
        elif self._goes_down:
            at = last[:, None] - 1 - steps
            edges = [(last - width > first, width - 1)]
        else:
            at = first[:, None] + steps
            edges = [(first + width < last, width - 1)]
        is_inside = (at >= first[:, None]) & (at < last[:, None])
        at = np.where(is_inside, at, first[:, None])
        keys = self._rank(part, at, values)
        is_partner = is_inside
        for column, span in box.spans.items():
            value = self.rows[at, column]
            is_partner = is_partner & (value >= span.low[part][:, None]) & (value <= span.high[part][:, None])
        n_partners = is_partner.sum(axis=1)
        # The partners are all there if the rows beyond the edges are farther than the last one that counts.
        ranked = np.sort(np.where(is_partner, keys, HIGHEST), axis=1)
        k = min(self.ranking.k, keys.shape[1])
        worst = ranked[:, k - 1]
        is_done = np.ones(len(part), dtype=np.bool_)
        for goes_on, column in edges:
            is_enough = (n_partners >= self.ranking.k) & (keys[:, column] > worst)
            is_done &= ~goes_on | is_enough
        tuples, columns = np.nonzero(is_partner & (keys <= worst[:, None]))
        return (part[tuples], at[tuples, columns], keys[tuples, columns]), is_done, n_partners

    @property
    def _goes_down(self) -> bool:
        """Whether the nearest row has the greatest value: of ``f - g``, or of ``g`` in descending order."""
        ranking = self.ranking
        is_greatest = ranking.has_left and not ranking.is_flipped
        return is_greatest is not ranking.is_descending

    def _rank(self, part: Int64s, at: Int64s, values: pa.Array | None) -> Int64s:
        """Compute the key of the rank of each pair."""
        theirs = self.run.payload.column(RANKED).take(pa.array(self.order[at.ravel()]))
        mine = None if values is None else values.take(pa.array(np.repeat(part, at.shape[1])))
        keys = self.ranking.rank_keys(mine, theirs)
        return keys.reshape(at.shape)
