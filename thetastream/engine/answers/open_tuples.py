"""The open tuples of a unit: the numbers of the preserved tuples that still wait for their first partner.

    number -> page number // PAGE, bit number % PAGE

A unit numbers the tuples of a preserved stream in the order in which they arrive. One bit says whether a
tuple is open. Bits lie in pages of ``PAGE`` tuples, and a page without open tuples is dropped. So the size of
the state follows from the open tuples and not from how long the query runs.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.engine.store.segment import SegmentStore

PAGE = 1 << 16
"""The number of tuples of a page, of which each needs one bit."""
_PAGE_BYTES = PAGE // 8
_CLOSED = 0
"""The row of the bits that stands for all pages that were dropped."""

Mask = npt.NDArray[np.bool_]


@dataclass
class OpenState:
    """The state of the open tuples of one stream at one unit."""

    n_numbered: int = 0
    """The number of tuples that have a number."""
    pages: list[tuple[int, str]] = field(default_factory=list)
    """The number of each page, and the name of its block in the store."""

    def as_json(self) -> dict[str, Any]:
        """Convert the state to plain values for the manifest."""
        return {"n_numbered": self.n_numbered, "pages": self.pages}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "OpenState":
        """Build a state from the values that ``as_json`` returned."""
        return cls(int(values["n_numbered"]), [(int(page), str(name)) for page, name in values["pages"]])


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
        self._store = store
        self._n_numbered = state.n_numbered
        self._names = dict(state.pages)
        pages = sorted(self._names)
        self._bits = np.zeros((1 + len(pages), PAGE), dtype=np.bool_)
        for row, page in enumerate(pages, 1):
            packed = store.get_block(self._names[page], _PAGE_BYTES).column(0).to_numpy()
            self._bits[row] = np.unpackbits(packed).view(np.bool_)
        self._index_pages(pages)
        self._is_changed = np.zeros(1 + len(pages), dtype=np.bool_)

    @property
    def state(self) -> OpenState:
        """The current state. It is complete after ``write``."""
        return OpenState(self._n_numbered, sorted(self._names.items()))

    def add(self, n: int) -> Int64s:
        """Number ``n`` new tuples, which are open; return their numbers."""
        numbers = np.arange(self._n_numbered, self._n_numbered + n)
        if n:
            new = [
                page for page in range(numbers[0] // PAGE, numbers[-1] // PAGE + 1) if page not in self._pages
            ]
            if new:
                self._bits = np.vstack([self._bits, np.zeros((len(new), PAGE), dtype=np.bool_)])
                self._is_changed = np.append(self._is_changed, np.zeros(len(new), dtype=np.bool_))
                self._index_pages([*self._pages, *new])
            self._n_numbered += n
            rows, bits = self._locate(numbers)
            self._bits[rows, bits] = True
            self._is_changed[rows] = True
        return numbers

    def are_open(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether its tuple is open."""
        rows, bits = self._locate(numbers)
        found: Mask = self._bits[rows, bits]
        return found

    def close(self, numbers: Int64s) -> Mask:
        """Close the tuples with these numbers; return for each number whether its tuple was open."""
        rows, bits = self._locate(numbers)
        was_open: Mask = self._bits[rows, bits]
        self._bits[rows[was_open], bits[was_open]] = False
        self._is_changed[rows[was_open]] = True
        return was_open

    def count(self) -> int:
        """Count the open tuples."""
        return int(np.count_nonzero(self._bits))

    def write(self) -> None:
        """Write the pages that have changed to the store, and drop the pages without open tuples."""
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
        self._rows = np.full(max(pages, default=0) - self._first + 1, _CLOSED)
        for row, page in enumerate(pages, 1):
            self._rows[page - self._first] = row

    def _locate(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the row and the bit of each number. A number of a page that was dropped is closed."""
        pages = numbers // PAGE - self._first
        last = len(self._rows) - 1
        is_known = (pages >= 0) & (pages <= last)
        return np.where(is_known, self._rows[np.clip(pages, 0, last)], _CLOSED), numbers % PAGE
