"""A model is a pure router: which unit stores a tuple, which units probe with it.

Routers see hashes, never tuples, clocks or Spark. All units run the same code
(``thetastream.joiner.unit``); nothing but the routes differs between models.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from thetastream.keys import Int64s
from thetastream.types import Role, Side


class Route(NamedTuple):
    """Some rows of a block go to one unit in one role."""

    unit: int
    role: Role
    rows: Int64s | None
    """Positions in the block; None means all of them."""


class Places(NamedTuple):
    """Where on a line tuples lie, and on which stretch of it their partners do; int64 per row.

    A tuple meets only what lies from ``low`` to ``high``, both included.
    """

    own: Int64s
    low: Int64s
    high: Int64s


class Hashes(NamedTuple):
    """What routers know of the rows of a block."""

    tuples: Int64s | None = None
    """int64 of the whole tuple: spreads tuples evenly, and the same way when a task is run again."""
    places: Places | None = None
    """By what the condition compares, for routing by content."""


class Model(ABC):
    """What a user passes as ``model=``: frozen, printable, picklable."""

    name: ClassVar[str]
    """In the registry."""
    is_binary: ClassVar[bool] = True
    """Whether ``joiner.unit`` runs it for two streams; if not, two go hop by hop as more do."""
    is_costed: ClassVar[bool] = True
    """Whether its routes say all that it costs, so that the planner may choose it."""
    routing: str = "auto"
    """What names subgroups, at models that have some: hash, range, or what the condition allows."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Units, numbered from 0."""

    @property
    def kept(self) -> "Model":
        """What of the model a checkpoint holds on to; the rest may change when a query is started again."""
        return self

    @property
    def on_batch(self) -> "Model":
        """What runs on batch DataFrames, where there are no epochs that messages could wait for."""
        return self

    @property
    def needs_hash(self) -> bool:
        """Whether ``route`` looks at the hashes of tuples."""
        return False

    @property
    def needs_places(self) -> bool:
        """Whether ``route`` looks at the places of tuples."""
        return False

    @property
    def sees_all(self) -> bool:
        """Whether every unit gets every tuple, and so can number them as they arrive."""
        return False

    @abstractmethod
    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        """Where the rows of one block go."""

    def is_home(self, unit: int, side: Side) -> bool:
        """Whether a tuple that this unit gets to store is counted here; its copies are not."""
        return True

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        """Which tuples a unit stores, by their numbers in their stream and their event times in
        microseconds; asked if it ``sees_all``.
        """
        raise NotImplementedError

    def is_prompt(self, n_streams: int) -> bool:
        """Whether a result of so many streams comes in the epoch of its last tuple, before the watermark can
        pass it.
        """
        return True

    @abstractmethod
    def describe(self) -> str:
        """One line for ``explain``."""


def split(targets: Int64s, n_targets: int) -> Iterator[tuple[int, Int64s]]:
    """(target, positions) for every target that has any, positions in order of the rows.

    >>> [(target, rows.tolist()) for target, rows in split(np.array([2, 0, 2]), 3)]
    [(0, [1]), (2, [0, 2])]
    """
    order = np.argsort(targets, kind="stable")
    cuts = np.searchsorted(targets[order], np.arange(n_targets + 1))
    for target in range(n_targets):
        if cuts[target] < cuts[target + 1]:
            yield target, order[cuts[target] : cuts[target + 1]]


def positive_pair(value: object) -> tuple[int, int] | None:
    """A positive integer as a pair of it, a pair of them as it is, None for anything else.

    >>> positive_pair(2), positive_pair([1, 3]), positive_pair(0)
    ((2, 2), (1, 3), None)
    """
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in pair):
        return None
    return pair[0], pair[1]
