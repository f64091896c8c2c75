"""What every store can do: take staged rows, commit them epoch by epoch, and read them back.

    stage (tasks, any number of attempts)  ->  names  ->  commit (driver, once for each query and epoch)

Rows are results when the commit of their epoch names them. A commit is one atomic step. It does nothing if
the store has a commit of this query and of this epoch or a later one, so that an epoch that runs again adds
nothing. What attempts that failed have staged is never named, and ``sweep`` removes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.stores.description import Description
from thetastream.stores.staged import Origin, Stage, Staged


class Store(ABC):
    """A place for results. It is a frozen, picklable description; every call opens what it needs."""

    kind: ClassVar[str]
    """The name of the kind of store in the registry."""

    @abstractmethod
    def describe(self, description: Description) -> None:
        """Keep what the store is to hold. It must be called before anything is staged.

        Raises
        ------
        StoreError
            STORE_SCHEMA if the store holds something else.
        """

    @property
    @abstractmethod
    def description(self) -> Description:
        """What the store holds.

        Raises
        ------
        StoreError
            NO_STORE if there is no such store.
        """

    @abstractmethod
    def open_stage(self, origin: Origin, description: Description) -> Stage:
        """Open a stage for one attempt of a task."""

    @abstractmethod
    def commit(self, query: str, epoch: int, staged: Sequence[Staged]) -> bool:
        """Make the staged rows of an epoch results, in one step; return False if they are already."""

    @abstractmethod
    def sweep(self) -> int:
        """Remove what was staged and can never be named any more; return the number of names removed."""

    @abstractmethod
    def read(self, since: Any = None, until: Any = None, key: Mapping[str, Any] | None = None) -> pa.Table:
        """Read results.

        Parameters
        ----------
        since, until : datetime or text, optional
            The time range: ``since`` <= time < ``until``.
        key : mapping of column to value, optional
            For each named key column a value, or a pair of the least and the greatest value, both inclusive.

        Returns
        -------
        pyarrow.Table
        """
