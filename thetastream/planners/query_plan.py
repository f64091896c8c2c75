"""Plans of one query over streams. Most properties of the Plan protocol follow from the query."""

from thetastream.plan.query import Query, Stream, list_conditions
from thetastream.planners.plan import Plan


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
