"""What the commits of a store say: staged rows in the order of their commits, and snapshots of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from thetastream.errors import QueryError
from thetastream.stores.description import Description
from thetastream.stores.snapshots import Brought, Ledger, Snapshot
from thetastream.stores.staged import Staged

if TYPE_CHECKING:
    from thetastream.stores.logged import Log

PAIR = "punctuation"
"""The name under which the bounds of staged rows have the times of joined pairs of punctuations."""


@dataclass
class Held:
    """Staged rows that a commit has named."""

    staged: Staged
    query: str
    snapshot: int | None = None
    """The number of the snapshot that has the rows; None while they are collected."""


@dataclass
class History:
    """All commits of a store up to a version."""

    held: list[Held] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    waiting: dict[str, list[Held]] = field(default_factory=dict)
    """The rows of each query that no snapshot has yet."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add a commit, as ``make_entry`` wrote it."""
        waiting = self.waiting.setdefault(entry["query"], [])
        for values in entry["staged"]:
            held = Held(Staged.from_json(values), entry["query"])
            self.held.append(held)
            waiting.append(held)
        if entry["snapshot"] is not None:
            snapshot = Snapshot.from_json(entry["snapshot"])
            self.snapshots.append(snapshot)
            for held in waiting:
                held.snapshot = snapshot.number
            waiting.clear()

    def copy(self) -> "History":
        """Copy the lists, so that later commits do not change the copy."""
        held = [replace(one) for one in self.held]
        return History(held, list(self.snapshots))

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


class _Known:
    """The history of one store as far as this process has read it."""

    def __init__(self) -> None:
        self.lock, self.version, self.history = Lock(), 0, History()

    def catch_up(self, log: "Log") -> History:
        """Read the commits that are new, and return a copy that later commits do not change."""
        with self.lock:
            for entry in log.read_after(self.version):
                self.history.add(entry)
                self.version = entry["version"]
            return self.history.copy()


_KNOWN: dict[str, _Known] = {}


def read_history(log: "Log", name: str) -> History:
    """Read all commits of the store ``name``. What this process has read before is not read again.

    Raises
    ------
    StoreError
        NO_STORE or STORE_DAMAGED.
    """
    return _KNOWN.setdefault(f"{name} {log.read_first()['id']}", _Known()).catch_up(log)


def make_entry(
    ledger: Ledger, query: str, epoch: int, staged: Iterable[Staged], snapshot: Snapshot | None
) -> dict[str, Any]:
    """Make the record of a commit, which ``History.add`` reads."""
    return {
        "query": query,
        "epoch": epoch,
        "staged": [one.to_json() for one in staged],
        "snapshot": None if snapshot is None else snapshot.to_json(),
        "ledger": ledger.to_json(),
    }


def sum_up(description: Description, epoch: int, staged: Iterable[Staged], clock_us: int) -> Brought:
    """Sum up what an epoch brings. Without a column of time, its rows have the time of the clock."""
    rows, begins, ends, pairs = 0, [], [], []
    for one in staged:
        rows += one.rows
        begin, end = one.bounds.get(description.time or "", (None, None))
        begins += [] if begin is None else [begin]
        ends += [] if end is None else [end]
        pair = one.bounds.get(PAIR, (None, None))[1]
        pairs += [] if pair is None else [pair]
    if description.time is None:
        begins, ends = [clock_us], [clock_us]
    return Brought(epoch, rows, min(begins, default=None), max(ends, default=None), max(pairs, default=None))


def _read_time(value: "str | datetime") -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise QueryError("BAD_VALUE", f"snapshot must be a number or a time, not {value!r}") from error
    value = value if value.tzinfo else value.replace(tzinfo=UTC)
    return round(value.timestamp() * 1e6)
