"""The plan of a join, as users see it: it explains the join and builds its DataFrame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from thetastream.core.arguments import refuse_non_number
from thetastream.core.errors import QueryError
from thetastream.families.pairs.plan import TwoStreamPlan
from thetastream.joins.ask.shown import ALL, Shown, narrow
from thetastream.joins.handle import control
from thetastream.joins.joined import Joined, UnitsJoin, build_rows
from thetastream.joins.measured_statistics import statistics
from thetastream.joins.notebook import render_html
from thetastream.joins.sources import find_sources, refuse_other_select
from thetastream.lowering.report import Fact, Section, format_one_line, print_sections
from thetastream.models.base import Model
from thetastream.runtime.flow import NotStaged

_BUILT: "WeakKeyDictionary[DataFrame, Built]" = WeakKeyDictionary()
"""For each DataFrame that a plan or a statement has built, how it was built."""
LONGEST_CONDITION = 90
"""The number of characters of a condition that ``repr`` shows."""


@dataclass(frozen=True)
class Built:
    """How the rows of a DataFrame were built from a join."""

    join: Joined
    items: Sequence[str] | None = None
    """The items that a statement selects from the results of the join; None stands for all columns."""
    build: Callable[[Joined], DataFrame] = build_rows
    """Builds such rows from a join."""
    shown: Shown = field(default_factory=dict)
    """The columns that results show of each alias (``columns=``)."""


class Plan:
    """A join that is checked and planned but not started.

    Planning reads only schemas. Each call of ``dataframe`` builds the DataFrame anew.
    """

    def __init__(self, join: Joined, shown: Shown = ALL) -> None:
        self.join = join
        """The planned join. Its parts are internal, and may change with each version."""
        self._shown = shown

    def explain(self) -> str:
        """Return every stage of the plan as text, and how ``th.write`` would write a stream of results."""
        return print_sections(self._explain())

    def dataframe(self) -> DataFrame:
        """Build the joined DataFrame: one struct column per alias, and ``result_time``.

        It is streaming if the inputs are.
        """
        built = self._built
        results = built.build(self.join)
        remember_built(results, built)
        return results

    @property
    def _built(self) -> Built:
        """How the rows of ``dataframe`` are built."""
        if not self._shown:
            return Built(self.join)
        return Built(self.join, build=lambda join: narrow(build_rows(join), self._shown), shown=self._shown)

    def explain_write(self, select: Sequence[str] | None = None) -> str:
        """Return one sentence that says how ``th.write`` writes the results, and why.

        Parameters
        ----------
        select : sequence of str, optional
            As in ``th.write``.

        Raises
        ------
        QueryError
            BAD_VALUE if ``select`` is no list of texts.
        """
        if select is not None:
            refuse_other_select(select)
        try:
            find_sources(self.join.facts.emitted, select, self._shown)
        except NotStaged as why:
            return f"rows: Spark hands rows to the store, because {why}"
        return "units: each unit writes its results into the store itself"

    def rechoose(self, query: Any, factor: float = 1.5, join: str | None = None) -> Model | None:
        """Ask a running query for another model, if its statistics say that this one would cost less.

        The planner chooses a model before anything is known of the streams. This compares the models that it
        knows again, with as many units as run now, by what ``th.statistics`` measures. Call it from time to
        time. The change is that of ``th.control(query).scale(model=...)``: nothing restarts, and no result is
        lost or found twice.

        Parameters
        ----------
        query : pyspark.sql.streaming.StreamingQuery
            The query that runs this join, with ``max_units``.
        factor : float
            Another model is asked for only if the present one costs so many times as much by the estimates.
        join : str, optional
            The name of the join (``join`` in ``th.metrics``), if the query has several with ``max_units``.

        Returns
        -------
        Model or None
            The model that was asked for; None if the present one stays.

        Raises
        ------
        QueryError
            CANNOT_SCALE if the join is none of two streams that may have another model. BAD_REQUEST if
            ``factor`` is less than 1. NOTHING_MEASURED if no epoch has brought a tuple. And what
            ``th.control`` and ``scale`` raise, for example MAX_UNITS if two generations have no room.

        Examples
        --------
        >>> import thetastream as th
        >>> plan = th.plan(streams, on, within, max_units=12)  # doctest: +SKIP
        >>> query = plan.dataframe().writeStream.start()  # doctest: +SKIP
        >>> plan.rechoose(query)  # doctest: +SKIP
        """
        refuse_non_number(factor, "factor", 1, condition="BAD_REQUEST")
        planned = find_rechoosable(self.join)
        handle = control(query, join)
        measured = statistics(query, handle.name)
        model = planned.rechoose(handle.plan.target.model, measured, factor)
        if model is not None:
            handle.scale(model)
        return model

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases, in the order of the result's columns."""
        return tuple(stream.alias for stream in self.join.inputs)

    @property
    def event_times(self) -> dict[str, str]:
        """The event-time column of each alias whose stream has one."""
        return {stream.alias: stream.event_time for stream in self.join.inputs if stream.event_time}

    @property
    def models(self) -> tuple[Model, ...]:
        """The models of the join's steps. A join without steps has one."""
        return self.join.models

    @property
    def is_streaming(self) -> bool:
        """Whether the results are a stream."""
        return any(stream.is_streaming for stream in self.join.inputs)

    def __str__(self) -> str:
        """Return the explanation, so that ``print(plan)`` shows it."""
        return self.explain()

    def __repr__(self) -> str:
        """Describe the plan in two lines."""
        makers = dict.fromkeys([*self.join.facts.joins_beside, *map(repr, self.models)])
        return f"{self._headline}\nby {', '.join(makers)}; print(plan) explains it"

    def _repr_html_(self) -> str:
        """Return the description that notebooks show: pictures of the models, and the explanation as
        tables."""
        return render_html(self._headline, self.models, self._explain())

    def _explain(self) -> tuple[Section, ...]:
        """Return the stages of the join, and how a stream of results would be written."""
        stages = self.join.explain()
        if not self.is_streaming:
            return stages
        return (*stages, Section("Writing into a store", (Fact("", self.explain_write()),)))

    @property
    def _headline(self) -> str:
        on = format_one_line(self.join.facts.condition)
        shown = on if len(on) <= LONGEST_CONDITION else f"{on[: LONGEST_CONDITION - 3]}..."
        kind = "streams" if self.is_streaming else "batch"
        return f"Plan of {kind} {', '.join(self.aliases)} on {shown}"


def find_rechoosable(join: Joined) -> TwoStreamPlan:
    """Return the plan of a join that may have another model while it runs; raise CANNOT_SCALE for others."""
    planned = join.planned if isinstance(join, UnitsJoin) else None
    if not isinstance(planned, TwoStreamPlan) or planned.sends_messages:
        what = "only a join of two streams whose units send no messages may have another model"
        raise QueryError("CANNOT_SCALE", f"{what}; th.control(query).scale changes the sizes of others")
    return planned


def remember_built(frame: DataFrame, built: Built) -> None:
    """Remember how a DataFrame was built."""
    _BUILT[frame] = built


def find_built(frame: DataFrame | Plan) -> Built | None:
    """Find how a DataFrame was built, or how a plan builds it; None if no plan and no statement has."""
    return frame._built if isinstance(frame, Plan) else _BUILT.get(frame)
