"""A store that keeps a log of commits: what all stores share, whatever holds their rows.

    version 0   the description of the store
    version n   staged names, the ledger, and a snapshot if one is made

A commit reads the newest version, lets the ledger decide, and appends the next version. If another query has
appended it meanwhile, the commit begins anew. So one atomic step of the log is all that a store must offer.
"""

import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from thetastream.stores.base import Asked, Store
from thetastream.stores.description import Description
from thetastream.stores.history import History, make_entry, read_history, sum_up
from thetastream.stores.selection import Selection
from thetastream.stores.snapshots import EACH_EPOCH, Ledger, Snapshot, Snapshots
from thetastream.stores.staged import Staged


class Log(Protocol):
    """Versions 0, 1, 2, ... of a store. Each is written once and never changes."""

    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none."""

    def read_first(self) -> dict[str, Any]:
        """Read version 0. It raises StoreError NO_STORE if there is none."""

    def read(self, version: int) -> dict[str, Any]:
        """Read a version."""

    def read_after(self, version: int) -> Iterator[dict[str, Any]]:
        """Read all newer versions, in order."""

    def append(self, version: int, entry: dict[str, Any]) -> bool:
        """Write a version in one atomic step unless there is one; return whether it was written."""


class LoggedStore(Store):
    """A store with a log of commits."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the store: its folder, or its table."""

    @property
    @abstractmethod
    def log(self) -> Log:
        """The log of the store."""

    @abstractmethod
    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> Any:
        """Open the selected rows among staged rows that commits have named, as ``open`` does."""

    def describe(self, description: Description) -> None:
        if not self.log.append(0, {"id": uuid.uuid4().hex, "description": description.to_json()}):
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
        log, brought = self.log, sum_up(self.description, epoch, staged, clock_us)
        while True:
            newest = log.find_newest()
            ledger = self._read_ledger(newest)
            if ledger.knows(query, epoch):
                return False
            ledger, snapshot = ledger.commit(query, brought, rule)
            # Another query may have written this version meanwhile. Then its ledger is read first.
            if log.append(newest + 1, make_entry(ledger, query, epoch, staged, snapshot)):
                return True

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        return [one for one in self.read_history().snapshots if one.number > after]

    def open(
        self,
        snapshot: Asked = None,
        since: Any = None,
        until: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> Any:
        selection = Selection.read(self.description, since, until, key)
        return self.open_staged(self.select(snapshot, selection), selection)

    def read_snapshot(self, snapshot: Asked) -> pa.Table:
        history = self.read_history()
        number = history.find_snapshot(0 if snapshot is None else snapshot).number
        found = self.open_staged(history.list_staged(only=number), Selection())
        return found if isinstance(found, pa.Table) else found.to_table()

    def select(self, snapshot: Asked, selection: Selection) -> Iterator[Staged]:
        """List the staged rows of a snapshot that may have selected rows, as far as their bounds tell."""
        history = self.read_history()
        until = None if snapshot is None else history.find_snapshot(snapshot).number
        return (one for one in history.list_staged(until) if selection.may_hold(one))

    def read_history(self) -> History:
        """Read what all commits say."""
        return read_history(self.log, self.name)

    def list_last_epochs(self) -> Mapping[str, int]:
        """List the last committed epoch of each query."""
        return self._read_ledger(self.log.find_newest()).epochs

    def _read_ledger(self, version: int) -> Ledger:
        """Read what a version of the store remembers of its queries."""
        return Ledger() if version < 1 else Ledger.from_json(self.log.read(version)["ledger"])
