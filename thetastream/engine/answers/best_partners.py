"""The best partners that each undecided tuple of a unit has found so far: the best k, and ties with the last.

    page -> block of { (number of the left tuple, key of the pair, right tuple) }

Pages are those of open tuples: a page has the partners of ``PAGE`` consecutive numbers.

If right tuples may be deleted, a partner that is not among the best may be so later. Then all partners are
kept with their signs until their left tuple is decided, apart from those that cancel each other.

If right tuples are versions, one of the nearest is the partner: the last one by its order. If it says that
its key has no row any more, the left tuple has no partner.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import Matches, RowFacts, concat, cut_matches
from thetastream.core.cancellation import find_net, net_matches
from thetastream.core.columns import KEY, SIGN, TUPLE
from thetastream.core.condition import SideSpec
from thetastream.core.how import select_nearest
from thetastream.core.keys import Int64s, Mask
from thetastream.core.versions import are_gone, select_last
from thetastream.engine.answers.open_tuples import PAGE
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
    """The best partners of the undecided tuples of a unit.

    ``has_deletes`` says whether partners have a sign, because right tuples may be deleted. ``partners``
    describes right tuples, which may be versions.
    """

    def __init__(
        self,
        k: int,
        state: BestState,
        store: SegmentStore,
        has_deletes: bool = False,
        partners: SideSpec | None = None,
    ) -> None:
        self._k = k
        self._has_deletes = has_deletes
        self._versions = () if partners is None else partners.version_columns
        self._columns = () if partners is None else partners.columns
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
        chosen = np.arange(len(keys)) if self._has_deletes else select_nearest(numbers, keys, self._k)
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
                if self._has_deletes:
                    found = self._choose_inserted(found)
                if self._versions:
                    found = found.take(np.flatnonzero(~are_gone(found))).drop_columns(self._versions)
                at = order[np.searchsorted(numbers[order], found.column(TUPLE).to_numpy())]
                self._write(page, block.take(np.flatnonzero(~is_due)))
                yield at, found.drop_columns([TUPLE, KEY])

    def _prune(self, blocks: list[pa.RecordBatch]) -> pa.RecordBatch:
        block = concat(blocks)
        if self._has_deletes:
            left = find_net(_list_columns(block), block.column(SIGN).to_numpy())
            return block if left is None else block.take(left)
        return self._choose(block)

    def _choose_inserted(self, partners: pa.RecordBatch) -> pa.RecordBatch:
        """Choose the nearest of the partners that are inserted and not deleted."""
        return self._choose(partners.filter(pc.greater(partners.column(SIGN), 0))).drop_columns([SIGN])

    def _choose(self, block: pa.RecordBatch) -> pa.RecordBatch:
        numbers, keys = (block.column(name).to_numpy() for name in (TUPLE, KEY))
        nearest = block.take(select_nearest(numbers, keys, self._k))
        if not self._versions:
            return nearest
        return nearest.take(select_last(nearest.column(TUPLE).to_numpy(), nearest, self._columns))

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


def mark_partners(
    found: Iterable[tuple[Int64s, pa.RecordBatch]], has_partner: Mask
) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Yield what is found, and note in ``has_partner`` which tuples have a partner."""
    for at, right in found:
        has_partner[at] = True
        yield at, right


def _list_columns(block: pa.RecordBatch) -> list[pa.Array]:
    """List the columns of partners without their sign. The number of the left tuple is first."""
    names = [name for name in block.schema.names if name not in (SIGN, TUPLE)]
    return [block.column(name) for name in (TUPLE, *names)]


def pair_with_best(
    left: pa.RecordBatch, signs: pa.Array | None, found: Iterable[tuple[Int64s, pa.RecordBatch]]
) -> Iterator[Matches]:
    """Yield the pairs (left[at[i]], right[i]) of each found (at, right), a few bytes at a time.

    A page may have many pairs, and each repeats the left tuple. The sign of a pair is that of its left tuple,
    which is in ``signs`` if left tuples may be deleted. Equal pairs of opposite sign cancel each other then:
    equal left tuples are decided in one epoch, and have the same partners.
    """
    held = []
    for at, right in found:
        every = np.arange(len(at))
        for piece in cut_matches(RowFacts(left), at, RowFacts(right), every, BYTES_AT_ONCE):
            part = right.slice(piece.start, piece.stop - piece.start)
            if signs is None:
                yield Matches(left.take(at[piece]), part)
            else:
                held.append(Matches(left.take(at[piece]), part, signs.take(pa.array(at[piece]))))
    if held:
        yield net_matches(held)
