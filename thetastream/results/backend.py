"""A kind of store is a backend: it keeps the entries of a log, and the rows that these entries name.

    entries    newest, read, append, mark          texts by number, of which each is written once
    rows       make, stage, open, names, remove    parts: what one attempt of a task has staged, under a name
    damage     check                               what a question does not compare

A backend decides nothing. ``Store`` says which entry follows, which parts are results, and which parts can be
removed. The one atomic step of a store is ``append``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import QueryError, StoreError
from thetastream.results.description import Description
from thetastream.results.selection import Selection
from thetastream.results.staged import Origin, Stage, Staged

NOTE, STATE = -1, -2
"""The numbers under which a backend reads what lies beside the entries: the note of the newest entry, and the
newest state. A backend that keeps no states has none."""


class Backend(Protocol):
    """What a kind of store does. It is opened for each use, so it may hold connections and no results."""

    def newest(self) -> int:
        """Find the number of the last entry that is there; -1 if there is none."""

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        """Read an entry, or this entry and all later ones, in order: number and text.

        An entry that is gone is left out. ``n`` may also be ``NOTE`` or ``STATE``.
        """

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        """Write the text of an entry in one atomic step unless there is one of this number.

        Return whether it was written. The parts that the entry names under ``staged`` are results then, and
        those under ``dropped`` are not results any more. Their rows are on the disk before the text.
        """

    def mark(self, note: str) -> None:
        """Write the note in place of the one before."""

    def make(self, description: Description) -> None:
        """Make folders or tables unless they are there, and refuse columns that this kind cannot keep."""

    def stage(self, origin: Origin, description: Description) -> Stage:
        """Open a stage for one attempt of a task."""

    def open(self, staged: Sequence[Staged], selection: Selection, description: Description) -> Any:
        """Open the selected rows of parts that entries name, as a table or a data set of Arrow.

        Raises
        ------
        OSError, pa.ArrowException
            If a part is damaged or gone. The store names it as STORE_DAMAGED.
        """

    def names(self) -> Iterator[tuple[str, float | None]]:
        """List the names of all parts, and of other files of the store.

        The second value is the time at which a part of no epoch was written, such as a merged file, in
        seconds since 1970 UTC. It is None for all others.
        """

    def remove(self, names: Iterable[str], description: Description) -> None:
        """Remove parts. Another process may remove them at the same time."""

    def check(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Read whole parts, and yield a sentence for all that is not as it was staged."""


@contextmanager
def reach(place: str) -> Iterator[None]:
    """Raise an error of the store if the block ends in one of the operating system or of Arrow's files.

    Raises
    ------
    StoreError
        STORE_UNREACHABLE.
    """
    try:
        yield
    except OSError as error:
        raise make_unreachable(place, error) from error


def make_unreachable(place: str, error: Exception) -> StoreError:
    """Make the error of a server or folder that does not answer or takes nothing, without its password."""
    why = str(error).partition("\n")[0]
    hint = "Start the server, correct the address of the store, or make room on a disk that is full"
    return StoreError("STORE_UNREACHABLE", f"the store needs {place}, and using it failed: {why}. {hint}")


def make_not_atomic(root: str, why: str) -> QueryError:
    """Make the error of a folder in which two writers could replace the commits of each other."""
    what = (
        f"only one of several writers of a commit must succeed, and {hide_secrets(root)} cannot ensure that"
    )
    return QueryError("NO_ATOMIC_COMMIT", f"{what}: {why}. Use a folder on s3://, on hdfs://, or on a disk")
