"""The upkeep of a store: what can be removed, which snapshots can be forgotten, and what is damaged."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.spans import Duration, read_span, to_micros
from thetastream.results.backend import Backend
from thetastream.results.description import Description
from thetastream.results.history import History
from thetastream.results.log import Log
from thetastream.results.staged import read_part_name


class Upkeep(NamedTuple):
    """What ``Store.upkeep`` has done."""

    forgotten: int
    """The number of snapshots that were removed."""
    merged: int
    """The number of files that were merged."""
    removed: int
    """The number of names that were removed: files, or rows of a part."""


def read_span_us(keep: Duration) -> int:
    """Read the span of results that is kept, in microseconds.

    >>> read_span_us("2 hours")
    7200000000
    """
    span = read_span(keep)
    if span is None or span <= timedelta():
        what = f'keep ({describe_given(keep)}) must be a positive span of time, as in "30 days"'
        raise QueryError("INVALID_DURATION", what + hint_unit(keep))
    return to_micros(span)


def find_removable(
    parts: Iterable[tuple[str, float | None]], epochs: Mapping[str, int], history: History, grace_s: float
) -> Iterator[str]:
    """Find the parts that no commit can name and that no reader needs any more.

    Parameters
    ----------
    parts : iterable of (str, float or None)
        What ``Backend.names`` lists.
    epochs : mapping of str to int
        The last committed epoch of each query, which was read before ``history``. A part of a later epoch
        stays, because a commit may have named it in the meantime.
    history : History
    grace_s : float
        Parts that were forgotten or merged stay so many seconds, because readers may be reading them.
    """
    named, until_s = {one.name for one in history.list_staged()}, time.time() - grace_s
    for name, written_s in parts:
        if name in named:
            continue
        origin, at_s = read_part_name(name), written_s
        if name in history.dropped:
            at_s = history.dropped[name] / 1e6
        if at_s is not None:
            is_removable = at_s <= until_s
        else:
            is_removable = origin is not None and origin[1] <= epochs.get(origin[0], -1)
        if is_removable:
            yield name


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


@dataclass(frozen=True)
class Verification:
    """What a store has, and all that is damaged.

    Parameters
    ----------
    entries : int
        The number of the newest entry of the log; -1 if the log has none that can be read.
    snapshots : int
        The number of snapshots that the store keeps.
    parts : int
        The number of files, or of parts in a database, that commits name.
    rows : int
        The number of rows that commits name.
    problems : tuple of str
        A sentence for everything that is damaged; empty if nothing is.

    Examples
    --------
    >>> Verification(entries=7, snapshots=2, parts=5, rows=100, problems=()).is_intact
    True
    """

    entries: int
    snapshots: int
    parts: int
    rows: int
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems


def verify(log: Log, backend: Backend) -> Verification:
    """Read everything that commits name, and list all that is damaged.

    Raises
    ------
    StoreError
        NO_STORE if there is no store.
    """
    history, problems, version = History(), list(log.find_damage()), -1
    try:
        newest, seal, state = log.read_state()
        history = History() if state is None else History.from_json(state)
        version = newest if history.held else -1
        for entry in log.read_after(newest, seal):
            history.add(entry)
            version = entry["version"]
        version = max(version, newest)
        description = Description.from_json(log.read_first()["description"])
        problems += backend.check(list(history.list_staged()), description)
    except StoreError as error:
        if error.condition == "NO_STORE" and log.read_note() < 0:
            raise
        # Behind a damaged entry, nothing tells which rows are results.
        problems += [] if error.message in problems else [error.message]
    names = {one.staged.name for one in history.held}
    rows = sum(one.staged.rows for one in history.held)
    return Verification(version, len(history.snapshots), len(names), rows, tuple(problems))
