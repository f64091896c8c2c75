"""The open tuples of a unit: the numbers of the preserved tuples that still wait for their first partner.

    number -> page number // PAGE, bit number % PAGE

A unit numbers the tuples of a preserved stream in the order in which they arrive. Open tuples are those whose
number is in a set of bits in pages. A page holds the bits of ``PAGE`` numbers, and a page without numbers is
dropped. So the size of the set follows from its numbers and not from how long the query runs. A page that has
changed is written once per epoch.
"""

import uuid
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.engine.store.segment import SegmentStore

Pages = list[tuple[int, str]]
"""The number of each page, and the name of its block in the store."""
Mask = npt.NDArray[np.bool_]
PAGE = 1 << 16
"""The number of tuples of a page. Each of them needs one bit."""
_PAGE_BYTES = PAGE // 8
_MISSING = 0
"""The row of the bits that stands for all pages that do not exist."""


@dataclass
class OpenState:
    """The state of the open tuples of one stream at one unit."""

    n_numbered: int = 0
    """The number of tuples that have a number."""
    pages: Pages = field(default_factory=list)
    """The pages of the set of open tuples."""


class OpenTuples:
    """The open tuples of one stream at one unit.

    Parameters
    ----------
    state : OpenState
        The state before the epoch.
    store : SegmentStore
        The store that holds the pages.

    Examples
    --------
    >>> from thetastream.engine.store.segment import MemoryStore
    >>> waiting = OpenTuples(OpenState(), MemoryStore())
    >>> waiting.add(3)
    array([0, 1, 2])
    >>> waiting.close(np.array([1, 1]))
    array([ True,  True])
    >>> waiting.are_open(np.array([0, 1, 2]))
    array([ True, False,  True])
    """

    def __init__(self, state: OpenState, store: SegmentStore) -> None:
        self._n_numbered = state.n_numbered
        self._numbers = NumberSet(state.pages, store)

    @property
    def state(self) -> OpenState:
        """The current state. It is complete after ``write``."""
        return OpenState(self._n_numbered, self._numbers.pages)

    def add(self, n: int) -> Int64s:
        """Number ``n`` new tuples, which are open; return their numbers."""
        numbers = np.arange(self._n_numbered, self._n_numbered + n)
        self._numbers.add(numbers)
        self._n_numbered += n
        return numbers

    def are_open(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether its tuple is open."""
        return self._numbers.contain(numbers)

    def close(self, numbers: Int64s) -> Mask:
        """Close the tuples with these numbers; return for each number whether its tuple was open."""
        return self._numbers.remove(numbers)

    def count(self) -> int:
        """Count the open tuples."""
        return self._numbers.count()

    def write(self) -> None:
        """Write the pages that have changed to the store, and drop the pages without open tuples."""
        self._numbers.write()


class NumberSet:
    """A set of numbers of tuples.

    Parameters
    ----------
    pages : list of (int, str)
        The pages before the epoch.
    store : SegmentStore
        The store that holds the pages.

    Examples
    --------
    >>> from thetastream.engine.store.segment import MemoryStore
    >>> numbers = NumberSet([], MemoryStore())
    >>> numbers.add(np.array([3, 70_000]))
    >>> numbers.remove(np.array([3, 4]))
    array([ True, False])
    >>> numbers.contain(np.array([3, 4, 70_000]))
    array([False, False,  True])
    """

    def __init__(self, pages: Pages, store: SegmentStore) -> None:
        self._store = store
        self._names = dict(pages)
        known = sorted(self._names)
        self._bits = np.zeros((1 + len(known), PAGE), dtype=np.bool_)
        for row, page in enumerate(known, 1):
            packed = store.get_block(self._names[page], _PAGE_BYTES).column(0).to_numpy()
            self._bits[row] = np.unpackbits(packed).view(np.bool_)
        self._index_pages(known)
        self._is_changed = np.zeros(1 + len(known), dtype=np.bool_)

    @property
    def pages(self) -> Pages:
        """The current pages. They are complete after ``write``."""
        return sorted(self._names.items())

    def add(self, numbers: Int64s) -> None:
        """Add these numbers."""
        known = set(self._pages)
        new = [page for page in np.unique(numbers // PAGE).tolist() if page not in known]
        if new:
            self._bits = np.vstack([self._bits, np.zeros((len(new), PAGE), dtype=np.bool_)])
            self._is_changed = np.append(self._is_changed, np.zeros(len(new), dtype=np.bool_))
            self._index_pages([*self._pages, *new])
        rows, bits = self._locate(numbers)
        self._bits[rows, bits] = True
        self._is_changed[rows] = True

    def contain(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether it is in the set."""
        rows, bits = self._locate(numbers)
        found: Mask = self._bits[rows, bits]
        return found

    def remove(self, numbers: Int64s) -> Mask:
        """Remove these numbers; return for each of them whether it was in the set."""
        rows, bits = self._locate(numbers)
        was_in: Mask = self._bits[rows, bits]
        self._bits[rows[was_in], bits[was_in]] = False
        self._is_changed[rows[was_in]] = True
        return was_in

    def count(self) -> int:
        """Count the numbers of the set."""
        return int(np.count_nonzero(self._bits))

    def write(self) -> None:
        """Write the pages that have changed to the store, and drop the pages without numbers."""
        for row, page in enumerate(self._pages, 1):
            if not self._is_changed[row]:
                continue
            name = self._names.pop(page, None)
            if name is not None:
                self._store.drop_block(name)
            if self._bits[row].any():
                self._names[page] = uuid.uuid4().hex
                packed = pa.array(np.packbits(self._bits[row]))
                self._store.put_block(self._names[page], pa.RecordBatch.from_arrays([packed], names=["bits"]))

    def _index_pages(self, pages: list[int]) -> None:
        """Map the number of each page, counted from the first page, to its row of the bits."""
        self._pages = pages
        self._first = min(pages, default=0)
        self._rows = np.full(max(pages, default=0) - self._first + 1, _MISSING)
        for row, page in enumerate(pages, 1):
            self._rows[page - self._first] = row

    def _locate(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the row and the bit of each number. A number of a missing page is not in the set."""
        pages = numbers // PAGE - self._first
        last = len(self._rows) - 1
        is_known = (pages >= 0) & (pages <= last)
        return np.where(is_known, self._rows[np.clip(pages, 0, last)], _MISSING), numbers % PAGE
