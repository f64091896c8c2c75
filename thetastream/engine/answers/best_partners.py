"""The best partners that each undecided tuple of a unit has found so far: the best k, and ties with the last.

    page -> block of { (number of the left tuple, key of the pair, right tuple) }

Pages are those of open tuples: a page has the partners of ``PAGE`` consecutive numbers.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import RowFacts, concat, cut_matches
from thetastream.core.columns import KEY, TUPLE
from thetastream.core.how import select_nearest
from thetastream.core.keys import Int64s
from thetastream.engine.answers.open_tuples import PAGE, Mask
from thetastream.engine.store.probing import BYTES_AT_ONCE
from thetastream.engine.store.segment import SegmentStore

PRUNE_ROWS = 1 << 18
PRUNE_BYTES = 1 << 26
"""Pairs are reduced to the nearest ones as soon as there are this many, or as they have this many bytes."""


@dataclass
class BestState:
    """The state of the best partners at one unit."""

    pages: list[tuple[int, str, int]] = field(default_factory=list)
    """The number of each page, the name of its block in the store, and its number of rows."""


class BestPartners:
    """The best partners of the undecided tuples of a unit."""

    def __init__(self, k: int, state: BestState, store: SegmentStore) -> None:
        self._k = k
        self._store = store
        self._pages = {page: (name, n_rows) for page, name, n_rows in state.pages}
        self._new: list[pa.RecordBatch] = []
        self._n_new = self._new_bytes = 0

    @property
    def state(self) -> BestState:
        """The current state. It is complete after ``write``."""
        return BestState([(page, *found) for page, found in sorted(self._pages.items())])

    def add(self, numbers: Int64s, keys: Int64s, partners: pa.RecordBatch, rows: Int64s) -> None:
        """Add pairs of left tuples with these numbers and the right tuples ``partners[rows]``."""
        chosen = select_nearest(numbers, keys, self._k)
        block = partners.take(rows[chosen])
        block = block.append_column(TUPLE, pa.array(numbers[chosen]))
        self._new.append(block.append_column(KEY, pa.array(keys[chosen])))
        self._n_new += block.num_rows
        self._new_bytes += block.nbytes
        if self._n_new > PRUNE_ROWS or self._new_bytes > PRUNE_BYTES:
            self._new = [self._prune(self._new)]
            # Half of them counts, so that pairs that stay do not cause pruning each time.
            self._n_new, self._new_bytes = self._new[0].num_rows // 2, self._new[0].nbytes // 2

    def merge(self) -> None:
        """Merge the new pairs of the epoch into the pages."""
        if not self._new:
            return
        new, self._new, self._n_new, self._new_bytes = self._prune(self._new), [], 0, 0
        pages = new.column(TUPLE).to_numpy() // PAGE
        for page in np.unique(pages).tolist():
            part = new.take(np.flatnonzero(pages == page))
            old = self._read(page)
            self._write(page, part if old is None else self._prune([old, part]))

    def take(self, numbers: Int64s) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        """Remove the partners of the tuples with these numbers.

        Yield positions in ``numbers``, and the partner that belongs to each.
        """
        order = np.argsort(numbers)
        for page in np.unique(numbers // PAGE).tolist():
            block = self._read(page)
            if block is None:
                continue
            is_due: Mask = np.isin(block.column(TUPLE).to_numpy(), numbers)
            if is_due.any():
                found = block.take(np.flatnonzero(is_due))
                at = order[np.searchsorted(numbers[order], found.column(TUPLE).to_numpy())]
                self._write(page, block.take(np.flatnonzero(~is_due)))
                yield at, found.drop_columns([TUPLE, KEY])

    def _prune(self, blocks: list[pa.RecordBatch]) -> pa.RecordBatch:
        block = concat(blocks)
        numbers, keys = (block.column(name).to_numpy() for name in (TUPLE, KEY))
        return block.take(select_nearest(numbers, keys, self._k))

    def _read(self, page: int) -> pa.RecordBatch | None:
        found = self._pages.get(page)
        return None if found is None else self._store.get_block(*found)

    def _write(self, page: int, block: pa.RecordBatch) -> None:
        old = self._pages.pop(page, None)
        if old is not None:
            self._store.drop_block(old[0])
        if block.num_rows:
            name = uuid.uuid4().hex
            self._store.put_block(name, block)
            self._pages[page] = name, block.num_rows


def pair_with_best(left: pa.RecordBatch, at: Int64s, right: pa.RecordBatch) -> Iterator[list[pa.Array]]:
    """Yield the columns of the pairs (left[at[i]], right[i]), a few bytes at a time.

    A page may have many pairs, and each repeats the left tuple.
    """
    every = np.arange(len(at))
    for piece in cut_matches(RowFacts(left), at, RowFacts(right), every, BYTES_AT_ONCE):
        part = right.slice(piece.start, piece.stop - piece.start)
        yield [*left.take(at[piece]).columns, *part.columns]
