"""The history of a store: its committed rows in the order of the commits, and its snapshots."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.results.description import Description
from thetastream.results.ledger import EpochTotals, Ledger
from thetastream.results.log import EntryRemoved, Log
from thetastream.results.snapshots import EPOCH, Snapshot
from thetastream.results.staged import Staged


@dataclass
class CommittedRows:
    """Staged rows that a commit has named."""

    staged: Staged
    query: str
    snapshot: int | None = None
    """The number of the snapshot that has the rows; None if no snapshot has them yet."""

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return {"staged": self.staged.as_json(), "query": self.query, "snapshot": self.snapshot}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "CommittedRows":
        """Read what ``as_json`` returned."""
        return cls(Staged.from_json(values["staged"]), values["query"], values["snapshot"])


@dataclass
class History:
    """All commits of a store up to a version."""

    held: list[CommittedRows] = field(default_factory=list)
    """The committed rows, in the order of their commits."""
    snapshots: list[Snapshot] = field(default_factory=list)
    waiting: dict[str, list[CommittedRows]] = field(default_factory=dict)
    """The rows of each query that no snapshot has yet."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The time at which each name was dropped, in microseconds since 1970 UTC."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add a version of the log, as ``make_entry`` or ``make_rewrite`` wrote it."""
        if "dropped" in entry:
            self._rewrite(entry)
            return
        waiting = self.waiting.setdefault(entry["query"], [])
        for values in entry["staged"]:
            held = CommittedRows(Staged.from_json(values), entry["query"])
            self.held.append(held)
            waiting.append(held)
        if entry["snapshot"] is not None:
            snapshot = Snapshot.from_json(entry["snapshot"])
            self.snapshots.append(snapshot)
            for held in waiting:
                held.snapshot = snapshot.number
            waiting.clear()

    def _rewrite(self, entry: Mapping[str, Any]) -> None:
        """Replace rows by the same rows in another file, or drop them with their snapshots."""
        dropped = {Staged.from_json(one).place for one in entry["dropped"]}
        kept, at = [], None
        for held in self.held:
            if held.staged.place not in dropped:
                kept.append(held)
            elif at is None:
                at = len(kept)
        added = [CommittedRows.from_json(one) for one in entry["added"]]
        kept[at or 0 : at or 0] = added
        self.held = kept
        self.snapshots = [one for one in self.snapshots if one.number >= entry["first"]]
        named = {held.staged.name for held in kept}
        for name, _ in dropped:
            if name not in named:
                self.dropped[name] = entry["clock_us"]

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return {
            "held": [one.as_json() for one in self.held],
            "snapshots": [one.as_json() for one in self.snapshots],
            "dropped": self.dropped,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "History":
        """Read what ``as_json`` returned."""
        held = [CommittedRows.from_json(one) for one in values["held"]]
        waiting: dict[str, list[CommittedRows]] = {}
        for one in held:
            if one.snapshot is None:
                waiting.setdefault(one.query, []).append(one)
        snapshots = [Snapshot.from_json(one) for one in values["snapshots"]]
        return cls(held, snapshots, waiting, dict(values["dropped"]))

    def copy(self) -> "History":
        """Copy the lists, so that later commits add no rows to the copy.

        A later commit may still give the number of its snapshot to rows that had no snapshot. This changes no
        earlier snapshot.
        """
        return History(list(self.held), list(self.snapshots), {}, dict(self.dropped))

    def list_staged(self, until: int | None = None, only: int | None = None) -> Iterable[Staged]:
        """List staged rows: all, those of snapshots up to ``until``, or those of the snapshot ``only``."""
        for held in self.held:
            number = held.snapshot
            if until is not None and (number is None or number > until):
                continue
            if only is not None and number != only:
                continue
            yield held.staged

    def find_snapshot(self, asked: "int | Snapshot | str | datetime") -> Snapshot:
        """Find a snapshot by its number, or the last one whose identifier is not after a time.

        Raises
        ------
        QueryError
            UNKNOWN_SNAPSHOT or BAD_VALUE.
        """
        number = asked.number if isinstance(asked, Snapshot) else asked
        if isinstance(number, str | datetime):
            at_us = _read_time(number)
            found = [one for one in self.snapshots if one.at_us <= at_us]
        else:
            found = [one for one in self.snapshots if one.number == number]
        if not found:
            ends = f"{self.snapshots[0].number} to {self.snapshots[-1].number}" if self.snapshots else "none"
            raise QueryError("UNKNOWN_SNAPSHOT", f"the store has no snapshot {asked!r}; it has {ends}")
        return found[-1]


class _KnownHistory:
    """The part of the history of a store that this process has read."""

    def __init__(self) -> None:
        self.lock, self.version, self.seal, self.history = Lock(), 0, "", History()

    def catch_up(self, log: Log) -> History:
        """Read the new commits, and return a copy of the history.

        Read all of them if the last one is gone, or is another one since the store was restored.
        """
        with self.lock:
            if not self.version or log.find_seal(self.version) != self.seal:
                self._read_state(log)
            try:
                self._read_newer(log)
            except EntryRemoved:
                self._read_state(log)
                self._read_newer(log)
            return self.history.copy()

    def _read_state(self, log: Log) -> None:
        version, seal, state = log.read_state()
        self.history = History() if state is None else History.from_json(state)
        self.version, self.seal = version, seal

    def _read_newer(self, log: Log) -> None:
        for entry in log.read_after(self.version, self.seal):
            self.history.add(entry)
            self.version, self.seal = entry["version"], entry["seal"]


_KNOWN: dict[tuple[Hashable, str], _KnownHistory] = {}
"""The histories that this process has read, by the store and the identifier in its log."""


def read_history(log: Log, store: Hashable) -> History:
    """Read all commits of a store. This process reads each commit once.

    ``store`` names the place of the store. The log has an identifier, which differs if the store was removed
    and another one was made at the same place.

    Raises
    ------
    StoreError
        NO_STORE or STORE_DAMAGED.
    """
    return _KNOWN.setdefault((store, log.read_first()["id"]), _KnownHistory()).catch_up(log)


def make_entry(
    ledger: Ledger, query: str, epoch: int, staged: Iterable[Staged], snapshot: Snapshot | None
) -> dict[str, Any]:
    """Make the record of a commit, which ``History.add`` reads."""
    return {
        "query": query,
        "epoch": epoch,
        "staged": [one.as_json() for one in staged],
        "snapshot": None if snapshot is None else snapshot.as_json(),
        "ledger": ledger.as_json(),
    }


def make_rewrite(
    ledger: Mapping[str, Any],
    dropped: Iterable[CommittedRows],
    added: Iterable[CommittedRows] = (),
    first: int = 0,
    clock_us: int = 0,
) -> dict[str, Any]:
    """Make the record of a rewrite, which ``History.add`` reads.

    Parameters
    ----------
    ledger : mapping
        The ledger of the version before, which a rewrite does not change.
    dropped, added : iterable of CommittedRows
        The rows that are dropped, and the rows that replace them.
    first : int
        The number of the first snapshot that is kept.
    clock_us : int
        The time of the clock. Dropped files are removed some time later, because readers may be using them.
    """
    return {
        "dropped": [one.staged.as_json() for one in dropped],
        "added": [one.as_json() for one in added],
        "first": first,
        "clock_us": clock_us,
        "ledger": ledger,
    }


def sum_up(description: Description, epoch: int, staged: Iterable[Staged], clock_us: int) -> EpochTotals:
    """Compute the totals of an epoch. Without a column of time, its rows have the time of the clock."""
    rows, begins, ends = 0, [], []
    for one in staged:
        rows += one.rows
        begin, end = one.bounds.get(description.time or "", (None, None))
        begins += [] if begin is None else [begin]
        ends += [] if end is None else [end]
    if description.time is None:
        begins, ends = [clock_us], [clock_us]
    return EpochTotals(epoch, rows, min(begins, default=None), max(ends, default=None), clock_us)


def _read_time(value: "str | datetime") -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise QueryError("BAD_VALUE", f"snapshot must be a number or a time, not {value!r}") from error
    value = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (value - EPOCH) // timedelta(microseconds=1)
