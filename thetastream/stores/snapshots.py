"""Decides when results become a snapshot, by the four rules of ESJ, over committed epochs.

    epoch       time reaches a multiple of ``every``      -> a snapshot, named by this multiple
    immediate   ``size`` rows are collected               -> a snapshot at once
    delay       fewer than size / 2 rows at the multiple  -> wait for the next one, ``delays`` times at most
    punctuation a pair of punctuations has joined         -> a snapshot, named by the time of the pair

The rules follow the time of results and not the clock. A query that lags makes the same snapshots later. A
store keeps the state of the rule with every commit, so an epoch that runs again cannot change a snapshot.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from thetastream.core.durations import parse_duration
from thetastream.core.windows import Duration, to_micros
from thetastream.errors import QueryError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERY, SIZE, PAIR = "every", "size", "punctuations"
"""Why a snapshot was made."""


@dataclass(frozen=True)
class Snapshots:
    """When results become a snapshot.

    Parameters
    ----------
    every : str or timedelta, optional
        A snapshot is made when the time of results reaches a multiple of this span, counted from 1970 UTC.
        Its identifier is this multiple. The time of results is the latest time of all rows so far, in the
        column that ``th.write`` calls ``time``. Rows whose time is NULL do not move it: they wait for a row
        that has one. Results without such a column follow the clock of the driver.
    size : int, optional
        The number of rows that a snapshot should have. A snapshot is made at the end of the epoch in which so
        many rows are collected. Its identifier is the time of results; while no row has had a time, it is
        the time of the clock.
    delays : int
        How often a snapshot that has fewer than half of ``size`` rows waits for the next multiple of
        ``every``. Then it is made whatever its size is. By default none waits.
    punctuations : mapping of alias to str, optional
        For two streams a condition that marks their punctuations, as in ``{"a": "a.kind = 'end'",
        "b": "b.kind = 'end'"}``. A snapshot is made at the end of the epoch in which a pair of punctuations
        has joined. Its identifier is the time of the pair.

    Raises
    ------
    QueryError
        BAD_VALUE.

    Examples
    --------
    >>> import thetastream as th
    >>> th.Snapshots(every="1 minute", size=100_000, delays=3)
    Snapshots(every='1 minute', size=100000, delays=3, punctuations=None)
    """

    every: Duration | None = None
    size: int | None = None
    delays: int = 0
    punctuations: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.punctuations is not None:
            others = (self.every, self.size, self.delays or None)
            if others != (None, None, None):
                _refuse("punctuations are the only rule of their snapshots; leave every, size and delays out")
            if not isinstance(self.punctuations, Mapping) or len(self.punctuations) != 2:
                _refuse(f"punctuations must map two aliases to conditions, not {self.punctuations!r}")
        elif self.every is None and self.size is None:
            _refuse("snapshots need every, size or punctuations")
        if self.every is not None and (self.every_us or 0) <= 0:
            _refuse(f"every ({self.every!r}) must be a positive span of time")
        if self.size is not None and (not isinstance(self.size, int) or self.size < 1):
            _refuse(f"size ({self.size!r}) must be a positive number of rows")
        if not isinstance(self.delays, int) or self.delays < 0:
            _refuse(f"delays ({self.delays!r}) must be a number of multiples of every, 0 or more")
        if self.delays and (self.every is None or self.size is None):
            _refuse("delays need every and size")

    @property
    def every_us(self) -> int | None:
        """The span between two snapshots in microseconds."""
        if self.every is None:
            return None
        span = parse_duration(self.every) if isinstance(self.every, str) else self.every
        return None if span is None else to_micros(span)

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        every = None if self.every is None else f"{self.every_us} us"
        return {
            "every": every,
            "size": self.size,
            "delays": self.delays,
            "punctuations": None if self.punctuations is None else dict(self.punctuations),
        }


EACH_EPOCH = Snapshots(size=1)
"""The rule by which every epoch that has rows is a snapshot."""


@dataclass(frozen=True)
class Snapshot:
    """A set of results with one identifier. It never changes.

    Parameters
    ----------
    number : int
        Its place among the snapshots of the store, from 1.
    at_us : int
        Its identifier, a time in microseconds since 1970 UTC.
    begin_us, end_us : int or None
        The least and the greatest time of its rows, in microseconds since 1970 UTC. None without rows.
    epochs : pair of int
        The first and the last epoch whose rows it has.
    rows : int
        The number of its rows.
    reason : str
        The rule that made it: ``"every"``, ``"size"`` or ``"punctuations"``.
    query : str
        The identifier of the query that found the rows.
    """

    number: int
    at_us: int
    begin_us: int | None
    end_us: int | None
    epochs: tuple[int, int]
    rows: int
    reason: str
    query: str

    @property
    def at(self) -> datetime:
        """The identifier as a time."""
        return EPOCH + timedelta(microseconds=self.at_us)

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Snapshot":
        """Read what ``as_json`` returned."""
        return cls(**{**values, "epochs": tuple(values["epochs"])})


@dataclass(frozen=True)
class Brought:
    """What a committed epoch has brought."""

    epoch: int
    rows: int
    begin_us: int | None = None
    end_us: int | None = None
    """The least and the greatest time of its rows."""
    pair_us: int | None = None
    """The latest time of a pair of punctuations that has joined; None if none has."""
    clock_us: int = 0
    """The time of the clock at the commit."""


@dataclass(frozen=True)
class Collected:
    """What a query has collected since its last snapshot."""

    first: int | None = None
    rows: int = 0
    begin_us: int | None = None
    end_us: int | None = None
    now_us: int | None = None
    """The time of results: the latest time of all rows so far."""
    due_us: int | None = None
    """The next multiple of ``every``."""
    delayed: int = 0
    """How often the snapshot has waited."""

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Ledger:
    """What a store remembers of its queries. It is part of every commit."""

    epochs: Mapping[str, int] = field(default_factory=dict)
    """The last committed epoch of each query."""
    collected: Mapping[str, Collected] = field(default_factory=dict)
    snapshots: int = 0
    """The number of the last snapshot."""

    def find_last(self, query: str) -> int:
        """Find the last committed epoch of a query; -1 if it has none."""
        return self.epochs.get(query, -1)

    def commit(self, query: str, brought: Brought, rule: Snapshots) -> "tuple[Ledger, Snapshot | None]":
        """Commit an epoch. Return the ledger that follows, and the snapshot that is made, if one is."""
        before = self.collected.get(query, Collected())
        now, made = collect(before, brought, rule)
        number, snapshot = self.snapshots, None
        if made is not None:
            number += 1
            at_us, reason = made
            taken = _add(before, brought)
            epochs = brought.epoch if taken.first is None else taken.first, brought.epoch
            begin, end = taken.begin_us, taken.end_us
            snapshot = Snapshot(number, at_us, begin, end, epochs, taken.rows, reason, query)
        epochs_of = {**self.epochs, query: brought.epoch}
        return Ledger(epochs_of, {**self.collected, query: now}, number), snapshot

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        collected = {query: one.as_json() for query, one in self.collected.items()}
        return {"epochs": dict(self.epochs), "collected": collected, "snapshots": self.snapshots}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Ledger":
        """Read what ``as_json`` returned."""
        collected = {query: Collected(**one) for query, one in values["collected"].items()}
        return cls(values["epochs"], collected, values["snapshots"])


def collect(before: Collected, brought: Brought, rule: Snapshots) -> tuple[Collected, tuple[int, str] | None]:
    """Add an epoch to what is collected, and decide whether a snapshot is made.

    Returns
    -------
    Collected
        What is collected afterwards: nothing, if a snapshot is made.
    (int, str) or None
        The identifier of the snapshot and the rule that makes it; None if none is made.

    Examples
    --------
    >>> rule, state = Snapshots(every="10us", size=4, delays=1), Collected()
    >>> for epoch, (rows, time) in enumerate([(1, 5), (2, 12), (1, 19), (5, 21), (0, 21), (1, 35), (0, 47)]):
    ...     state, made = collect(state, Brought(epoch, rows, time, time), rule)
    ...     print(made)
    None
    (10, 'every')
    None
    (20, 'every')
    None
    None
    (40, 'every')
    """
    # 1. Collect the rows, and move the time of results.
    now = _add(before, brought)
    # 2. A pair of punctuations has joined.
    if rule.punctuations is not None:
        return (now, None) if brought.pair_us is None else (_start_anew(now), (brought.pair_us, PAIR))
    # 3. The time has reached a multiple of the period. A small snapshot may wait.
    every = rule.every_us
    if every is not None and now.now_us is not None:
        reached = now.now_us // every * every
        if now.due_us is None:
            now = replace(now, due_us=reached + every)
        elif reached >= now.due_us:
            now = replace(now, due_us=reached + every)
            is_small = rule.size is not None and 2 * now.rows < rule.size
            if is_small and now.delayed < rule.delays:
                return replace(now, delayed=now.delayed + 1), None
            return _start_anew(now), (reached, EVERY)
    # 4. Enough rows are collected. If no row has had a time yet, the clock names the snapshot.
    if rule.size is not None and now.rows >= rule.size:
        return _start_anew(now), (brought.clock_us if now.now_us is None else now.now_us, SIZE)
    return now, None


def _add(before: Collected, brought: Brought) -> Collected:
    first = brought.epoch if before.first is None else before.first
    begins = [one for one in (before.begin_us, brought.begin_us) if one is not None]
    ends = [one for one in (before.end_us, brought.end_us) if one is not None]
    times = [one for one in (before.now_us, brought.end_us) if one is not None]
    return replace(
        before,
        first=first,
        rows=before.rows + brought.rows,
        begin_us=min(begins, default=None),
        end_us=max(ends, default=None),
        now_us=max(times, default=None),
    )


def _start_anew(now: Collected) -> Collected:
    return Collected(now_us=now.now_us, due_us=now.due_us)


def _refuse(what: str) -> None:
    raise QueryError("BAD_VALUE", what)
