"""The query as the user meant it, checked, before any strategy is chosen.

streams, conjuncts c1 AND ... AND cn, Python predicates, window -W_left <= l.ts - r.ts <= W_right
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thetastream.errors import QueryError
from thetastream.plan.physical import Carried
from thetastream.predicate import Phrase, Predicate


class CrossJoinWarning(UserWarning):
    """No conjunct ties the two streams: the join is their cross product inside the window."""


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
    """How the event-time column was found: ``watermark``, ``event_time=``, ``only timestamp``."""
    watermark_delay_us: int | None = None
    """Of ``withWatermark``."""

    def type_of(self, column: str) -> str:
        """Spark type of a column, by its exact name."""
        return dict(self.types)[column]

    def find(self, name: str, is_case_sensitive: bool) -> str | None:
        """The column that Spark means by ``name``, or None."""
        for column, _ in self.types:
            if column == name or (not is_case_sensitive and column.casefold() == name.casefold()):
                return column
        return None


@dataclass(frozen=True)
class Query:
    """A validated binary join."""

    streams: tuple[Stream, Stream]
    on: tuple[str, ...]
    """The SQL conditions as written."""
    conjuncts: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...] = ()
    within_us: tuple[int, int] | None = None
    """How long left and right tuples stay joinable."""
    counts: tuple[int, int] | None = None
    """How many left and right tuples stay joinable, in a count window."""

    @property
    def aliases(self) -> tuple[str, str]:
        """Left and right alias."""
        return self.streams[0].alias, self.streams[1].alias


@dataclass(frozen=True)
class Constant:
    """Value of an expression that reads no column."""

    type: str
    value: Any


class Resolver(Protocol):
    """What lowering asks of Catalyst."""

    @property
    def is_case_sensitive(self) -> bool:
        """Whether column names differ by case."""

    @property
    def is_ansi(self) -> bool:
        """Whether arithmetic that overflows is an error, as opposed to wrapping around."""

    @property
    def zone_is_fixed(self) -> bool:
        """Whether every day of the session time zone has 24 hours."""

    def type_of(self, text: str, aliases: Sequence[str]) -> str | None:
        """Spark type of an expression over these streams; None if it does not resolve there."""

    def constant(self, text: str) -> Constant | None:
        """Value of an expression without columns; None if it has none that Python can hold."""

    def duration(self, duration: object, what: str) -> int:
        """Microseconds of an interval; raises QueryError INVALID_DURATION."""


def window_problems(streams: Sequence[Stream], what: str = "a time window") -> list[QueryError]:
    """What keeps event times of these streams from being compared, for the sake of ``what``."""
    problems = [
        QueryError(
            "NO_WATERMARK",
            f"{what} needs the event time of stream {stream.alias!r}, but no column is marked; "
            + (
                f'call .withWatermark("column", "delay") on it, or th.by_arrival({stream.alias})'
                if stream.is_streaming
                else "Spark drops the mark of withWatermark from batch DataFrames; "
                f'name the column: event_time={{"{stream.alias}": "column"}}'
            ),
        )
        for stream in streams
        if stream.event_time is None
    ]
    kinds = {stream.alias: stream.type_of(stream.event_time) for stream in streams if stream.event_time}
    for alias, kind in kinds.items():
        if kind not in ("timestamp", "timestamp_ntz"):
            problems.append(
                QueryError(
                    "EVENT_TIME_TYPE",
                    f"the event time of {alias!r} must be TIMESTAMP or TIMESTAMP_NTZ, not {kind.upper()}",
                )
            )
    if not problems and len(set(kinds.values())) > 1:
        listed = ", ".join(f"{alias} {kind.upper()}" for alias, kind in kinds.items())
        problems.append(
            QueryError(
                "EVENT_TIME_TYPES",
                f"event times must have one type, they are {listed}; cast one before its watermark",
            )
        )
    return problems
