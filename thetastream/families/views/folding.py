"""The folding of a grouped select list: views of the units, and a query that merges them.

    SELECT r.k, 2 * avg(s.x) FROM r, s GROUP BY r.k
    units:  r.k AS g0, sum(s.x) AS m0, count(s.x) AS m1    per group and epoch
    merged: SELECT g0, sum(m0) / nullif(sum(m1), 0) AS a0 FROM views GROUP BY g0
    answer: SELECT g0, 2 * a0 FROM merged

``fold_planner`` plans it. A statement is folded only if this certainly gives Spark's answer. Otherwise pairs
leave the units, and Spark aggregates them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from thetastream.aggregates import MeasureFunction
from thetastream.conditions.phrases import canonicalize
from thetastream.core.identity import EQUAL, Part
from thetastream.engine.views import Pane, ViewDelays
from thetastream.lowering.identity import Parts, Reading

PREFIX = "__view_"
"""Prefix of the names of the views' columns. It keeps them apart from names of streams' columns."""
VIEW_TIME = f"{PREFIX}time"


@dataclass(frozen=True)
class Computed:
    """A column that one stream computes before the join: SQL over the stream's alias."""

    alias: str
    text: str
    name: str

    def list_computed(self) -> "list[Computed]":
        """List the computed columns that it reads: itself."""
        return [self]


@dataclass(frozen=True)
class Calculated:
    """A column that units calculate for each match, from computed columns of both streams.

    ``thetastream.aggregates.operands`` has the operators.
    """

    operator: str
    operands: "tuple[Computed | Calculated, ...]"
    text: str
    """SQL over the aliases of both streams."""
    type: str
    """Spark's type of the column."""
    is_checked: bool
    """Whether a number beyond the type is an error."""

    def list_computed(self) -> list[Computed]:
        """List the computed columns that it reads."""
        return [column for operand in self.operands for column in operand.list_computed()]


@dataclass(frozen=True)
class ViewMeasure:
    """A measure of the views: a function over a column. Without a column it reads no values."""

    name: str
    function: MeasureFunction
    column: Computed | Calculated | None = None


@dataclass
class Folding:
    """The groups and measures that units fold, and the SQL texts over their views."""

    groups: list[Computed] = field(default_factory=list)
    """The computed columns of the groups. A group has the name of its column."""
    measures: list[ViewMeasure] = field(default_factory=list)
    where: Computed | Calculated | None = None
    """The condition of the matches that are folded, beside the condition of the join."""
    pane: Pane | None = None
    keys: list[tuple[str, str]] = field(default_factory=list)
    """GROUP BY over the views: (SQL, name)."""
    merges: dict[str, str] = field(default_factory=dict)
    """The name of each merge, by its SQL over the views."""
    items: str = ""
    """The select list over keys and merges. It contains no aggregates."""
    having: str | None = None
    rows: str | None = None
    """The column of the views with the number of matches that are not deleted, if matches may be deleted. A
    group without such matches leaves the answer."""
    lazy: ViewDelays | None = None
    """How long views wait for later epochs."""
    bounds: tuple[Computed | None, Computed | None] = (None, None)
    """For each input, the column that says how far the streams behind it move the watermark. It is None if
    views do not wait or if the input is a stream."""

    @property
    def computed(self) -> list[Computed]:
        """All columns to compute, without duplicates."""
        columns = [self.where, *(measure.column for measure in self.measures), *self.bounds]
        read = [column.list_computed() for column in columns if column is not None]
        return list(dict.fromkeys([*self.groups, *chain.from_iterable(read)]))

    def describe(self) -> str:
        """Describe the groups and measures for explain."""
        groups = ", ".join(column.text for column in self.groups) or "all matches"
        if self.pane is not None:
            groups += ", a pane of result_time"
        measures = ", ".join(
            f"{measure.function.name}({'*' if measure.column is None else measure.column.text})"
            for measure in self.measures
        )
        where = "" if self.where is None else f" where {self.where.text}"
        return f"{measures or 'nothing'} by {groups}{where}"


def identify_folding(folding: Folding, reading: Reading) -> Parts:
    """Return the parts of a query's identity that say how units fold their matches."""

    def describe(columns: Iterable[Computed | Calculated]) -> list[list[str]]:
        # The names of computed columns do not identify them.
        return [
            [
                column.alias if isinstance(column, Computed) else "",
                canonicalize(column.text, reading.is_case_sensitive),
            ]
            for column in columns
        ]

    measures = [
        [measure.name, repr(measure.function), describe([measure.column] if measure.column else [])]
        for measure in folding.measures
    ]
    meaning = [describe(folding.groups), measures, repr(folding.pane)]
    parts = {"the set of groups and aggregates": Part(json.dumps(meaning), folding.describe(), EQUAL)}
    if folding.where is not None:  # stored tuples keep what it reads
        where = json.dumps(describe([folding.where]))
        parts["the condition of folded matches"] = Part(where, folding.where.text, EQUAL)
    if folding.lazy is not None:  # without ``every``, waiting views would never be released
        parts["every"] = Part("every", "set")
    return parts
