"""Keeps recent results and the key values of files in memory, so that readers open few files.

    place of staged rows, key column  ->  the distinct values as numbers of 64 bits, sorted

The rows of a file never change, so the table of a file that was read can stay in memory, and its key values
are read once. If there is no more room, what was used least recently is dropped. All readers of a process
share the memory. A question by a value opens only files with this value. The number of an integer or a date
is its value, and the number of a text is its hash. The values of the newest rows are read first.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.results.selection import Range, Selection
from thetastream.results.staged import Staged

CAPACITY = 256 << 20
"""Bytes of all tables that are kept."""
LARGEST = 32 << 20
"""Bytes of the largest table that is kept."""

EXPANSION = 4
"""The assumed ratio of the bytes of a table to the bytes of its file, which is compressed."""
LOOKUP_CAPACITY = 128 << 20
"""Bytes of all values that are kept."""
Numbers = npt.NDArray[np.uint64]
NUMBER_BYTES = 8
ReadNumbers = Callable[[Staged, str], Numbers]
"""Returns the values of a key column in staged rows, as ``list_numbers`` makes them."""


class HasBytes(Protocol):
    """A table, or an array."""

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""


T = TypeVar("T", bound=HasBytes)


class Recent(Generic[T]):
    """A cache of tables or arrays by name. It keeps those that were used last, up to ``capacity`` bytes.

    Examples
    --------
    >>> recent = Recent(capacity=100)
    >>> recent.get("file", lambda: pa.table({"x": [1, 2]})).num_rows
    2
    >>> recent.get("file", lambda: 1 / 0).num_rows
    2
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._tables: OrderedDict[Hashable, T] = OrderedDict()
        self._nbytes = 0
        self._lock = Lock()

    def get(self, name: Hashable, read: Callable[[], T]) -> T:
        """Return the table of this name; call ``read`` if the cache does not have it."""
        with self._lock:
            found = self._tables.get(name)
            if found is not None:
                self._tables.move_to_end(name)
                return found
        found = read()
        with self._lock:
            if name not in self._tables and found.nbytes <= min(LARGEST, self._capacity):
                self._tables[name] = found
                self._nbytes += found.nbytes
            while self._nbytes > self._capacity:
                self._nbytes -= self._tables.popitem(last=False)[1].nbytes
        return found


RECENT: Recent[pa.Table] = Recent()
"""The recent results of all stores of this process."""
KEY_VALUES: Recent[Numbers] = Recent(LOOKUP_CAPACITY)
"""The values of keys in the files of all stores of this process."""


def split_recent(staged: Sequence[Staged]) -> tuple[list[Staged], list[Staged]]:
    """Split staged rows, which are in the order of their commits: (those that fit into memory, older ones).

    The newest rows come into memory first.
    """
    room, first = CAPACITY // EXPANSION, len(staged)
    while first and staged[first - 1].nbytes <= min(room, LARGEST // EXPANSION):
        first -= 1
        room -= staged[first].nbytes
    return list(staged[first:]), list(staged[:first])


def keep_with_values(staged: Sequence[Staged], selection: Selection, read: ReadNumbers) -> list[Staged]:
    """Leave out staged rows that do not have the values of a selection.

    Rows whose values do not fit into memory are not left out.
    """
    wanted = [(one.column, list_numbers(pa.array([one.low]))) for one in selection.ranges if is_value(one)]
    if not wanted:
        return list(staged)
    room, kept = LOOKUP_CAPACITY, []
    for one in reversed(staged):
        nbytes = one.rows * NUMBER_BYTES * len(wanted)
        room -= nbytes
        if room < 0 or nbytes > LARGEST or all(_has(read(one, column), value) for column, value in wanted):
            kept.append(one)
    return kept[::-1]


def is_value(wanted: Range) -> bool:
    """Whether a range is one value, and this module keeps the values of its type."""
    low, high = wanted.low, wanted.high
    if low is None or high is None or not wanted.includes_high or not low.equals(high):
        return False
    kind = low.type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind))


def list_numbers(column: Any) -> Numbers:
    """List the distinct values of a column as sorted numbers, without NULL.

    >>> list_numbers(pa.array([3, None, 1, 3]))
    array([1, 3], dtype=uint64)
    """
    values = pc.drop_null(pc.unique(column))
    if pa.types.is_string(values.type):
        from pandas.util import hash_array

        numbers = hash_array(values.to_numpy(zero_copy_only=False), categorize=False)
    else:
        whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
        numbers = whole.cast(pa.int64()).to_numpy().view(np.uint64)
    return np.sort(numbers)


def _has(numbers: Numbers, value: Numbers) -> bool:
    place = numbers.searchsorted(value[0])
    return bool(place < len(numbers) and numbers[place] == value[0])
