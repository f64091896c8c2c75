"""The base class of all stores. It keeps a log of commits; a subclass keeps the rows.

    version 0   the description of the store
    version n   staged names, the ledger, and a snapshot if one is made

A commit reads the newest version, lets the ledger decide, and appends the next version. If another query has
appended that version in the meantime, the commit reads that version and tries the next one. So the log needs
only one atomic step: to append a version.
"""

import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from thetastream.errors import StoreError
from thetastream.stores.admission import is_new, refuse_second
from thetastream.stores.base import SnapshotChoice, Store, refuse_damage
from thetastream.stores.description import Description
from thetastream.stores.history import CommittedRows, History, make_entry, make_rewrite, read_history, sum_up
from thetastream.stores.ledger import LastEpoch, Ledger
from thetastream.stores.log import Log
from thetastream.stores.sealed_entry import NO_SEAL
from thetastream.stores.selection import Selection
from thetastream.stores.snapshots import EACH_EPOCH, Snapshot, Snapshots
from thetastream.stores.staged import Staged
from thetastream.stores.verification import Verification
from thetastream.stores.writer import UNKNOWN_WRITER, Writer

TARGET = 1 << 27
"""Bytes that a merged file should have."""


class LoggedStore(Store):
    """A store with a log of commits."""

    deletes_at_once: ClassVar[bool] = False
    """Whether ``forget`` deletes rows at once. Other stores keep them for a while, for present readers."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the store in messages: its folder, or its table."""

    @property
    @abstractmethod
    def log(self) -> Log:
        """The log of the store."""

    @abstractmethod
    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> Any:
        """Open the selected rows among these staged rows, which commits have named."""

    def describe(self, description: Description) -> None:
        log = self.log
        entry = {"id": uuid.uuid4().hex, "description": description.as_json()}
        if log.find_newest() >= 0 or not log.append(0, NO_SEAL, entry):
            self.description.refuse_changes(description, self.name)

    @property
    def description(self) -> Description:
        return Description.from_json(self.log.read_first()["description"])

    def flush(self) -> None:
        """Wait until all staged rows are on the disk. Stages that write files wait for their own content."""

    def commit(
        self,
        query: str,
        epoch: int,
        staged: Sequence[Staged],
        rule: Snapshots = EACH_EPOCH,
        clock_us: int = 0,
        writer: Writer = UNKNOWN_WRITER,
    ) -> bool:
        log, totals = self.log, sum_up(self.description, epoch, staged, clock_us)
        this = LastEpoch(epoch, writer.compute_digest(epoch), writer.place)
        is_flushed = False
        while True:
            newest, seal, ledger = self.read_ledger()
            if not is_new(self.name, ledger, query, this, writer):
                return False
            if not is_flushed:
                self.flush()
                is_flushed = True
            ledger, snapshot = ledger.commit(query, totals, rule, this)
            # If another query has written this version in the meantime, the loop reads its ledger first.
            if log.append(newest + 1, seal, make_entry(ledger, query, epoch, staged, snapshot)):
                return True

    def admit(self, writer: Writer) -> None:
        """Raise if the query of a checkpoint must not write into the store. It commits nothing.

        Raises
        ------
        StoreError
            STORE_IN_USE.
        """
        refuse_second(self.name, self.read_ledger()[2], writer.read_query(), writer)

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

        A file is removed as a whole. If some rows of a file are kept, all its snapshots are kept. Rows that
        no snapshot has yet are kept too.

        Parameters
        ----------
        before : int, Snapshot, datetime or str
            The first snapshot to keep, by its number or as of a time.

        Returns
        -------
        int
            The number of snapshots that were removed.
        """
        while True:
            newest, history = self.log.find_newest(), self.read_history()
            first = find_first_kept(history, history.find_snapshot(0 if before is None else before).number)
            dropped = [one for one in history.held if one.snapshot is not None and one.snapshot < first]
            n = sum(one.number < first for one in history.snapshots)
            if not n or self.append_rewrite(newest, dropped, [], first):
                return n

    def append_rewrite(
        self, newest: int, dropped: Sequence[CommittedRows], added: Sequence[CommittedRows], first: int = 0
    ) -> bool:
        """Append a rewrite as the version after ``newest``; return False if this version exists."""
        before = self.log.read(newest)
        entry = make_rewrite(before["ledger"], dropped, added, first, time.time_ns() // 1000)
        self.flush()
        return self.log.append(newest + 1, before["seal"], entry)

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        return [one for one in self.read_history().snapshots if one.number > after]

    def open(
        self,
        snapshot: SnapshotChoice = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> Any:
        selection = Selection.read(self.description, since, until, key)
        return self._open_selected(lambda history: select(history, snapshot, selection), selection)

    def open_snapshot(self, snapshot: SnapshotChoice) -> Any:
        def select_one(history: History) -> Iterable[Staged]:
            number = history.find_snapshot(0 if snapshot is None else snapshot).number
            return history.list_staged(only=number)

        return self._open_selected(select_one, Selection())

    def _open_selected(self, select: Callable[[History], Iterable[Staged]], selection: Selection) -> Any:
        """Open staged rows. If ``forget`` has deleted some of them meanwhile, select and open rows again."""
        history = self.read_history()
        while True:
            staged = list(select(history))
            with refuse_damage(str(self), self):
                found = self.open_staged(staged, selection)
            if not self.deletes_at_once:
                return found
            history = self.read_history()
            if all(one.name not in history.dropped for one in staged):
                return found

    def read_history(self) -> History:
        """Read all commits."""
        return read_history(self.log, self)

    @abstractmethod
    def find_damage(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Read staged rows, and yield a sentence for all that is not as their commit wrote it."""

    def verify(self) -> Verification:
        log, history = self.log, History()
        problems = list(log.find_damage())
        try:
            version, seal, state = log.read_state()
            history = History() if state is None else History.from_json(state)
            for entry in log.read_after(version, seal):
                history.add(entry)
                version = entry["version"]
            problems += self.find_damage(list(history.list_staged()), self.description)
        except StoreError as error:
            # Behind a damaged entry, nothing tells which rows are results.
            problems += [] if error.message in problems else [error.message]
            version = -1 if not history.held else version
        names = {one.staged.name for one in history.held}
        rows = sum(one.staged.rows for one in history.held)
        return Verification(version, len(history.snapshots), len(names), rows, tuple(problems))

    def list_last_epochs(self) -> Mapping[str, int]:
        """List the last committed epoch of each query."""
        return {query: one.epoch for query, one in self.read_ledger()[2].queries.items()}

    def read_ledger(self) -> tuple[int, str, Ledger]:
        """Read the newest version, its seal and its ledger. Version 0 has an empty ledger.

        Raises
        ------
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_FORMAT.
        """
        newest = self.log.find_newest()
        if newest < 1:
            return 0, self.log.read_first()["seal"], Ledger()
        entry = self.log.read(newest)
        return newest, entry["seal"], Ledger.from_json(entry["ledger"])


def select(history: History, snapshot: SnapshotChoice, selection: Selection) -> Iterator[Staged]:
    """List the staged rows up to a snapshot, except those whose bounds show that no row is selected."""
    until = None if snapshot is None else history.find_snapshot(snapshot).number
    return selection.keep(history.list_staged(until))


def find_first_kept(history: History, wanted: int) -> int:
    """Find the last snapshot up to ``wanted`` from which on snapshots can be kept without cutting a file."""
    spans: dict[str, tuple[int, int]] = {}
    for one in history.held:
        if one.snapshot is not None:
            low, high = spans.get(one.staged.name, (one.snapshot, one.snapshot))
            spans[one.staged.name] = min(low, one.snapshot), max(high, one.snapshot)
    first = wanted
    while True:
        split = [low for low, high in spans.values() if low < first <= high]
        if not split:
            return first
        first = min(split)
