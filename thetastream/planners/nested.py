"""Plans joins in a row of which some are outer, semi, anti or nearest joins: ((a LEFT JOIN b) LEFT JOIN c).

Each join has two inputs: the rows of the joins before it, and one more stream. The order of the joins
matters, so they run in the order of the user. The left input has one struct column per alias, and the result
time T of its rows as event time. A stream is NULL in rows without a partner.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.core.how import How
from thetastream.core.windows import Within
from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.how import GivenHow, read_how, refuse_how
from thetastream.frontend.options import StatementOptions
from thetastream.frontend.request import JoinRequest, complete_request
from thetastream.frontend.streams import read_streams
from thetastream.frontend.window import is_counted, read_window
from thetastream.models.base import Model
from thetastream.plan.domains import quote
from thetastream.plan.query import RESULT_TIME, Stream
from thetastream.planners.nested_row import NestedRow
from thetastream.planners.plan import Plan
from thetastream.planners.tables import has_tables

_TIME = "result time"
"""The column of results with the time of each row. The name is not an identifier, so no alias can have it."""


@dataclass(frozen=True)
class NestedJoin:
    """One join of several in a row: the stream that it adds, its kind, and its condition."""

    alias: str
    how: GivenHow
    on: str

    @property
    def kind(self) -> How:
        """The kind of the join."""
        return read_how(self.how)


@dataclass(frozen=True, repr=False)
class NestedPlan(Plan):
    """Joins in a row that are checked and planned but not started."""

    streams: tuple[Stream, ...]
    joins: tuple[NestedJoin, ...]
    steps: tuple[Plan, ...]
    """The plan of each join. The left input of each but the first is the result of the one before it."""
    shown: tuple[str, ...]
    """The aliases whose tuples results have, in order."""

    hidden = (_TIME,)

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.streams

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(join.on for join in self.joins)

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for step in self.steps for model in step.models)

    @property
    def has_result_time(self) -> bool:
        return self.has_time_column

    @property
    def has_time_column(self) -> bool:
        last = self.steps[-1]
        return last.has_time_column and all(stream.event_time for stream in last.timed)

    @property
    def is_prompt(self) -> bool:
        return all(step.is_prompt for step in self.steps)

    @property
    def longest_window_us(self) -> int:
        return self.steps[-1].longest_window_us

    @property
    def folding_obstacle(self) -> str:
        return "outer joins in a row answer each tuple"

    def explain_join(self) -> str:
        """Return the nested joins, and every stage of each of them."""
        tree = self.streams[0].alias
        for join in self.joins:
            tree = f"({tree} {_spell(join.how)} {join.alias})"
        steps = (f"== Join {n} ==\n{step.explain_join()}" for n, step in enumerate(self.steps, 1))
        return "\n\n".join([f"== Joins in a row ==\n{tree}", *steps])

    def results(self) -> DataFrame:
        rows = self.steps[-1].results()
        left, right = self.steps[-1].aliases
        columns = [
            F.col(quote(right) if alias == right else f"{quote(left)}.{quote(alias)}").alias(alias)
            for alias in self.shown
        ]
        time = [self.steps[-1].time_column({}).alias(_TIME)] if self.has_time_column else []
        return rows.select(*columns, *time)

    def time_column(self, metadata: Mapping[str, int]) -> Column:
        return F.col(quote(_TIME)).alias(RESULT_TIME, metadata=dict(metadata))


def plan_nested(
    frames: Mapping[str, DataFrame],
    joins: Sequence[NestedJoin],
    within: Within,
    model: Model | str | None,
    options: Mapping[str, Any],
    columns: Mapping[str, Collection[str] | None],
    plan_join: Callable[[JoinRequest], Plan],
) -> NestedPlan:
    """Plan two joins in a row or more; ``plan_join`` plans each of them.

    ``frames`` has the streams in order, and ``columns`` the columns of each stream that results need.
    """
    # 1. Read the streams and their windows.
    problems: list[ThetastreamError] = []
    kind = next(join.kind for join in joins if not join.kind.is_inner)
    first, *others = frames.values()
    is_one_stream = first.isStreaming and not any(frame.isStreaming for frame in others)
    if is_one_stream and within is not None:
        what = f"WITHIN needs two streams, but only {next(iter(frames))} is one: tables have no window"
        problems.append(QueryError("MIXED_INPUTS", f"{what}; leave it out"))
    elif has_tables(frames) and not is_one_stream:
        *_, table = (alias for alias, frame in frames.items() if not frame.isStreaming)
        hint = f"put the other joins into a subquery: FROM (SELECT ...) AS q LEFT JOIN {table} ON ..."
        refuse_how(kind, f"a row of joins with the table {table!r}", hint, problems)
    if is_counted(within):
        refuse_how(kind, "a count window", "use a window of event time", problems)
    raise_problems(problems)
    read = read_streams(frames, within is not None, options.get("event_time"), columns)
    problems += read.problems
    spans_us = read_window(within, read.streams, read.catalyst, problems)
    raise_problems(problems)
    streams = tuple(stream.narrowed for stream in read.streams)
    # 2. One join after the other.
    row = NestedRow(streams[0], frames[streams[0].alias], None if spans_us is None else spans_us[0])
    steps: list[Plan] = []
    for n, (join, stream) in enumerate(zip(joins, streams[1:], strict=True), 1):
        if steps:
            row.take_result(steps[-1], {known.alias for known in streams})
        span_us = None if spans_us is None else spans_us[n]
        request = complete_request(
            {
                row.alias: frames[row.alias] if row.frame is None else row.frame,
                join.alias: frames[join.alias],
            },
            row.write_condition(join.on, stream, span_us),
            None if span_us is None else row.find_windows(join.alias, span_us),
            model,
            {**options, "event_time": row.list_event_times(stream)},
            {alias: known for alias, known in columns.items() if alias in (row.alias, join.alias)},
            row.relocate_ranking(join.how),
            StatementOptions,
        )
        steps.append(plan_join(request))
        row.add(stream, span_us, join.kind)
    return NestedPlan(streams, tuple(joins), tuple(steps), tuple(row.shown))


def _spell(how: GivenHow) -> str:
    if how == "inner":
        return "JOIN"
    return f"{how.upper()} JOIN" if isinstance(how, str) else f"JOIN {how!r}"
