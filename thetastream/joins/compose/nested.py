"""Joins in a row of which some are outer, semi, anti or nearest joins: ((a LEFT JOIN b) LEFT JOIN c).

Each join has two inputs: the rows of the joins before it, and one more stream. The order of the joins
matters, so they run in the order of the user. The left input has one struct column per alias, and the result
time T of its rows as event time. A stream is NULL in rows without a partner. A new tuple c must be inside the
window of all tuples t_i of the row:

    c.ts <= t_i + W_i   and   t_i - W_c <= c.ts   for each t_i that is not NULL

T may be later than all t_i, because a row without partners has the instant that decides it. Let S be the
longest time by which T can be later than the latest tuple of its row. Then the join of c keeps rows for
max(W_i), and tuples c for W_c + S. A row or a tuple c without a partner leaves the join when it is decided.
Therefore S grows by max(W_i) if the join answers each row, and by W_c if it answers each tuple c. The
condition compares the event times themselves.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.conditions import parse
from thetastream.conditions.names import qualify, relocate
from thetastream.conditions.statement import HowOption
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.core.spans import Within
from thetastream.families.base import Facts
from thetastream.families.options import GroupOptions
from thetastream.families.request import JoinRequest, find_how_problems
from thetastream.families.windows import is_counted
from thetastream.joins.ask.request import read_how, read_request
from thetastream.joins.ask.streams import list_tables, read_streams
from thetastream.joins.ask.window import read_window
from thetastream.joins.joined import Joined, build_rows
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME, Stream
from thetastream.lowering.report import Fact, Section
from thetastream.models.base import Model
from thetastream.spark.session.configure import choose_name_key

_TIME = "result time"
"""The column of results with the time of each row. The name is not an identifier, so no alias can have it."""


@dataclass(frozen=True)
class NestedJoin:
    """One join of several in a row: the stream that it adds, its kind, and its condition."""

    alias: str
    how: HowOption
    on: str

    @property
    def kind(self) -> How:
        """The kind of the join."""
        return read_how(self.how)


@dataclass(frozen=True)
class NestedJoins:
    """Joins in a row that are checked and planned but not started."""

    streams: tuple[Stream, ...]
    joins: tuple[NestedJoin, ...]
    steps: tuple[Joined, ...]
    """The plan of each join. The left input of each but the first is the result of the one before it."""
    shown: tuple[str, ...]
    """The aliases whose tuples results have, in order."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.streams

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for step in self.steps for model in step.models)

    @property
    def facts(self) -> Facts:
        last = self.steps[-1].facts
        has_time = last.result_time is not None
        return Facts(
            condition=" AND ".join(join.on for join in self.joins),
            result_time=quote(_TIME) if has_time else None,
            shows_result_time=has_time,
            has_deletes=last.has_deletes,
            is_prompt=all(step.facts.is_prompt for step in self.steps),
            longest_window_us=last.longest_window_us,
            final="outer joins in a row answer each tuple",
            hidden=(_TIME,),
        )

    def explain(self) -> tuple[Section, ...]:
        tree = self.streams[0].alias
        for join in self.joins:
            tree = f"({tree} {_spell(join.how)} {join.alias})"
        steps = (Section(f"Join {n}", sections=step.explain()) for n, step in enumerate(self.steps, 1))
        return (Section("Joins in a row", (Fact("", tree),)), *steps)

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias, and the time of each row."""
        last = self.steps[-1]
        left, right = (stream.alias for stream in last.inputs)
        columns = [
            F.col(quote(right) if alias == right else f"{quote(left)}.{quote(alias)}").alias(alias)
            for alias in self.shown
        ]
        time = last.facts.result_time
        columns += [] if time is None else [F.expr(time).alias(_TIME)]
        return last.results().select(*columns, *([CHANGE_TYPE] if last.facts.has_deletes else []))


def plan_nested(
    frames: Mapping[str, DataFrame],
    joins: Sequence[NestedJoin],
    within: Within,
    model: Model | str | None,
    options: Mapping[str, Any],
    *,
    columns: Mapping[str, Collection[str] | None],
    plan_join: Callable[[JoinRequest, Mapping[str, DataFrame]], Joined],
) -> NestedJoins:
    """Plan two joins in a row or more; ``plan_join`` plans each of them.

    ``frames`` has the streams in order, and ``columns`` the columns of each stream that results need.
    """
    # 1. Read the streams and their windows.
    problems: list[ThetastreamError] = []
    kind = next(join.kind for join in joins if not join.kind.is_inner)
    tables = list_tables(frames)
    is_one_stream = tables == list(frames)[1:]
    if is_one_stream and within is not None:
        what = f"WITHIN needs two streams, but only {next(iter(frames))} is one: tables have no window"
        problems.append(QueryError("MIXED_INPUTS", f"{what}; leave it out"))
    elif 0 < len(tables) < len(frames) and not is_one_stream:
        table = tables[-1]
        hint = f"put the other joins into a subquery: FROM (SELECT ...) AS q LEFT JOIN {table} ON ..."
        problems += find_how_problems(kind, f"a row of joins with the table {table!r}", hint)
    if is_counted(within):
        problems += find_how_problems(kind, "a count window", "use a window of event time")
    raise_problems(problems)
    read = read_streams(frames, tables, within is not None, options.get("event_time"), columns)
    spans_us, found = read_window(within, read.streams, read.catalyst)
    raise_problems([*read.problems, *found])
    streams = tuple(stream.narrowed for stream in read.streams)
    # 2. One join after the other.
    row = NestedRow(streams[0], frames[streams[0].alias], None if spans_us is None else spans_us[0])
    steps: list[Joined] = []
    for n, (join, stream) in enumerate(zip(joins, streams[1:], strict=True), 1):
        if steps:
            row.take_result(steps[-1], {known.alias for known in streams})
        span_us = None if spans_us is None else spans_us[n]
        inputs = {row.alias: row.frame, join.alias: frames[join.alias]}
        request = read_request(
            inputs,
            row.write_condition(join.on, stream, span_us),
            None if span_us is None else row.find_windows(join.alias, span_us),
            model,
            {**options, "event_time": row.list_event_times(stream)},
            columns={alias: known for alias, known in columns.items() if alias in (row.alias, join.alias)},
            how=row.relocate_ranking(join.how),
            door=GroupOptions,
        )
        steps.append(plan_join(request, inputs))
        row.add(stream, span_us, join.kind)
    return NestedJoins(streams, tuple(joins), tuple(steps), tuple(row.shown))


def _spell(how: HowOption) -> str:
    if how == "inner":
        return "JOIN"
    return f"{how.upper()} JOIN" if isinstance(how, str) else f"JOIN {how!r}"


class NestedRow:
    """The rows of the joins so far."""

    def __init__(self, first: Stream, frame: DataFrame, span_us: int | None) -> None:
        self.alias = first.alias
        self.frame = frame
        """The rows. Before the first join, they are the tuples of the first stream."""
        self._is_joined = False
        self._streams = [first]
        self._spans_us = [span_us or 0]
        self._slack_us = 0
        """The longest time by which the event time of a row is later than that of its latest tuple."""

    @property
    def shown(self) -> list[str]:
        """The aliases whose tuples the rows have."""
        return [stream.alias for stream in self._streams]

    def take_result(self, step: Joined, taken: Collection[str]) -> None:
        """Take the result of a join as the rows: one struct column per alias, and the result time."""
        frame = build_rows(step)
        if self._is_joined:
            # The left input of the join was a row, whose structs are inside one struct.
            inside = [alias for alias in self.shown if alias not in frame.columns]
            columns = [F.col(f"{quote(self.alias)}.{quote(alias)}").alias(alias) for alias in inside]
            kept = [name for name in frame.columns if name != self.alias]
            frame = frame.select(*columns, *map(F.col, map(quote, kept)))
        self.frame = frame
        self._is_joined = True
        self.alias = "_".join(self.shown)
        while self.alias.casefold() in {alias.casefold() for alias in taken}:
            self.alias += "_"

    def add(self, stream: Stream, span_us: int | None, how: How) -> None:
        """Add the stream of the next join to the rows."""
        waits_us = {Side.LEFT: max(self._spans_us), Side.RIGHT: span_us or 0}
        self._slack_us += max((waits_us[side] for side in how.preserved), default=0)
        if how.has_pairs:
            self._streams.append(stream)
            self._spans_us.append(span_us or 0)

    def find_windows(self, alias: str, span_us: int) -> dict[str, timedelta]:
        """Return how long rows, and tuples of the next stream, stay joinable."""
        longest = max(self._spans_us)
        return {
            self.alias: timedelta(microseconds=longest),
            alias: timedelta(microseconds=span_us + self._slack_us),
        }

    def list_event_times(self, stream: Stream) -> dict[str, str]:
        """Return the event times of both inputs of the next join, which batch DataFrames do not know."""
        if stream.is_streaming:
            return {}
        left = RESULT_TIME if self._is_joined else self._streams[0].event_time
        if left not in self.frame.columns or stream.event_time is None:
            return {}
        return {self.alias: str(left), stream.alias: stream.event_time}

    def write_condition(self, on: str, stream: Stream, span_us: int | None) -> list[str]:
        """Write the condition of the next join over the rows, with the window of each of their tuples."""
        if not self._is_joined:
            return [on]
        names = {known.alias: [name for name, _ in known.types] for known in (*self._streams, stream)}
        name_key = choose_name_key(self.frame.sparkSession)
        written = [self._relocate(qualify(parse(on), names, name_key).text)]
        if span_us is not None:
            time = f"{quote(stream.alias)}.{quote(str(stream.event_time))}"
            latest = [self._write_time(known, 0) for known in self._streams]
            ends = [
                self._write_time(known, span)
                for known, span in zip(self._streams, self._spans_us, strict=True)
            ]
            written.append(f"{time} >= {_shift(_choose('greatest', latest), -span_us, stream)}")
            written.append(f"{time} <= {_choose('least', ends)}")
        return written

    def relocate_ranking(self, how: HowOption) -> HowOption:
        """Write the ranking of a nearest join over the rows."""
        if not self._is_joined or isinstance(how, str):
            return how
        return replace(how, by=self._relocate(how.by))

    def _relocate(self, text: str) -> str:
        def write(alias: str, column: str) -> str:
            return f"{quote(self.alias)}.{quote(alias)}.{quote(column)}"

        return relocate(parse(text), {alias.casefold(): alias for alias in self.shown}, write)

    def _write_time(self, stream: Stream, shift_us: int) -> str:
        column = ".".join(map(quote, (self.alias, stream.alias, str(stream.event_time))))
        return _shift(column, shift_us, stream)


def _choose(function: str, times: Sequence[str]) -> str:
    """Write the greatest or the least of times. NULL is left out."""
    return times[0] if len(times) == 1 else f"{function}({', '.join(times)})"


def _shift(time: str, span_us: int, stream: Stream) -> str:
    """Add elapsed time to an event time. Spark itself adds days to a TIMESTAMP in local time."""
    if not span_us:
        return time
    if stream.type_of(str(stream.event_time)) == "timestamp":
        return f"timestamp_micros(unix_micros({time}) + ({span_us}))"
    return f"{time} + INTERVAL '{span_us} microseconds'"
