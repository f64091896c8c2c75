"""``count`` counts matches, or values that are not NULL. The counts of views are added up."""

from collections.abc import Sequence

from thetastream.aggregate.base import Accumulator, Aggregate, AggregateCall, MeasureFunction


class _Matches(Accumulator):
    """It counts rows, so Arrow needs no column."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "count_all", "sum")
        self.of_matches = (([], "count_all"),)


class MatchCount(MeasureFunction):
    """The number of matches."""

    name = "count"

    def types(self, type_: str) -> Sequence[str | None]:
        return ("bigint",)

    def build_accumulator(self, name: str) -> Accumulator:
        return _Matches(name)


class ValueCount(MatchCount):
    """The number of values that are not NULL."""

    def build_accumulator(self, name: str) -> Accumulator:
        return Accumulator(name, "count", "sum")


class Count(Aggregate):
    """``count(*)``, ``count(x)``."""

    names = ("COUNT",)
    takes_star = True

    def merge(self, call: AggregateCall) -> str:
        if call.is_every_match:
            (n,) = call.measure(MatchCount())
        else:
            (n,) = call.measure(ValueCount(), call.presence)
        return f"coalesce(sum({n}), 0)"
