"""Answers the tuples of a lookup, if Spark has evaluated a part of the condition behind it.

    pairs of some tuples, these tuples, pairs of the next tuples, these tuples, ...

Spark drops pairs and keeps the order of the rows of a task. So all pairs of a tuple that Spark has left are
known when the tuple comes itself. It may have dropped all pairs of a batch, so that the tuples of two batches
come one after the other. Therefore each tuple of a task has a number of its own, and numbers ascend.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import concat
from thetastream.core.columns import DECIDED, KEY, NUMBERS
from thetastream.core.how import select_nearest
from thetastream.core.keys import Int64s
from thetastream.engine.answers.best_partners import PRUNE_BYTES, PRUNE_ROWS
from thetastream.engine.answers.unit import build_alone, build_pairs
from thetastream.engine.lookup import Lookup


class LookupDecider:
    """Answers the tuples of one task.

    Parameters
    ----------
    lookup : Lookup
        One with candidates.
    """

    def __init__(self, lookup: Lookup) -> None:
        assert lookup.candidates is not None
        self._how, self._side = lookup.how, lookup.side
        self._payload = lookup.candidates.payload
        self._ranking = lookup.ranking
        self._matched: list[Int64s] = []
        """The numbers of the tuples of which a pair has come, and which have not come themselves."""
        self._pairs: list[pa.RecordBatch] = []
        """The pairs of which the nearest are results."""
        self._n_new = self._new_bytes = 0

    def answer(self, rows: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield the columns of results for the next rows of the task."""
        is_decided = rows.column(DECIDED).is_valid().to_numpy(zero_copy_only=False)
        ends = [0, *(np.flatnonzero(np.diff(is_decided)) + 1).tolist(), rows.num_rows]
        for start, end in pairwise(ends):
            if start < end:
                part = rows.slice(start, end - start)
                yield from self._decide(part) if is_decided[start] else self._take(part)

    def _take(self, pairs: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Remember pairs. Yield them if each of them is a result."""
        if self._ranking is not None:
            self._pairs.append(pairs)
            self._n_new, self._new_bytes = self._n_new + pairs.num_rows, self._new_bytes + pairs.nbytes
            if self._n_new > PRUNE_ROWS or self._new_bytes > PRUNE_BYTES:
                self._pairs = [self._select_nearest(concat(self._pairs))]
                self._n_new = self._new_bytes = 0
            return
        self._matched.append(np.unique(self._read_numbers(pairs)))
        if self._how.has_pairs:
            yield self._make_pairs(pairs)

    def _decide(self, tuples: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield the answers of tuples, all pairs of which have come."""
        numbers = self._read_numbers(tuples)
        if self._ranking is None:
            matched = np.concatenate([np.zeros(0, np.int64), *self._matched])
            has_partner = np.isin(numbers, matched)
            self._matched = [matched[matched > numbers[-1]]]
        else:
            nearest = self._take_nearest(numbers)
            has_partner = np.isin(numbers, [] if nearest is None else self._read_numbers(nearest))
            if nearest is not None:
                yield self._make_pairs(nearest)
        if self._how.has_unmatched or not self._how.has_pairs:
            kept = np.flatnonzero(~has_partner if self._how.has_unmatched else has_partner)
            if len(kept):
                yield build_alone(self._how, self._payload, self._side, tuples.take(pa.array(kept)))

    def _take_nearest(self, numbers: Int64s) -> pa.RecordBatch | None:
        """Remove the pairs of the tuples with these numbers, and return the nearest of them."""
        if not self._pairs:
            return None
        pairs = concat(self._pairs)
        is_mine = np.isin(self._read_numbers(pairs), numbers)
        rest = pairs.take(pa.array(np.flatnonzero(~is_mine)))
        self._pairs = [rest] if rest.num_rows else []
        self._n_new = self._new_bytes = 0
        return self._select_nearest(pairs.take(pa.array(np.flatnonzero(is_mine))))

    def _select_nearest(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        assert self._ranking is not None
        keys = pairs.column(KEY).to_numpy(zero_copy_only=False)
        return pairs.take(pa.array(select_nearest(self._read_numbers(pairs), keys, self._ranking.k)))

    def _make_pairs(self, pairs: pa.RecordBatch) -> list[pa.Array]:
        left, right = self._payload
        return build_pairs(self._how, pairs.select([*left, *right]).columns, pairs.num_rows)

    def _read_numbers(self, rows: pa.RecordBatch) -> Int64s:
        numbers: Int64s = rows.column(NUMBERS[self._side]).to_numpy(zero_copy_only=False)
        return numbers
