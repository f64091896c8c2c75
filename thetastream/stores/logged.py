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
from typing import Any, ClassVar, NoReturn

from thetastream.errors import StoreError
from thetastream.stores.base import SnapshotChoice, Store, refuse_damage
from thetastream.stores.description import Description
from thetastream.stores.history import CommittedRows, History, make_entry, make_rewrite, read_history, sum_up
from thetastream.stores.ledger import Ledger
from thetastream.stores.log import Log
from thetastream.stores.selection import Selection
from thetastream.stores.snapshots import EACH_EPOCH, Snapshot, Snapshots
from thetastream.stores.staged import Staged

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
        if not self.log.append(0, {"id": uuid.uuid4().hex, "description": description.as_json()}):
            self.description.refuse_changes(description, self.name)

    @property
    def description(self) -> Description:
        return Description.from_json(self.log.read_first()["description"])

    def commit(
        self,
        query: str,
        epoch: int,
        staged: Sequence[Staged],
        rule: Snapshots = EACH_EPOCH,
        clock_us: int = 0,
    ) -> bool:
        log, totals = self.log, sum_up(self.description, epoch, staged, clock_us)
        while True:
            newest = log.find_newest()
            ledger = self._read_ledger(newest)
            last = ledger.find_last(query)
            if epoch < last:
                self._refuse_epoch(epoch, last)
            if epoch == last:
                return False
            ledger, snapshot = ledger.commit(query, totals, rule)
            # If another query has written this version in the meantime, the loop reads its ledger first.
            if log.append(newest + 1, make_entry(ledger, query, epoch, staged, snapshot)):
                return True

    def _refuse_epoch(self, epoch: int, last: int) -> NoReturn:
        """Refuse an epoch of an old copy of the checkpoint. Spark itself repeats only the last epoch."""
        what = f"{self.name} has the results of epochs up to {last}, and the query runs epoch {epoch}"
        why = "its checkpoint is older than the store, so the epoch may have other rows now"
        hint = "Restore checkpoint and store from one backup, or begin with a new checkpoint and a new store"
        raise StoreError("STORE_AHEAD", f"{what}: {why}. {hint}")

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
        ledger = self._read_ledger(newest).as_json()
        entry = make_rewrite(ledger, dropped, added, first, time.time_ns() // 1000)
        return self.log.append(newest + 1, entry)

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
            with refuse_damage(str(self)):
                found = self.open_staged(staged, selection)
            if not self.deletes_at_once:
                return found
            history = self.read_history()
            if all(one.name not in history.dropped for one in staged):
                return found

    def read_history(self) -> History:
        """Read all commits."""
        return read_history(self.log, self)

    def list_last_epochs(self) -> Mapping[str, int]:
        """List the last committed epoch of each query."""
        return self._read_ledger(self.log.find_newest()).epochs

    def _read_ledger(self, version: int) -> Ledger:
        """Read the ledger of a version. Version 0 and an empty log have an empty ledger."""
        return Ledger() if version < 1 else Ledger.from_json(self.log.read(version)["ledger"])


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
