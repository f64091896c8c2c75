"""Keeps the epochs of queries that are committed, and decides when they become a snapshot.

The four rules of ESJ decide:

    epoch       time reaches a multiple of ``every``      -> a snapshot, named by this multiple
    immediate   ``size`` rows are collected               -> a snapshot at once
    delay       fewer than size / 2 rows at the multiple  -> wait for the next one, ``delays`` times at most
    punctuation each marked stream has brought one        -> a snapshot, named by the latest of their times

The rules follow the time of results and not the clock. So a query that lags makes the same snapshots later.
Every commit contains the ledger, so an epoch that runs again cannot change a snapshot.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from thetastream.results.snapshots import EACH_EPOCH, Snapshot, Snapshots

EVERY, SIZE, PUNCTUATION, EPOCH = "every", "size", "punctuation", "epoch"
"""The reason of a snapshot: the rule that made it. Without a rule, it is the epoch that had results."""


@dataclass(frozen=True)
class EpochTotals:
    """Figures about all rows of a committed epoch."""

    epoch: int
    rows: int
    begin_us: int | None = None
    end_us: int | None = None
    """The least and the greatest time of the rows; None if no row has a time."""
    clock_us: int = 0
    """The time of the clock at the commit."""
    punctuations: Mapping[str, int] = field(default_factory=dict)
    """The latest time of the punctuations of each stream that has brought some, by the number of the stream.
    """


@dataclass(frozen=True)
class PendingSnapshot:
    """Figures about the rows that a query has collected for its next snapshot."""

    first: int | None = None
    """The first epoch of these rows."""
    rows: int = 0
    begin_us: int | None = None
    end_us: int | None = None
    now_us: int | None = None
    """The time of results: the latest time of all rows so far."""
    delayed: int = 0
    """The number of multiples of ``every`` at which the snapshot was too small and has waited."""
    punctuations: Mapping[str, int] = field(default_factory=dict)
    """The latest times of punctuations that streams have brought since the snapshot before."""

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON. ``punctuations`` is left out if there are none."""
        values = asdict(self)
        return values if self.punctuations else {key: values[key] for key in values if key != "punctuations"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PendingSnapshot":
        """Read what ``as_json`` returned, also that of earlier versions, which had other fields."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})


@dataclass(frozen=True)
class CommittedEpoch:
    """The last committed epoch of a query."""

    epoch: int
    digest: str | None = None
    """The digest of the input of the epoch; None if the checkpoint of the query could not be read."""
    checkpoint: str | None = None
    """The checkpoint from which the query ran the epoch; None if it is not known."""
    successor: str | None = None
    """The fork that has taken the place of the query; None if there is none."""

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON. The key ``successor`` is left out if there is none."""
        values = asdict(self)
        return values if self.successor else {key: values[key] for key in values if key != "successor"}


@dataclass(frozen=True)
class Ledger:
    """The progress of all queries that write into a store. It is part of every commit."""

    queries: Mapping[str, CommittedEpoch] = field(default_factory=dict)
    """The last committed epoch of each query."""
    collected: Mapping[str, PendingSnapshot] = field(default_factory=dict)
    snapshots: int = 0
    """The number of the last snapshot."""

    def commit(
        self, query: str, totals: EpochTotals, rule: Snapshots, last: CommittedEpoch | None = None
    ) -> "tuple[Ledger, Snapshot | None]":
        """Commit an epoch. Return the new ledger, and the snapshot that the epoch completes or None."""
        before = self.collected.get(query, PendingSnapshot())
        now, made = collect(before, totals, rule)
        number, snapshot = self.snapshots, None
        if made is not None:
            number += 1
            at_us, reason = made
            taken = _add(before, totals)
            epochs = totals.epoch if taken.first is None else taken.first, totals.epoch
            begin, end = taken.begin_us, taken.end_us
            snapshot = Snapshot(number, at_us, begin, end, epochs, taken.rows, reason, query)
        queries = {**self.queries, query: last or CommittedEpoch(totals.epoch)}
        return Ledger(queries, {**self.collected, query: now}, number), snapshot

    def hand_over(self, old: str, query: str) -> "Ledger":
        """Let a query take the place of an old one, with the rows that this one has collected."""
        queries = {**self.queries, old: replace(self.queries[old], successor=query)}
        collected = {known: one for known, one in self.collected.items() if known != old}
        if old in self.collected:
            collected[query] = self.collected[old]
        return replace(self, queries=queries, collected=collected)

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        collected = {query: one.as_json() for query, one in self.collected.items()}
        queries = {query: one.as_json() for query, one in self.queries.items()}
        return {"queries": queries, "collected": collected, "snapshots": self.snapshots}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Ledger":
        """Read what ``as_json`` returned."""
        collected = {query: PendingSnapshot.from_json(one) for query, one in values["collected"].items()}
        queries = {query: CommittedEpoch(**one) for query, one in values["queries"].items()}
        return cls(queries, collected, values["snapshots"])


def collect(
    before: PendingSnapshot, totals: EpochTotals, rule: Snapshots
) -> tuple[PendingSnapshot, tuple[int, str] | None]:
    """Add an epoch to the collected rows, and decide whether they become a snapshot.

    Returns
    -------
    PendingSnapshot
        The rows that are collected afterwards. There are none if a snapshot is made.
    (int, str) or None
        The identifier of the snapshot and the rule that makes it; None if no snapshot is made.

    Examples
    --------
    >>> rule, state = Snapshots(every="10us", size=4, delays=1), PendingSnapshot()
    >>> for epoch, (rows, time) in enumerate([(1, 5), (2, 12), (1, 19), (5, 21), (0, 21), (1, 35), (0, 47)]):
    ...     state, made = collect(state, EpochTotals(epoch, rows, time, time), rule)
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
    now = _add(before, totals)
    # 2. Each marked stream has brought a punctuation.
    if rule.punctuation is not None:
        if len(now.punctuations) < len(rule.marks):
            return now, None
        return _begin_next(now), (max(now.punctuations.values()), PUNCTUATION)
    # 3. The time has reached a multiple of the period. A small snapshot may wait.
    #    The next multiple follows from the rule of now, because a query may continue with another rule.
    every = rule.every_us
    if every is not None and now.now_us is not None and before.now_us is not None:
        reached = now.now_us // every * every
        if reached > before.now_us // every * every:
            is_small = rule.size is not None and 2 * now.rows < rule.size
            if is_small and now.delayed < rule.delays:
                return replace(now, delayed=now.delayed + 1), None
            return _begin_next(now), (reached, EVERY)
    # 4. Enough rows are collected. If no row has a time yet, the snapshot is named by the clock.
    if rule.size is not None and now.rows >= rule.size:
        reason = EPOCH if rule == EACH_EPOCH else SIZE
        return _begin_next(now), (totals.clock_us if now.now_us is None else now.now_us, reason)
    return now, None


def _add(before: PendingSnapshot, totals: EpochTotals) -> PendingSnapshot:
    """Add the rows of an epoch to the collected rows."""
    first = totals.epoch if before.first is None else before.first
    begins = [one for one in (before.begin_us, totals.begin_us) if one is not None]
    ends = [one for one in (before.end_us, totals.end_us) if one is not None]
    times = [one for one in (before.now_us, totals.end_us) if one is not None]
    return replace(
        before,
        first=first,
        rows=before.rows + totals.rows,
        begin_us=min(begins, default=None),
        end_us=max(ends, default=None),
        now_us=max(times, default=None),
        punctuations={**before.punctuations, **totals.punctuations},
    )


def _begin_next(now: PendingSnapshot) -> PendingSnapshot:
    """Begin the next snapshot without rows. The time of results stays."""
    return PendingSnapshot(now_us=now.now_us)
