"""The Plan protocol. ``th.plan`` returns a Plan for any number of streams and any model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame

from thetastream.aggregate import NotFoldable
from thetastream.core.result_columns import ColumnSource
from thetastream.models.base import Model
from thetastream.plan.explain import format_one_line
from thetastream.plan.explain_html import render_html
from thetastream.plan.folding import FinalJoin, Folding
from thetastream.plan.query import Stream
from thetastream.planners.planned_input import PlannedInput
from thetastream.planners.result_time import build_result_time, find_time_metadata, read_times
from thetastream.planners.staging import Emitted, NotStaged, find_sources
from thetastream.spark.staging import Target

_BUILT: "WeakKeyDictionary[DataFrame, Plan]" = WeakKeyDictionary()
"""The plan of each DataFrame that a plan has built."""
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
        stages = self.explain_join()
        if not self.is_streaming:
            return stages
        return stages.rstrip() + f"\n\n== Writing ==\n{self.explain_write()}\n"

    @abstractmethod
    def explain_join(self) -> str:
        """Return the stages of the join as text."""

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
        _BUILT[results] = self
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
        return render_html(self._headline, self.models, self.explain())

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

    def fold(self, folding: Folding, streams: Mapping[str, DataFrame]) -> "Plan":
        """Return the same join with views as its results: one row per unit, epoch and group.

        ``streams`` are the inputs of ``final_join`` by alias. They have the columns that its condition reads
        and the columns that ``folding.computed`` names.

        Raises
        ------
        NotFoldable
            If there is a ``folding_obstacle``.
        """
        raise NotFoldable(str(self.folding_obstacle))


def find_plan(frame: DataFrame) -> Plan | None:
    """Find the plan that has built a DataFrame; None for any other DataFrame."""
    return _BUILT.get(frame)
