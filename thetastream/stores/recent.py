"""Keeps recent results in memory, so that readers do not open files for them.

The rows of a file never change, so the table of a file that was read can stay in memory. If there is no more
room, the table that was used least recently is dropped. All readers of a process share the memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from thetastream.stores.staged import Staged

CAPACITY = 256 << 20
"""Bytes of all tables that are kept."""
LARGEST = 32 << 20
"""Bytes of the largest table that is kept."""

EXPANSION = 4
"""The assumed ratio of the bytes of a table to the bytes of its file, which is compressed."""


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


def split_recent(staged: Sequence[Staged]) -> tuple[list[Staged], list[Staged]]:
    """Split staged rows, which are in the order of their commits: (those that fit into memory, older ones).

    The newest rows come into memory first.
    """
    room, first = CAPACITY // EXPANSION, len(staged)
    while first and staged[first - 1].nbytes <= min(room, LARGEST // EXPANSION):
        first -= 1
        room -= staged[first].nbytes
    return list(staged[first:]), list(staged[:first])


RECENT: Recent[pa.Table] = Recent()
"""The recent results of all stores of this process."""
