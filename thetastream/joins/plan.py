"""The Plan protocol. ``th.plan`` returns a Plan for any number of streams and any model.

Plans of one query over streams. Most properties of the Plan protocol follow from the query.

The result time of a row: the latest event time of its tuples, marked as event time.

Spark's operators behind a join find the event time of their input by a mark in the metadata of a column. The
mark needs no operator of its own, and Spark leaves the column out of the plan if nothing reads it.

Finds out whether the units of a join can write the columns that a user selected, without Spark.

They can if each selected item is a column of a stream, a whole stream, or ``result_time``; items may be
renamed. Catalyst must evaluate any other item, so then rows leave the units.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import ClassVar, NoReturn
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.aggregates import NotFoldable
from thetastream.conditions.items import read_named_item
from thetastream.core.columns import MARK, BlockColumn, ColumnSource, LatestTime, TupleColumn
from thetastream.core.how import How
from thetastream.families.asked import PlannedInput
from thetastream.families.views.folding import FinalJoin, Folding
from thetastream.joins.ask.streams import LATE_RESULTS
from thetastream.joins.notebook import render_html
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import Carried, SidePlan
from thetastream.lowering.query import RESULT_TIME, Query, Stream, list_conditions
from thetastream.lowering.report import Fact, Section, format_one_line, print_sections
from thetastream.models.base import Model
from thetastream.runtime.flow import Emitted, NotStaged, Target

_BUILT: "WeakKeyDictionary[DataFrame, tuple[Plan, Sequence[str] | None]]" = WeakKeyDictionary()
"""The plan of each DataFrame that a plan has built, and the items that a statement selects from it."""
LONGEST_CONDITION = 90
"""The number of characters of a condition that ``repr`` shows."""


class Plan(ABC):
    """A join that is checked and planned but not started.

    Planning reads only schemas. Each call of ``dataframe`` builds the DataFrame anew.
    """

    @property
    @abstractmethod
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""

    def explain(self) -> str:
        """Return every stage of the plan as text, and how ``th.write`` would write a stream of results."""
        return print_sections(self._explain())

    def _explain(self) -> tuple[Section, ...]:
        """Return the stages of the join, and how a stream of results would be written."""
        if not self.is_streaming:
            return self.explain_join()
        return (*self.explain_join(), Section("Writing", (Fact("", self.explain_write()),)))

    @abstractmethod
    def explain_join(self) -> tuple[Section, ...]:
        """Return the stages of the join. A join that is made of joins has a section for each of them."""

    @property
    @abstractmethod
    def has_result_time(self) -> bool:
        """Whether the DataFrame has the column ``result_time``, the latest event time of each row."""

    @abstractmethod
    def results(self) -> DataFrame:
        """Build the results: one struct column per alias, and no result time."""

    def dataframe(self) -> DataFrame:
        """Build the joined DataFrame: one struct column per alias, and ``result_time``.

        It is streaming if the inputs are.
        """
        results = self.results()
        if self.has_result_time:
            time = self.time_column(find_time_metadata(results, self.timed, self.is_prompt))
            results = results.select("*", time)
        results = results.drop(*self.hidden)
        remember_built(results, self, None)
        return results

    hidden: ClassVar[tuple[str, ...]] = ()
    """The columns of ``results`` that only ``time_column`` reads."""

    def time_column(self, metadata: Mapping[str, int]) -> Column:
        """Return the column ``result_time`` over the results, with this metadata."""
        return build_result_time(read_times(self.timed), metadata)

    @property
    @abstractmethod
    def models(self) -> tuple[Model, ...]:
        """The models of the join's steps. A join without steps has one."""

    @property
    @abstractmethod
    def conditions(self) -> tuple[str, ...]:
        """The conditions as the user wrote them: SQL texts and names of Python predicates."""

    def __str__(self) -> str:
        """Return the explanation, so that ``print(plan)`` shows it."""
        return self.explain()

    def __repr__(self) -> str:
        """Describe the plan in two lines."""
        models = ", ".join(dict.fromkeys(repr(model) for model in self.models))
        return f"{self._headline}\nby {models}; print(plan) explains it"

    def _repr_html_(self) -> str:
        """Return the description that notebooks show: pictures of the models, and the explanation as
        tables."""
        return render_html(self._headline, self.models, self._explain())

    @property
    def _headline(self) -> str:
        on = format_one_line(self._between.join(self.conditions))
        shown = on if len(on) <= LONGEST_CONDITION else f"{on[: LONGEST_CONDITION - 3]}..."
        kind = "streams" if any(stream.is_streaming for stream in self.inputs) else "batch"
        return f"{type(self).__name__} of {kind} {', '.join(self.aliases)} on {shown}"

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases, in the order of the result's columns."""
        return tuple(stream.alias for stream in self.inputs)

    @property
    def event_times(self) -> dict[str, str]:
        """The event-time column of each alias whose stream has one."""
        return {stream.alias: stream.event_time for stream in self.inputs if stream.event_time}

    @property
    def has_time_column(self) -> bool:
        """Whether ``time_column`` has a value, if all streams have an event time."""
        return True

    _between: ClassVar[str] = " AND "
    """The separator of conditions in a description."""

    @property
    def timed(self) -> tuple[Stream, ...]:
        """The inputs whose latest event time is the result time: all, unless some are tables."""
        return self.inputs

    @property
    def is_streaming(self) -> bool:
        """Whether the results are a stream."""
        return any(stream.is_streaming for stream in self.inputs)

    # Results that units write

    @property
    def staging_obstacle(self) -> str | None:
        """Why units cannot write results into a store themselves. It is None if they can."""
        return "Spark computes results behind the units"

    @property
    def emitted(self) -> Emitted:
        """What the units emit, if there is no ``staging_obstacle``."""
        raise NotStaged(str(self.staging_obstacle))

    def stage_results(self, target: Target, sources: tuple[ColumnSource, ...]) -> DataFrame:
        """Build the stream of what units have staged in a store, if there is no ``staging_obstacle``."""
        raise NotStaged(str(self.staging_obstacle))

    def find_sources(self, select: Sequence[str] | None) -> tuple[ColumnSource, ...]:
        """Find how units compute the columns that a user selected.

        Raises
        ------
        NotStaged
            If Spark must compute them. The text says why.
        """
        obstacle = self.staging_obstacle
        if obstacle is not None:
            raise NotStaged(obstacle)
        return find_sources(self.emitted, select)

    def explain_write(self, select: Sequence[str] | None = None) -> str:
        """Return one sentence that says how ``th.write`` writes the results, and why.

        Parameters
        ----------
        select : sequence of str, optional
            As in ``th.write``.
        """
        try:
            self.find_sources(select)
        except NotStaged as why:
            return f"rows: Spark hands rows to the store, because {why}"
        return "units: each unit writes its results into the store itself"

    # Properties that decide what may follow the join

    @property
    def longest_window_us(self) -> int:
        """The longest time window of the query in microseconds. It is 0 if the query sets none."""
        return 0

    @property
    def is_prompt(self) -> bool:
        """Whether each result leaves before the watermark can pass it. Only then is its event time usable."""
        return True

    @property
    def folding_obstacle(self) -> str | None:
        """Why units cannot fold their matches into views. It is None if ``fold`` is possible."""
        return "no units find the matches"

    @property
    def final_join(self) -> FinalJoin:
        """The join whose units fold the results, if there is no ``folding_obstacle``."""
        raise NotFoldable(str(self.folding_obstacle))

    @property
    def final_inputs(self) -> tuple[PlannedInput, PlannedInput]:
        """The inputs of ``final_join``."""
        raise NotFoldable(str(self.folding_obstacle))

    def fold(self, folding: Folding, streams: Mapping[str, PlannedInput]) -> "Plan":
        """Return the same join with views as its results: one row per unit, epoch and group.

        ``streams`` are the inputs of ``final_join`` by alias. They have the columns that its condition reads
        and the columns that ``folding.computed`` names.

        Raises
        ------
        NotFoldable
            If there is a ``folding_obstacle``.
        """
        raise NotFoldable(str(self.folding_obstacle))


def remember_built(frame: DataFrame, plan: Plan, items: Sequence[str] | None) -> None:
    """Remember that a DataFrame has these items over the results of a plan; None stands for all columns."""
    _BUILT[frame] = plan, items


def find_built(frame: DataFrame) -> tuple[Plan, Sequence[str] | None] | None:
    """Find the plan that has built a DataFrame, and the items; None for any other DataFrame."""
    return _BUILT.get(frame)


class QueryPlan(Plan):
    """The plan of a query that joins streams, by any planner."""

    query: Query

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.query.streams

    @property
    def conditions(self) -> tuple[str, ...]:
        return list_conditions(self.query.on, self.query.predicates)

    @property
    def has_result_time(self) -> bool:
        return self.query.has_result_time

    @property
    def longest_window_us(self) -> int:
        return max(self.query.within_us or (0,))


def find_time_metadata(results: DataFrame, streams: Sequence[Stream], is_prompt: bool) -> dict[str, int]:
    """Return the metadata of the result time.

    Parameters
    ----------
    results : DataFrame
        Results with one struct column per alias.
    streams : sequence of Stream
        The streams of the join, all with an event time.
    is_prompt : bool
        Whether each result leaves before the watermark can pass it. If so, the column of a stream is marked
        as event time, with the longest delay of the streams' watermarks. Otherwise Spark would drop results,
        and a note in the column's metadata lets a join behind this one say so.
    """
    if not results.isStreaming:
        return {}
    delays_ms = [-(-(stream.watermark_delay_us or 0) // 1000) for stream in streams]
    return {MARK: max(delays_ms)} if is_prompt else {LATE_RESULTS: 1}


def read_times(streams: Sequence[Stream]) -> list[Column]:
    """Return the event time of each stream, as columns over results."""
    return [F.col(f"{quote(stream.alias)}.{quote(str(stream.event_time))}") for stream in streams]


def build_result_time(times: Sequence[Column], metadata: Mapping[str, int]) -> Column:
    """Return the latest of these event times, with the name ``result_time`` and this metadata.

    It is NULL if one of them is NULL. A NULL is never late.
    """
    return _name(_find_latest(times), metadata)


def build_answer_time(
    how: How, streams: Sequence[Stream], waits_us: Sequence[int | None], metadata: Mapping[str, int]
) -> Column:
    """Return the result time of a join of two streams that may answer tuples without partners.

    A pair has its latest event time. A tuple without partners has t + W: its event time plus the time for
    which it waits for partners. So the watermark cannot have passed its result time. If all partners are
    earlier than the tuple, W is negative, and the result time is the event time of the tuple, because the
    watermark may have passed t + W before the tuple arrives. The time is NULL if nothing bounds W.
    """
    times = read_times(streams)
    if how.is_inner:
        return build_result_time(times, metadata)
    alone = [
        _add(time, str(stream.type_of(str(stream.event_time))), None if wait is None else max(wait, 0))
        for time, stream, wait in zip(times, streams, waits_us, strict=True)
    ]
    if how.is_timed_by_decision:
        return _name(alone[how.preserved[0]], metadata)
    time = _find_latest(times)
    for side in how.padded:
        time = F.when(F.col(quote(streams[side].alias)).isNull(), alone[side.other]).otherwise(time)
    return _name(time, metadata)


def _find_latest(times: Sequence[Column]) -> Column:
    is_known = reduce(and_, (time.isNotNull() for time in times))
    return F.when(is_known, F.greatest(*times) if len(times) > 1 else times[0])


def _add(time: Column, type_: str, span_us: int | None) -> Column:
    """Add elapsed time to an event time. Spark itself adds days to a TIMESTAMP in local time."""
    if span_us is None:
        return F.lit(None).cast(type_)
    if type_ == "timestamp":
        return F.timestamp_micros(F.unix_micros(time) + F.lit(span_us))
    return time + F.expr(f"INTERVAL '{span_us // 1_000_000}.{span_us % 1_000_000:06}' SECOND")


def _name(time: Column, metadata: Mapping[str, int]) -> Column:
    return time.alias(RESULT_TIME, metadata=dict(metadata))


def find_sources(emitted: Emitted, select: Sequence[str] | None) -> tuple[ColumnSource, ...]:
    """Find how each selected column follows from the blocks of the units.

    Parameters
    ----------
    emitted : Emitted
    select : sequence of str, optional
        The items that the user selected. None stands for all columns of the join.

    Raises
    ------
    NotStaged
        If Spark must compute one of them.
    """
    if select is None:
        whole: list[ColumnSource] = [_find_tuple(side) for side in emitted.sides]
        return (*whole, _find_time(emitted)) if emitted.times else tuple(whole)
    return tuple(source for item in select for source in _read_item(emitted, item))


def _read_item(emitted: Emitted, item: str) -> list[ColumnSource]:
    found = read_named_item(item)
    if found is None:
        _refuse(f"{item!r} is no name of a column, so Spark computes it")
    head, field, alias = found
    sides = [side for side in emitted.sides if side.alias.casefold() == head.casefold()]
    if not sides:
        if head.casefold() == RESULT_TIME and field is None and emitted.times:
            return [_find_time(emitted)]
        _refuse(f"{item!r} is no column of a stream by its alias")
    if field is None:
        return [_find_tuple(sides[0])]
    if field == "*" and alias is None:
        return list(_find_tuple(sides[0]).fields)
    columns = [one for one in sides[0].carried if one.field.casefold() == field.casefold()]
    if len(columns) != 1:
        _refuse(f"{item!r} is no column of a stream")
    return [_find_column(columns[0])]


def _find_tuple(side: SidePlan) -> TupleColumn:
    return TupleColumn(tuple(_find_column(carried) for carried in side.carried))


def _find_column(carried: Carried) -> BlockColumn:
    is_kept = carried.from_block == quote(carried.block_column)
    if not (is_kept or carried.type == "timestamp"):
        _refuse(f"Spark restores {carried.field!r}, which has type {carried.type}")
    return BlockColumn(carried.block_column)


def _find_time(emitted: Emitted) -> LatestTime:
    columns = [
        next(carried for carried in side.carried if carried.field == emitted.times[side.alias])
        for side in emitted.sides
    ]
    if len({column.type for column in columns}) > 1:
        _refuse("event times of two types are compared by Spark")
    return LatestTime(tuple(_find_column(column) for column in columns))


def _refuse(why: str) -> NoReturn:
    raise NotStaged(why)
