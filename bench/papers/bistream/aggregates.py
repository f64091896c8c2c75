"""The queries of BiStream's appendix B: Q5, Q7 and Band, whose results units fold into groups.

Q5     sum(price * (1 - discount)) by the nation of the supplier
Q7     the same by the nation of the supplier and the year; the nation of the customer is not in this join
Band   count, min and max of the right quantity by the nation of the left supplier

A unit folds its results into a local view. The merger merges the views of all units into the global view.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from bench.core.internals import (
    Fold,
    FoldedSpec,
    Greatest,
    Least,
    LocalRun,
    LocalView,
    MatchCount,
    Measure,
    Model,
    Side,
    SideColumn,
    Total,
    TwoStreamSpec,
)
from bench.core.query import Query
from bench.papers import inputs

REVENUE = Measure(Total(), SideColumn(Side.RIGHT, "revenue"))
QUANTITY = SideColumn(Side.RIGHT, "quantity")


@dataclass(frozen=True)
class Aggregated:
    """A join, the groups and measures of its views, and SQL for a whole number that all of them give."""

    query: Query
    fold: Fold
    total: str
    """SQL over the results of the join: the sum of one measure over all groups, as a whole number."""

    def run(self, model: Model) -> LocalRun:
        """Open the units, which fold their results."""
        return LocalRun(FoldedSpec(TwoStreamSpec(self.query.unit_spec(), model), self.fold))

    def plain_run(self, model: Model) -> LocalRun:
        """Open units whose results leave them as pairs."""
        return LocalRun(TwoStreamSpec(self.query.unit_spec(), model))

    def batches(self, found: list[list[pa.Array]]) -> Iterator[pa.RecordBatch]:
        """Name the columns of views."""
        keys = [f"g{n}" for n in range(len(self.fold.groups))]
        for columns in found:
            names = [*keys, *(f"m{n}" for n in range(len(self.fold.measures)))]
            yield pa.RecordBatch.from_arrays(columns, names)

    @cached_property
    def expected(self) -> int:
        """The whole number, by DuckDB."""
        return self.query.count(self.total)

    def count(self, view: LocalView) -> int:
        """Compute the whole number from the first measure of the global view."""
        return round(sum(float(pc.sum(rows.column("m0")).as_py()) for rows in view.rows()))


class Merger:
    """Merges the views of all units into the global view, and counts what it receives."""

    def __init__(self, asked: Aggregated) -> None:
        self._asked = asked
        self.view = LocalView(asked.fold)
        self.rows = self.nbytes = 0

    def merge(self, found: list[list[pa.Array]]) -> None:
        for batch in self._asked.batches(found):
            self.rows += batch.num_rows
            self.nbytes += batch.nbytes
            self.view.merge(batch)


def make_queries(scale: float) -> dict[str, Aggregated]:
    """Make the three queries, with the columns that they read."""
    q5, q7, found = inputs.q5(scale), inputs.q7(scale), inputs.lineitem_band(scale, of_nation=True)
    nation = (Side.LEFT, "nation")
    by_nation, by_year = Fold((nation,), (REVENUE,)), Fold((nation, (Side.RIGHT, "year")), (REVENUE,))
    extremes = (Measure(MatchCount()), Measure(Least(), QUANTITY), Measure(Greatest(), QUANTITY))
    revenue = "round(coalesce(sum(revenue), 0))"
    return {
        "Q5": Aggregated(project(q5, ("suppkey", "nation"), ("suppkey",)), by_nation, revenue),
        "Q7": Aggregated(project(q7, ("suppkey", "nation"), ("suppkey", "year")), by_year, revenue),
        "Band": Aggregated(found, Fold((nation,), extremes), "count(*)"),
    }


def project(query: Query, left: Iterable[str], right: Iterable[str]) -> Query:
    """Keep the columns that an aggregate over revenue reads, which ends with the event time."""
    mine, other = query.tables
    price, discount = (other.column(name) for name in ("price", "discount"))
    other = other.append_column("revenue", pc.multiply(price, pc.subtract(1.0, discount)))
    other = other.append_column("year", pc.year(other.column("day")))
    return replace(
        query,
        tables=(mine.select([*left, "ts"]), other.select([*right, "revenue", "ts"])),
    )
