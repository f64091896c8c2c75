"""The plan of a join, as users see it: it explains the join and builds its DataFrame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from thetastream.joins.joined import Joined, build_rows
from thetastream.joins.notebook import render_html
from thetastream.joins.sources import find_sources
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


class Plan:
    """A join that is checked and planned but not started.

    Planning reads only schemas. Each call of ``dataframe`` builds the DataFrame anew.
    """

    def __init__(self, join: Joined) -> None:
        self.join = join
        """The planned join. Its parts are internal, and may change with each version."""

    def explain(self) -> str:
        """Return every stage of the plan as text, and how ``th.write`` would write a stream of results."""
        return print_sections(self._explain())

    def dataframe(self) -> DataFrame:
        """Build the joined DataFrame: one struct column per alias, and ``result_time``.

        It is streaming if the inputs are.
        """
        results = build_rows(self.join)
        remember_built(results, Built(self.join))
        return results

    def explain_write(self, select: Sequence[str] | None = None) -> str:
        """Return one sentence that says how ``th.write`` writes the results, and why.

        Parameters
        ----------
        select : sequence of str, optional
            As in ``th.write``.
        """
        try:
            find_sources(self.join.facts.emitted, select)
        except NotStaged as why:
            return f"rows: Spark hands rows to the store, because {why}"
        return "units: each unit writes its results into the store itself"

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


def remember_built(frame: DataFrame, built: Built) -> None:
    """Remember how a DataFrame was built."""
    _BUILT[frame] = built


def find_built(frame: DataFrame) -> Built | None:
    """Find how a DataFrame was built; None if no plan and no statement has built it."""
    return _BUILT.get(frame)
