"""Snapshots, and the rules by which committed results become a snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import QueryError
from thetastream.core.html import render_rows
from thetastream.core.spans import Duration, read_span, to_micros

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US, LAST_US = (
    (end.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
"""The first and the last time that Python has, in microseconds since 1970 UTC."""


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _refuse(what: str) -> None:
    raise QueryError("BAD_VALUE", what)


@dataclass(frozen=True)
class Snapshots:
    """The rule by which results become a snapshot.

    Parameters
    ----------
    every : str or timedelta, optional
        A snapshot is made when the time of results reaches a multiple of this span, counted from 1970 UTC.
        Its identifier is this multiple. The time of results is the latest time of all rows so far, in the
        column that ``th.write`` calls ``time``. Rows whose time is NULL do not change the time of results.
        They wait for a row that has a time. Results without such a column follow the clock of the driver.
    size : int, optional
        The number of rows that a snapshot should have. A snapshot is made at the end of the epoch in which so
        many rows are collected. Its identifier is the time of results. If no row has a time yet, its
        identifier is the time of the clock.
    delays : int
        How often a snapshot that has fewer than half of ``size`` rows waits for the next multiple of
        ``every``. After that, it is made whatever its size is. By default, no snapshot waits.
    punctuation : str or sequence of str, optional
        A condition over one stream, which marks the rows that are punctuations, as in ``"a.kind = 'end'"``. A
        punctuation is no tuple: it joins nothing, and units do not store it. A snapshot is made at the end of
        the epoch that reads it. Its identifier is the event time of the punctuation. With conditions over
        several streams, a snapshot is made when each of these streams has brought a punctuation since the
        snapshot before, and its identifier is the latest time of these punctuations.

    Raises
    ------
    QueryError
        BAD_VALUE.

    Examples
    --------
    >>> import thetastream as th
    >>> th.Snapshots(every="1 minute", size=100_000, delays=3)
    Snapshots(every='1 minute', size=100000, delays=3, punctuation=None)
    """

    every: Duration | None = None
    size: int | None = None
    delays: int = 0
    punctuation: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.punctuation is not None:
            others = (self.every, self.size, self.delays or None)
            if others != (None, None, None):
                _refuse("punctuation is the only rule of its snapshots; leave every, size and delays out")
            marks = self.marks if isinstance(self.punctuation, str | list | tuple) else ()
            if not marks or not all(isinstance(mark, str) and mark for mark in marks):
                what = "punctuation must be a condition over one stream, or several of them"
                _refuse(f"{what}, as in \"a.kind = 'end'\", not {self.punctuation!r}")
        elif self.every is None and self.size is None:
            _refuse("snapshots need every, size or punctuation")
        if self.every is not None and (self.every_us or 0) <= 0:
            what = f"every ({describe_given(self.every)}) must be a positive span of time such as '1 minute'"
            _refuse(what + hint_unit(self.every))
        if self.size is not None and not _is_count(self.size, least=1):
            _refuse(f"size ({self.size!r}) must be a positive number of rows")
        if not _is_count(self.delays, least=0):
            _refuse(f"delays ({self.delays!r}) must be a number of multiples of every, 0 or more")
        if self.delays and (self.every is None or self.size is None):
            _refuse("delays need every and size")

    @property
    def every_us(self) -> int | None:
        """The span between two snapshots in microseconds."""
        span = read_span(self.every)
        return None if span is None else to_micros(span)

    @property
    def marks(self) -> tuple[str, ...]:
        """The conditions that mark punctuations."""
        if self.punctuation is None:
            return ()
        return (self.punctuation,) if isinstance(self.punctuation, str) else tuple(self.punctuation)

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        every = None if self.every is None else f"{self.every_us} us"
        return {
            "every": every,
            "size": self.size,
            "delays": self.delays,
            "punctuation": list(self.marks) or None,
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
        The rule that made it: ``"every"``, ``"size"`` or ``"punctuation"``; ``"epoch"`` if there was no rule.
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
        """The identifier as a time. Python has only the years 1 to 9999: other times are the nearest one."""
        return EPOCH + timedelta(microseconds=max(FIRST_US, min(self.at_us, LAST_US)))

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Snapshot":
        """Read what ``as_json`` returned."""
        return cls(**{**values, "epochs": tuple(values["epochs"])})


class SnapshotList(list[Snapshot]):
    """Snapshots, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        rows = [(one.number, f"{one.at:%Y-%m-%d %H:%M:%S}", one.rows, one.reason) for one in self]
        return render_rows(("snapshot", "at, UTC", "rows", "reason"), rows)
