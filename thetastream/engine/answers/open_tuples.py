"""The open tuples of a unit: the numbers of the preserved tuples that still wait for their first partner.

    number -> page number // PAGE, place number % PAGE

A unit numbers the tuples of a preserved stream in the order in which they arrive. Open tuples are those whose
number is in a set of bits in pages. A page holds the bits of ``PAGE`` numbers, and a page without numbers is
dropped. So the size of the set follows from its numbers and not from how long the query runs. A page that has
changed is written once per epoch.

If partners may be deleted, a tuple that has found a partner may be open again. Then there is a count in the
place of the bit (``CountedTuples``): the number of partners that are inserted less those that are deleted.
"""

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.cancellation import Signs
from thetastream.core.keys import Int64s, Mask
from thetastream.engine.store.segment import SegmentStore

Pages = list[tuple[int, str]]
"""The number of each page, and the name of its block in the store."""
PAGE = 1 << 16
"""The number of tuples of a page. Each of them needs one bit, or four bytes for a count."""
_MISSING = 0
"""The row of the values that stands for all pages that do not exist."""
_ABSENT = np.iinfo(np.int32).min
"""The count of a number that is not there."""


@dataclass
class OpenState:
    """The state of the open tuples of one stream at one unit."""

    n_numbered: int = 0
    """The number of tuples that have a number."""
    pages: Pages = field(default_factory=list)
    """The pages of the set of open tuples."""


class Undecided(ABC):
    """The preserved tuples of one stream at one unit that are not decided.

    Parameters
    ----------
    state : OpenState
        The state before the epoch.
    numbers : NumberSet or PartnerCounts
        What is known of each tuple, by its number.
    """

    def __init__(self, state: OpenState, numbers: "_Paged") -> None:
        self._n_numbered = state.n_numbered
        self._pages = numbers

    @property
    def state(self) -> OpenState:
        """The current state. It is complete after ``write``."""
        return OpenState(self._n_numbered, self._pages.pages)

    def add(self, n: int) -> Int64s:
        """Number ``n`` new tuples, which are open; return their numbers."""
        numbers = np.arange(self._n_numbered, self._n_numbered + n)
        self._pages.add(numbers)
        self._n_numbered += n
        return numbers

    def write(self) -> None:
        """Write the pages that have changed to the store, and drop the pages without tuples."""
        self._pages.write()

    @abstractmethod
    def are_open(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether its tuple is open: undecided and without a partner."""

    @abstractmethod
    def meet(self, numbers: Int64s, signs: Signs | None) -> None:
        """Remember that each of these tuples has met a partner. None stands for partners of sign 1."""

    @abstractmethod
    def close(self, numbers: Int64s) -> Mask:
        """Forget the tuples with these numbers; return for each number whether its tuple was open."""

    @abstractmethod
    def count(self) -> int:
        """Count the open tuples."""


class OpenTuples(Undecided):
    """The open tuples of one stream at one unit. Partners stay partners, so a bit for each tuple is enough.

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
        self._numbers = NumberSet(state.pages, store)
        super().__init__(state, self._numbers)

    def are_open(self, numbers: Int64s) -> Mask:
        return self._numbers.contain(numbers)

    def meet(self, numbers: Int64s, signs: Signs | None) -> None:
        self._numbers.remove(numbers)

    def close(self, numbers: Int64s) -> Mask:
        return self._numbers.remove(numbers)

    def count(self) -> int:
        return self._numbers.count()


class CountedTuples(Undecided):
    """The undecided tuples of one stream at one unit, and the number of partners of each.

    A partner that is inserted counts 1, and a deleted one -1.

    Examples
    --------
    >>> from thetastream.engine.store.segment import MemoryStore
    >>> waiting = CountedTuples(OpenState(), MemoryStore())
    >>> waiting.add(3)
    array([0, 1, 2])
    >>> waiting.meet(np.array([1, 1, 2]), np.array([1, -1, 1], dtype=np.int8))
    >>> waiting.are_open(np.array([0, 1, 2, 3]))
    array([ True,  True, False, False])
    """

    def __init__(self, state: OpenState, store: SegmentStore) -> None:
        self._counts = PartnerCounts(state.pages, store)
        super().__init__(state, self._counts)

    def are_open(self, numbers: Int64s) -> Mask:
        return self._counts.are_alone(numbers)

    def meet(self, numbers: Int64s, signs: Signs | None) -> None:
        assert signs is not None
        is_mine = numbers >= 0
        self._counts.meet(numbers[is_mine], signs[is_mine])

    def close(self, numbers: Int64s) -> Mask:
        was_open = self._counts.are_alone(numbers)
        self._counts.remove(numbers)
        return was_open

    def count(self) -> int:
        return self._counts.count_alone()


class _Paged(ABC):
    """A value for each of many numbers, in pages of ``PAGE`` values.

    Parameters
    ----------
    pages : list of (int, str)
        The pages before the epoch.
    store : SegmentStore
        The store that holds the pages.
    absent : bool or int32
        The value of the numbers that are not there.
    """

    def __init__(self, pages: Pages, store: SegmentStore, absent: Any) -> None:
        self._store = store
        self._absent = absent
        self._names = dict(pages)
        known = sorted(self._names)
        self._values = self._make_rows(1 + len(known))
        for row, page in enumerate(known, 1):
            self._values[row] = self._unpack(self._names[page])
        self._index_pages(known)
        self._is_changed = np.zeros(1 + len(known), dtype=np.bool_)

    @abstractmethod
    def add(self, numbers: Int64s) -> None:
        """Add these numbers."""

    @abstractmethod
    def _unpack(self, name: str) -> npt.NDArray[Any]:
        """Read the values of a page from the store."""

    @abstractmethod
    def _pack(self, values: npt.NDArray[Any]) -> pa.Array:
        """Make the only column of the block of a page."""

    @property
    def pages(self) -> Pages:
        """The current pages. They are complete after ``write``."""
        return sorted(self._names.items())

    def write(self) -> None:
        """Write the pages that have changed to the store, and drop the pages without numbers."""
        for row, page in enumerate(self._pages, 1):
            if not self._is_changed[row]:
                continue
            name = self._names.pop(page, None)
            if name is not None:
                self._store.drop_block(name)
            if (self._values[row] != self._absent).any():
                self._names[page] = uuid.uuid4().hex
                packed = self._pack(self._values[row])
                self._store.put_block(self._names[page], pa.RecordBatch.from_arrays([packed], names=["bits"]))

    def _make_rows(self, n: int) -> npt.NDArray[Any]:
        """Make the values of n pages without numbers."""
        return np.full((n, PAGE), self._absent)

    def _make_room(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Make the pages of these numbers, if they do not exist; return row and place of each number."""
        known = set(self._pages)
        new = [page for page in np.unique(numbers // PAGE).tolist() if page not in known]
        if new:
            self._values = np.vstack([self._values, self._make_rows(len(new))])
            self._is_changed = np.append(self._is_changed, np.zeros(len(new), dtype=np.bool_))
            self._index_pages([*self._pages, *new])
        return self._locate(numbers)

    def _index_pages(self, pages: list[int]) -> None:
        """Map the number of each page, counted from the first page, to its row of the values."""
        self._pages = pages
        self._first = min(pages, default=0)
        self._rows = np.full(max(pages, default=0) - self._first + 1, _MISSING)
        for row, page in enumerate(pages, 1):
            self._rows[page - self._first] = row

    def _locate(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the row and the place of each number. A number of a missing page is not there."""
        pages = numbers // PAGE - self._first
        last = len(self._rows) - 1
        is_known = (pages >= 0) & (pages <= last)
        return np.where(is_known, self._rows[np.clip(pages, 0, last)], _MISSING), numbers % PAGE

    def _set(self, rows: Int64s, places: Int64s, value: Any) -> None:
        self._values[rows, places] = value
        self._is_changed[rows] = True


class NumberSet(_Paged):
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
        super().__init__(pages, store, np.bool_(False))

    def add(self, numbers: Int64s) -> None:
        """Add these numbers."""
        self._set(*self._make_room(numbers), True)

    def contain(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether it is in the set."""
        found: Mask = self._values[self._locate(numbers)]
        return found

    def remove(self, numbers: Int64s) -> Mask:
        """Remove these numbers; return for each of them whether it was in the set."""
        rows, places = self._locate(numbers)
        was_in: Mask = self._values[rows, places]
        self._set(rows[was_in], places[was_in], False)
        return was_in

    def count(self) -> int:
        """Count the numbers of the set."""
        return int(np.count_nonzero(self._values))

    def _unpack(self, name: str) -> npt.NDArray[Any]:
        packed = self._store.get_block(name, PAGE // 8).column(0).to_numpy()
        return np.unpackbits(packed).view(np.bool_)

    def _pack(self, values: npt.NDArray[Any]) -> pa.Array:
        return pa.array(np.packbits(values))


class PartnerCounts(_Paged):
    """The number of partners of each of these tuples. It may be negative, because a delete may come first.

    Examples
    --------
    >>> from thetastream.engine.store.segment import MemoryStore
    >>> counts = PartnerCounts([], MemoryStore())
    >>> counts.add(np.array([4]))
    >>> counts.meet(np.array([3, 3, 70_000]), np.array([1, 1, -1], dtype=np.int8))
    >>> counts.are_alone(np.array([3, 4, 5, 70_000]))
    array([False,  True, False,  True])
    """

    def __init__(self, pages: Pages, store: SegmentStore) -> None:
        super().__init__(pages, store, np.int32(_ABSENT))

    def add(self, numbers: Int64s) -> None:
        """Add these numbers with a count of 0, if they are not there."""
        rows, places = self._make_room(numbers)
        is_new = self._values[rows, places] == _ABSENT
        self._set(rows[is_new], places[is_new], 0)

    def meet(self, numbers: Int64s, signs: Signs) -> None:
        """Add the sign of a partner to the count of each of these numbers, which are added if need be."""
        self.add(numbers)
        rows, places = self._locate(numbers)
        np.add.at(self._values, (rows, places), signs.astype(np.int32))
        self._is_changed[rows] = True

    def are_alone(self, numbers: Int64s) -> Mask:
        """Return for each of these numbers whether it is there, and its count is not positive."""
        counts = self._values[self._locate(numbers)]
        alone: Mask = (counts != _ABSENT) & (counts <= 0)
        return alone

    def remove(self, numbers: Int64s) -> Mask:
        """Remove these numbers; return for each of them whether it was there with a positive count."""
        rows, places = self._locate(numbers)
        has_partner: Mask = self._values[rows, places] > 0
        is_known = self._values[rows, places] != _ABSENT
        self._set(rows[is_known], places[is_known], _ABSENT)
        return has_partner

    def count_alone(self) -> int:
        """Count the numbers whose count is not positive."""
        return int(np.count_nonzero((self._values != _ABSENT) & (self._values <= 0)))

    def _unpack(self, name: str) -> npt.NDArray[Any]:
        counts: npt.NDArray[Any] = self._store.get_block(name, PAGE).column(0).to_numpy()
        return counts

    def _pack(self, values: npt.NDArray[Any]) -> pa.Array:
        return pa.array(values)
