"""The logical query: checked, but without any choice of model or index.

streams, conjuncts c1 AND ... AND cn, Python predicates, window -W_left <= l.ts - r.ts <= W_right
"""

import sys
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from thetastream.conditions import Phrase, Predicate
from thetastream.core.condition import LENIENT, ChangeRules, VersionRule
from thetastream.core.errors import QueryError
from thetastream.core.how import INNER, How
from thetastream.lowering.physical import Carried

RESULT_TIME = "result_time"
"""The column of results with the latest event time of each row."""
WATERMARK_BOUND = "watermark bound"
"""The column with a lower bound of the watermark after the epoch, in microseconds. With ``every=``, the
result of each join of a pipeline before the last one has it. No alias has a space, and each flat column of a
result has ``__``, so nothing else has this name."""
ORIGIN_LATE = "late results"
"""The origin of the event time of a stream that has none, because its rows come behind the watermark."""


class UnboundedStateWarning(UserWarning):
    """Tuples of a stream are kept for ever, because nothing bounds how long they stay joinable."""


def warn_of_unbounded_state(streams: Sequence["Stream"], lifetimes_us: Sequence[int | None]) -> None:
    """Warn once if tuples of some streams are kept for ever.

    Parameters
    ----------
    streams : sequence of Stream
        The streams of the join.
    lifetimes_us : sequence of int or None
        For each stream, how long after its event time a tuple stays joinable, in microseconds. None means for
        ever.
    """
    endless = [
        stream.alias
        for stream, lifetime in zip(streams, lifetimes_us, strict=True)
        if stream.is_streaming and lifetime is None
    ]
    if endless:
        warn_caller(
            f"tuples of {', '.join(endless)} are kept for ever, because nothing bounds how long they stay "
            'joinable: give within="10 minutes", or a bound on event times in the condition and a watermark '
            "on both streams",
            UnboundedStateWarning,
        )


class CrossJoinWarning(UserWarning):
    """No conjunct compares the streams. The join is their cross product inside the window."""


def warn_of_cross_join(message: str) -> None:
    """Warn with a ``CrossJoinWarning``."""
    warn_caller(message, CrossJoinWarning)


def warn_caller(message: str, category: type[UserWarning]) -> None:
    """Issue a warning that shows the line of the caller, outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("thetastream."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@dataclass(frozen=True)
class Stream:
    """One input: its columns with their Spark types, how they travel, and its event time."""

    alias: str
    types: tuple[tuple[str, str], ...]
    """(column, Spark type) in schema order."""
    carried: tuple[Carried, ...] = ()
    event_time: str | None = None
    is_streaming: bool = True
    event_time_origin: str = "watermark"
    """How the event-time column was found: ``watermark``, ``event_time=``, ``only timestamp``; or
    ``ORIGIN_LATE``."""
    watermark_delay_us: int | None = None
    """The delay that ``withWatermark`` sets, in microseconds. It is None if there is none."""
    idle_mark: tuple[str, str] | None = None
    """Folder and name of the reports by which the watermark of an idle stream moves. None if it does not."""
    parts: tuple[str, ...] = ()
    """The aliases of the user's streams, if this is the result of a join of them."""
    change_type: str | None = None
    """The column that says of each row whether it was inserted or deleted. None if rows are only inserted."""
    inserts_only: bool = False
    """Whether rows are changes without such a column: all of them are inserted."""
    rules: ChangeRules = LENIENT
    """What ends the query if rows may be deleted."""
    versions: VersionRule | None = None
    """What the tuples are versions of; None if they are no versions."""
    watermark_bound: str | None = None
    """The column that says how far the streams behind this one move the watermark. None if its own event
    times say so."""

    @property
    def narrowed(self) -> "Stream":
        """The stream with only the columns that are sent to the units."""
        fields = {carried.field for carried in self.carried}
        return replace(self, types=tuple(found for found in self.types if found[0] in fields))

    def type_of(self, column: str) -> str:
        """Return the Spark type of the column with exactly this name."""
        return dict(self.types)[column]

    def find(self, name: str, is_case_sensitive: bool) -> str | None:
        """Return the column to which Spark resolves ``name``, or None."""
        for column, _ in self.types:
            if column == name or (not is_case_sensitive and column.casefold() == name.casefold()):
                return column
        return None


@dataclass(frozen=True)
class Query:
    """A validated join of two streams or more."""

    streams: tuple[Stream, ...]
    on: tuple[str, ...]
    """The SQL conditions as written."""
    conjuncts: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...] = ()
    within_us: tuple[int, ...] | None = None
    """For time windows, how long the tuples of each stream stay joinable, in microseconds."""
    counts: tuple[int, ...] | None = None
    """For a count window, the number of tuples of each stream that stay joinable."""
    has_result_time: bool = False
    """Whether the user gets the result time of each row, in a column of its own."""
    how: How = INNER
    """Whether results are pairs, or answers for each tuple of a preserved stream."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases in the order of the streams."""
        return tuple(stream.alias for stream in self.streams)


@dataclass(frozen=True)
class Constant:
    """The value of an expression that reads no column."""

    type: str
    value: Any


class Resolver(Protocol):
    """The questions that planning asks Catalyst."""

    @property
    def is_case_sensitive(self) -> bool:
        """Whether column names differ by case."""

    @property
    def is_ansi(self) -> bool:
        """Whether an overflow in arithmetic is an error. If not, it wraps around."""

    @property
    def zone_is_fixed(self) -> bool:
        """Whether every day of the session time zone has 24 hours."""

    def type_of(self, text: str, aliases: Sequence[str]) -> str | None:
        """Return the Spark type of an expression over these streams, or None if it does not resolve."""

    def constant(self, text: str) -> Constant | None:
        """Return the value of an expression without columns, or None if Python cannot represent the value."""

    def duration(self, duration: object, what: str) -> int:
        """Return the microseconds of an interval, or raise QueryError INVALID_DURATION."""

    def carry(
        self, stream: Stream, names: Collection[str] | None, first: int
    ) -> tuple[tuple[Carried, ...], list[QueryError]]:
        """Assign columns of a stream to block columns, from ``c<first>`` on.

        ``names`` are those of the columns, in lower case; None stands for all of them. Columns that may be
        the event time are added. Returns an error for each column that blocks cannot hold.
        """


def list_conditions(texts: Sequence[str], predicates: Sequence[Predicate]) -> tuple[str, ...]:
    """List conditions as the user wrote them: SQL texts, and names of Python predicates."""
    return (*texts, *map(_name_call, predicates))


def _name_call(predicate: Predicate) -> str:
    call = f"{predicate.name}(...)"
    return f"{call} of version {predicate.version!r}" if predicate.version else call


def find_type(streams: Sequence[Stream], alias: str, name: str, resolver: Resolver) -> str | None:
    """Return the Spark type of a column of one of these streams, or None if there is no such column."""
    for stream in streams:
        if stream.alias.casefold() == alias.casefold():
            column = stream.find(name, resolver.is_case_sensitive)
            return None if column is None else stream.type_of(column)
    return None
