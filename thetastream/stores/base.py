"""The interface of all stores: a store takes staged rows, commits them epoch by epoch, and reads them.

    stage (tasks, any number of attempts)  ->  names  ->  commit (driver, once for each query and epoch)

Rows are results when the commit of their epoch names them. A commit is one atomic step. It does nothing if
the store has a commit of this query and epoch, so that an epoch that runs again adds nothing. No commit names
the rows of failed attempts, and ``sweep`` removes them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.core.folder import hide_secrets
from thetastream.errors import QueryError, StoreError
from thetastream.stores.description import Description
from thetastream.stores.snapshots import EACH_EPOCH, Snapshot, Snapshots
from thetastream.stores.staged import Origin, Stage, Staged
from thetastream.stores.verification import Verification
from thetastream.stores.writer import UNKNOWN_WRITER, Writer

SnapshotChoice = int | Snapshot | str | datetime | None
"""The snapshot that a reader names: by its number, or as the last one at a time. None means all results."""


def make_unreachable(server: str, error: Exception) -> StoreError:
    """Make the error of a store whose server does not answer, without its address and password."""
    why = str(error).partition("\n")[0]
    what = f"the store needs {server}, and connecting failed: {why}"
    return StoreError("STORE_UNREACHABLE", f"{what}. Start the server, or correct the address of the store")


@contextmanager
def refuse_damage(name: str, store: "Store | None" = None) -> Iterator[None]:
    """Raise an error of the store if the block cannot read a file that a commit names.

    Arrow raises an OSError for a damaged page, and also if the place of a file does not answer. So if there
    is one, the store is asked whether its place answers.

    Raises
    ------
    StoreError
        STORE_DAMAGED, or STORE_UNREACHABLE if the place of the files does not answer.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        if _is_unreachable(error, store):
            raise make_unreachable(f"the files of {name}", error) from error
        what = f"{name} must have all rows that its commits name, and a file of them cannot be read: {error}"
        hint = "If its snapshot was forgotten while you read, read again. Otherwise restore a backup"
        raise StoreError("STORE_DAMAGED", f"{what}. {hint}") from error


def _is_unreachable(error: Exception, store: "Store | None") -> bool:
    """Whether an error says that a place does not answer. Errors of the operating system have a number."""
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
        return False
    return error.errno is not None or (store is not None and not store.answers())


def make_not_atomic(root: str, why: str) -> QueryError:
    """Make the error of a folder in which two writers could replace the commits of each other."""
    what = (
        f"only one of several writers of a commit must succeed, and {hide_secrets(root)} cannot ensure that"
    )
    return QueryError("NO_ATOMIC_COMMIT", f"{what}: {why}. Put the store on s3://, on hdfs://, or on a disk")


def refuse_other(store: object) -> None:
    """Raise if the argument ``store`` is not a store, for example if it is a path.

    Raises
    ------
    QueryError
        BAD_VALUE.
    """
    if not isinstance(store, Store):
        raise QueryError("BAD_VALUE", f'store must be a store, as in th.ParquetStore("out"), not {store!r}')


class Store(ABC):
    """A place for results. It is a frozen, picklable description; every call opens what it needs."""

    kind: ClassVar[str]
    """The name of the kind of store in the registry."""

    @property
    def is_shared(self) -> bool:
        """Whether all machines of a cluster can reach the store."""
        return True

    @property
    def variables(self) -> tuple[str, ...]:
        """Prefixes of the environment variables with which a reader opens the store, such as its password.

        The processes that run statements of clients get no other secrets.
        """
        return ()

    def answers(self) -> bool:
        """Whether the place of the results answers."""
        return True

    # Writing

    @abstractmethod
    def describe(self, description: Description) -> None:
        """Write down the description of the store. This must happen before anything is staged.

        Raises
        ------
        StoreError
            STORE_SCHEMA if the store has another description.
        """

    @abstractmethod
    def open_stage(self, origin: Origin, description: Description) -> Stage:
        """Open a stage for one attempt of a task."""

    @abstractmethod
    def commit(
        self,
        query: str,
        epoch: int,
        staged: Sequence[Staged],
        rule: Snapshots = EACH_EPOCH,
        clock_us: int = 0,
        writer: Writer = UNKNOWN_WRITER,
    ) -> bool:
        """Make the staged rows of an epoch results, in one step.

        Parameters
        ----------
        query : str
            The identifier of the query.
        epoch : int
        staged : sequence of Staged
            The staged rows of the epoch, from one attempt of each task.
        rule : Snapshots
            The rule by which results become a snapshot.
        clock_us : int
            The time of the clock in microseconds since 1970 UTC, for results without a column of time.
        writer : Writer
            The checkpoint of the query.

        Returns
        -------
        bool
            False if the epoch is the last one of the query that is committed. Nothing changes then.

        Raises
        ------
        StoreError
            STORE_AHEAD if a later epoch of the query is committed, or this epoch with other input.
            STORE_BEHIND if an epoch before this one is not committed. STORE_IN_USE if the store has results
            of other queries, and the writer is not one of several.
        """

    @abstractmethod
    def verify(self) -> Verification:
        """Read everything that commits name, and list all that is damaged. It changes nothing.

        A question reads only what it needs, and raises the first error that it finds.
        """

    @abstractmethod
    def admit(self, writer: Writer) -> None:
        """Raise if the query of a checkpoint must not write into the store. It commits nothing.

        Raises
        ------
        StoreError
            STORE_IN_USE.
        """

    @abstractmethod
    def sweep(self) -> int:
        """Remove staged rows that no commit can name any more; return the number of removed names."""

    # Reading

    @property
    @abstractmethod
    def description(self) -> Description:
        """The description of the store.

        Raises
        ------
        StoreError
            NO_STORE if there is no such store.
        """

    @abstractmethod
    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """List the snapshots whose number is greater than ``after``, in order."""

    @abstractmethod
    def open(
        self,
        snapshot: SnapshotChoice = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> Any:
        """Open the results that ``read`` returns, as a table or a data set of Arrow."""

    def read(
        self,
        snapshot: SnapshotChoice = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Read results.

        Parameters
        ----------
        snapshot : int, Snapshot, datetime or str, optional
            The results of all snapshots up to this one, by its number or as of a time. By default, all
            committed results.
        since, until : datetime or str, optional
            The time range: ``since`` <= time < ``until``. A time without a zone is UTC.
        key : mapping of column to value, optional
            For each named key column a value, or a pair of the least and the greatest value, both inclusive.
            Values are compared as in Spark SQL: NaN is the greatest number, and NULL lies in no range.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        QueryError
            UNKNOWN_SNAPSHOT, NO_TIME_COLUMN, STORE_KEY or BAD_VALUE.
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_UNREACHABLE.
        """
        return load(self.open(snapshot, since, until, key), self)

    @abstractmethod
    def open_snapshot(self, snapshot: SnapshotChoice) -> Any:
        """Open the rows that ``read_snapshot`` returns, as a table or a data set of Arrow."""

    def read_snapshot(self, snapshot: SnapshotChoice) -> pa.Table:
        """Read the rows of one snapshot, without those of earlier ones."""
        return load(self.open_snapshot(snapshot), self)


def load(rows: Any, store: Store) -> pa.Table:
    """Read rows that a store has opened."""
    with refuse_damage(str(store), store):
        return rows if isinstance(rows, pa.Table) else rows.to_table()
