"""The interface of all stores: a store takes staged rows, commits them epoch by epoch, and reads them.

    stage (tasks, any number of attempts)  ->  names  ->  commit (driver, once for each query and epoch)

Rows are results when the commit of their epoch names them. A commit is one atomic step. It does nothing if
the store has a commit of this query and epoch, so that an epoch that runs again adds nothing. No commit names
the rows of failed attempts, and ``sweep`` removes them.

    entry 0    the description of the store
    entry n    staged names, the ledger, and a snapshot if one is made

A commit reads the newest entry, lets the ledger decide, and appends the next entry. If another query has
appended it in the meantime, the commit reads that entry and tries the next one. So a store needs only one
atomic step: to append an entry. Its backend does this step, and keeps the rows.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa

from thetastream.core.arguments import refuse_non_number
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.html import render_facts
from thetastream.core.spans import Duration
from thetastream.results.backend import Backend
from thetastream.results.description import Description
from thetastream.results.history import CommittedRows, History, make_entry, make_rewrite, read_history, sum_up
from thetastream.results.ledger import CommittedEpoch, Ledger
from thetastream.results.loading import load, load_bounded, refuse_damage
from thetastream.results.log import NO_SEAL, Log
from thetastream.results.net_rows import add_up
from thetastream.results.selection import Selection
from thetastream.results.snapshots import EACH_EPOCH, Snapshot, SnapshotList, Snapshots
from thetastream.results.staged import Origin, Stage, Staged
from thetastream.results.upkeep import (
    Upkeep,
    Verification,
    find_first_kept,
    find_removable,
    read_span_us,
    verify,
)
from thetastream.results.writer import (
    UNKNOWN_WRITER,
    Writer,
    find_predecessor,
    is_new,
    refuse_behind,
    refuse_second,
)

SHOWN_SNAPSHOTS = 8
"""The number of snapshots that a notebook shows of a store."""
SnapshotChoice = int | Snapshot | str | datetime | None
"""The snapshot that a reader names: by its number, or as the last one at a time. None means all results."""
NO_PUNCTUATIONS: Mapping[str, int] = {}
"""The punctuations of an epoch that has none."""
TARGET = 1 << 27
"""Bytes that a merged file should have."""


class Store(ABC):
    """A place for results. It is a frozen, picklable description; every call opens what it needs.

    A kind of store is a subclass: a dataclass of parameters with a name and a backend.
    """

    kind: ClassVar[str]
    """The name of the kind of store in the registry."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """Schemes of addresses that belong to this kind, as in ``"postgresql://host/results?table=pairs"``."""
    deletes_at_once: ClassVar[bool] = False
    """Whether ``forget`` deletes rows at once. Other stores keep them for a while, for present readers."""
    place: ClassVar[str] = "entry {n} of the log of {name}"
    """The place of an entry of the log in messages."""
    for_users: ClassVar[tuple[str, ...]] = (
        *("name", "description", "read", "snapshots", "read_snapshot"),
        *("upkeep", "compact", "forget", "sweep", "verify"),
    )
    """Names that notebooks complete, beside those of the parameters. Queries that write call the others."""

    def __dir__(self) -> list[str]:
        return [*vars(self), *self.for_users]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the store in messages: its folder, or its table."""

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """What keeps the entries and the rows of the store."""

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

    @property
    def local_folder(self) -> str | None:
        """The folder of this machine that has all files of the store; None if readers need the network.

        The processes that run statements of clients read no other files.
        """
        return None

    @property
    def log(self) -> Log:
        """The log of the store."""
        return Log(self.name, self.backend, self.place)

    def answers(self) -> bool:
        """Whether the place of the results answers."""
        try:
            return self.log.find_text(0) is not None
        except StoreError:
            return False

    # Writing

    def describe(self, description: Description) -> None:
        """Write down the description of the store. This must happen before anything is staged.

        Raises
        ------
        StoreError
            STORE_SCHEMA if the store has another description.
        """
        self.backend.make(description)
        log = self.log
        entry = {"id": uuid.uuid4().hex, "description": description.as_json()}
        if log.find_newest() >= 0 or not log.append(0, NO_SEAL, entry):
            self.description.refuse_changes(description, self.name)

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        """Open a stage for one attempt of a task."""
        return self.backend.stage(origin, description)

    def commit(
        self,
        query: str,
        epoch: int,
        staged: Sequence[Staged],
        rule: Snapshots = EACH_EPOCH,
        clock_us: int = 0,
        writer: Writer = UNKNOWN_WRITER,
        *,
        punctuations: Mapping[str, int] = NO_PUNCTUATIONS,
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
        punctuations : mapping of str to int
            The latest time of the punctuations of each stream that has brought some, by its number.

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
        log, totals = self.log, sum_up(self.description, epoch, staged, clock_us)
        totals = replace(totals, punctuations=punctuations)
        this = CommittedEpoch(epoch, writer.compute_digest(epoch), writer.place)
        while True:
            newest, seal, ledger = self.read_ledger()
            if not is_new(self.name, ledger, query, this, writer):
                return False
            predecessor = find_predecessor(ledger, query, writer)
            if predecessor is not None:
                ledger = ledger.hand_over(predecessor, query)
            ledger, snapshot = ledger.commit(query, totals, rule, this)
            # If another query has written this entry in the meantime, the loop reads its ledger first.
            if log.append(newest + 1, seal, make_entry(ledger, query, epoch, staged, snapshot)):
                return True

    def admit(self, writer: Writer) -> None:
        """Raise if the query of a checkpoint must not write into the store. It commits nothing.

        Raises
        ------
        StoreError
            STORE_IN_USE; STORE_BEHIND if the query has committed an epoch that the store lacks.
        """
        ledger, query = self.read_ledger()[2], writer.read_query()
        refuse_second(self.name, ledger, query, writer)
        refuse_behind(self.name, ledger, query, writer)

    # Upkeep

    def sweep(self, grace_s: float = 3600) -> int:
        """Remove staged rows that no commit can name any more; return the number of removed names.

        Rows that were forgotten or merged stay for ``grace_s`` seconds, because readers may be reading them.
        """
        refuse_non_number(grace_s, "grace_s")
        backend = self.backend
        epochs = {query: one.epoch for query, one in self.read_ledger()[2].queries.items()}
        history = self.read_history()
        names = list(find_removable(backend.names(), epochs, history, grace_s))
        backend.remove(names, self.description)
        return len(names)

    def upkeep(self, keep: Duration | None = None, grace_s: float = 3600) -> Upkeep:
        """Forget old snapshots, merge small files, and remove what nobody needs, in this order.

        It may run at any time, also while a query writes and others read. Call it once an hour, or once a
        day.

        Parameters
        ----------
        keep : str or timedelta, optional
            The span of results that is kept, as in ``"30 days"``. It ends with the newest snapshot, so a
            store that is filled from old input keeps its last days. A file is removed when all its snapshots
            are older. By default, no snapshot is forgotten.
        grace_s : float
            Merged and forgotten rows stay so many seconds, because readers may be reading them.

        Returns
        -------
        Upkeep
            The numbers of forgotten snapshots, merged files and removed names.

        Raises
        ------
        QueryError
            INVALID_DURATION if ``keep`` is no positive span of time. BAD_VALUE if ``grace_s`` is no number.
        StoreError
            STORE_CHANGES if snapshots are to be forgotten, and rows may be deleted.
        """
        refuse_non_number(grace_s, "grace_s")
        span_us = None if keep is None else read_span_us(keep)
        snapshots, forgotten = self.snapshots(), 0
        if span_us is not None and snapshots:
            oldest_us = snapshots[-1].at_us - span_us
            forgotten = self.forget(next(one for one in snapshots if one.at_us >= oldest_us))
        return Upkeep(forgotten, self.compact(), self.sweep(grace_s))

    def compact(self, target: int = TARGET) -> int:
        """Merge small files into large ones, and shorten the log. Results and snapshots stay as they are.

        It may run while a query writes and others read. ``sweep`` removes the small files an hour later.
        Stores that keep rows in a database have no files to merge.

        Parameters
        ----------
        target : int
            The bytes that a merged file should have.

        Returns
        -------
        int
            The number of files that were merged.
        """
        return 0

    def forget(self, before: SnapshotChoice) -> int:
        """Remove old snapshots and their results.

        Rows that no snapshot has yet are kept. It may be called before ``compact`` or afterwards.

        Parameters
        ----------
        before : int, Snapshot, datetime or str
            The first snapshot to keep, by its number or as of a time.

        Returns
        -------
        int
            The number of snapshots that were removed.

        Raises
        ------
        StoreError
            STORE_CHANGES if rows may be deleted.
        """
        self.description.refuse_forgetting(self.name)
        wanted = self.read_history().find_snapshot(0 if before is None else before).number
        self.cut(wanted)
        while True:
            newest, history = self.log.find_newest(), self.read_history()
            first = find_first_kept(history, wanted)
            dropped = [one for one in history.held if one.snapshot is not None and one.snapshot < first]
            n = sum(one.number < first for one in history.snapshots)
            if not n or self.append_rewrite(newest, dropped, [], first):
                return n

    def cut(self, first: int) -> int:
        """Let no part have rows of the snapshot ``first`` and rows of an earlier one; return how many had.

        Only stores that merge parts have such parts. ``forget`` calls it.
        """
        return 0

    def append_rewrite(
        self, newest: int, dropped: Sequence[CommittedRows], added: Sequence[CommittedRows], first: int = 0
    ) -> bool:
        """Append a rewrite as the entry after ``newest``; return False if this entry exists."""
        found, seal, ledger = self.read_ledger()
        if found != newest:
            return False
        entry = make_rewrite(ledger.as_json(), dropped, added, first, time.time_ns() // 1000)
        return self.log.append(newest + 1, seal, entry)

    def verify(self) -> Verification:
        """Read everything that commits name, and list all that is damaged. It changes nothing.

        A question reads only what it needs, and raises the first error that it finds.

        Raises
        ------
        StoreError
            NO_STORE if there is no store.
        """
        return verify(self.log, self.backend)

    # Reading

    @property
    def description(self) -> Description:
        """The description of the store.

        Raises
        ------
        StoreError
            NO_STORE if there is no such store.
        """
        return Description.from_json(self.log.read_first()["description"])

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """List the snapshots whose number is greater than ``after``, in order."""
        refuse_non_number(after, "after")
        return SnapshotList(one for one in self.read_history().snapshots if one.number > after)

    def open(
        self,
        snapshot: SnapshotChoice = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
        changes: bool = False,
        most_bytes: int | None = None,
    ) -> Any:
        """Open the results that ``read`` returns, as a table or a data set of Arrow.

        If rows may be deleted, changes are loaded to add them up, at most ``most_bytes`` of them.

        Raises
        ------
        QueryError
            TOO_LARGE if there are more.
        """
        description = self.description
        selection = Selection.read(description, since, until, key)
        rows = self._open(lambda history: select(history, snapshot, selection), selection, description)
        if changes or not description.has_deletes:
            return rows
        return add_up(load(rows, self) if most_bytes is None else load_bounded(rows, self, most_bytes))

    def read(
        self,
        snapshot: SnapshotChoice = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
        changes: bool = False,
    ) -> pa.Table:
        """Read results.

        If rows may be deleted, these are the rows that hold: each inserted row without a delete. They have no
        column ``_change_type``.

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
        changes : bool
            Whether all inserts and deletes are returned, with the column ``_change_type``.

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
        return load(self.open(snapshot, since, until, key, changes), self)

    def open_snapshot(self, snapshot: SnapshotChoice) -> Any:
        """Open the rows that ``read_snapshot`` returns, as a table or a data set of Arrow."""

        def select_one(history: History) -> Iterable[Staged]:
            number = history.find_snapshot(0 if snapshot is None else snapshot).number
            return history.list_staged(only=number)

        return self._open(select_one, Selection(), self.description)

    def read_snapshot(self, snapshot: SnapshotChoice) -> pa.Table:
        """Read the rows of one snapshot, without those of earlier ones. They may be changes."""
        return load(self.open_snapshot(snapshot), self)

    def _open(
        self, select: Callable[[History], Iterable[Staged]], selection: Selection, description: Description
    ) -> Any:
        """Open staged rows. If ``forget`` has deleted some of them meanwhile, select and open rows again."""
        backend, history = self.backend, self.read_history()
        while True:
            staged, error = list(select(history)), None
            try:
                with refuse_damage(str(self), self):
                    found = backend.open(staged, selection, description)
            except StoreError as damaged:
                error = damaged
            if self.deletes_at_once:
                history = self.read_history()
                if any(one.name in history.dropped for one in staged):
                    continue
            if error is not None:
                raise error
            return found

    def _repr_html_(self) -> str:
        """Return what notebooks show: what the store has, and its last snapshots."""
        try:
            held, history = self.description, self.read_history()
        except StoreError as error:
            return render_facts(f"{self.kind} store {self.name}", {"state": error.message})
        rows = sum(one.staged.rows for one in history.held)
        columns = ", ".join(f"{field.name} {field.type}" for field in held.schema)
        facts = {"columns": columns, "time": held.time or "none", "keys": ", ".join(held.keys) or "none"}
        facts |= {"rows": f"{rows:,}", "snapshots": f"{len(history.snapshots):,}"}
        shown = SnapshotList(history.snapshots[-SHOWN_SNAPSHOTS:])
        return render_facts(f"{self.kind} store {self.name}", facts) + shown._repr_html_()

    def read_history(self) -> History:
        """Read all commits."""
        return read_history(self.log, self)

    def read_ledger(self) -> tuple[int, str, Ledger]:
        """Read the number of the newest entry, its seal and its ledger. Entry 0 has an empty ledger.

        Raises
        ------
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_FORMAT.
        """
        log = self.log
        newest = log.find_newest()
        if newest < 1:
            return 0, log.read_first()["seal"], Ledger()
        entry = log.read(newest)
        return newest, entry["seal"], Ledger.from_json(entry["ledger"])


def select(history: History, snapshot: SnapshotChoice, selection: Selection) -> Iterator[Staged]:
    """List the staged rows up to a snapshot, except those whose bounds show that no row is selected."""
    until = None if snapshot is None else history.find_snapshot(snapshot).number
    return selection.keep(history.list_staged(until))


def refuse_other(store: object) -> None:
    """Raise if the argument ``store`` is not a store, for example if it is a path.

    Raises
    ------
    QueryError
        BAD_VALUE.
    """
    if not isinstance(store, Store):
        raise QueryError("BAD_VALUE", f'store must be a store, as in th.ParquetStore("out"), not {store!r}')
