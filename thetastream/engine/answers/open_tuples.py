"""The open tuples of a unit: the numbers of the preserved tuples that still wait for their first partner.

A unit numbers the tuples of a preserved stream in the order in which they arrive. Open tuples are those whose
number is in a set (``number_set``).
"""

from dataclasses import dataclass, field

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.engine.answers.number_set import Mask, NumberSet, Pages
from thetastream.engine.store.segment import SegmentStore


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
