"""What the user asked, read and checked: the request that a family takes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from thetastream.conditions import Phrase, Predicate
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.core.how import INNER, How
from thetastream.core.spans import Within
from thetastream.engine.order import Order
from thetastream.families.options import MOST_UNITS, GivenOptions, Options
from thetastream.lowering.query import Query, Resolver, Stream
from thetastream.lowering.statistics import Statistics
from thetastream.models.base import Model
from thetastream.runtime.context import RunContext


class PlannedInput(Protocol):
    """One input of a planned join: a stream of the user, or the result of a join."""

    @property
    def schema(self) -> StructType:
        """The schema of the input."""

    @property
    def watermark_bound(self) -> str | None:
        """The column that says how far the streams behind the input move the watermark. It is None if the
        event times of the input say so themselves."""

    def dataframe(self) -> DataFrame:
        """Build the input. It is called when the join is built."""

    def list_dropping(self) -> list[str]:
        """List the operators of the user before the join that drop late rows."""


class SessionChecks(Protocol):
    """The questions that planning asks about the Spark session."""

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        """Find the settings of the session that do not allow a streaming join by ``n_units`` units."""

    def choose_mailbox_folder(self, asked: str | Path | None, problems: list[ThetastreamError]) -> str:
        """Choose the folder for mailboxes, and add an error if there is none that all units reach."""

    def warn_of_state(self, nbytes: float) -> None:
        """Warn if the machine of a local session has too little memory for this state."""


Conjunct: TypeAlias = str | Predicate | Column
"""A SQL text, a Python predicate, or a Column of Spark."""
On: TypeAlias = Conjunct | Sequence[Conjunct]


@dataclass(frozen=True)
class JoinRequest:
    """A join as the user asked for it. Only its streams are checked."""

    streams: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    given: GivenOptions
    how: How = INNER
    columns: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """For each alias, the columns that results need, in lower case. Without an entry, all columns are
    needed."""
    bounds_watermark: bool = False
    """Whether the units of the last of several joins must know how far the watermark rises."""
    problems: tuple[ThetastreamError, ...] = ()
    """The errors of options that could not be read."""

    @property
    def options(self) -> Options:
        """The values of the options that the user or the session gave."""
        return self.given.values

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the streams."""
        return next(iter(self.streams.values())).sparkSession


@dataclass(frozen=True)
class CheckedRequest:
    """A request that is read. Planners add to ``problems`` what they refuse, and then call ``query``."""

    request: JoinRequest
    catalyst: Resolver
    schemas: Mapping[str, StructType]
    streams: tuple[Stream, ...]
    """The streams with all their columns, so that errors can name them."""
    on: tuple[str, ...]
    conjuncts: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...]
    within_us: tuple[int, ...] | None
    """The time window of each stream. It is None if there are no windows or the windows count tuples."""
    model: Model | None
    """The model, fitted to the streams. It is None if the planner chooses one."""
    has_open_size: bool
    """Whether the user named the model and left its number of units open."""
    statistics: Statistics | None
    archive_period_us: int | None
    has_result_time: bool
    """Whether the user gets the result time of each row."""
    run: RunContext
    """The settings with which units run, without the folder of mailboxes and ``max_units``."""
    partitions: int
    """Number of shuffle partitions of the session."""
    problems: list[ThetastreamError]
    inputs: tuple[PlannedInput, ...]
    """The streams as inputs of the join."""
    session: SessionChecks

    @property
    def options(self) -> Options:
        """The options that the user or the session gave."""
        return self.request.options

    def without_defaults(self, names: Collection[str]) -> "CheckedRequest":
        """Return the request without defaults of the session that its family of joins does not honour."""
        given = self.request.given.without(names)
        return replace(self, request=replace(self.request, given=given))

    @property
    def is_streaming(self) -> bool:
        """Whether the inputs are streams. If not, they are batch DataFrames."""
        return self.streams[0].is_streaming

    def query(self, counts: tuple[int, ...] | None = None) -> Query:
        """Return the query. Its streams have only the columns that are sent to the units.

        Raises
        ------
        QueryError
            If there are problems. It lists all of them.
        """
        raise_problems(self.problems)
        streams = tuple(stream.narrowed for stream in self.streams)
        return Query(
            streams,
            self.on,
            self.conjuncts,
            self.predicates,
            self.within_us,
            counts,
            self.has_result_time,
            self.request.how,
        )


def refuse_result_order(checked: CheckedRequest) -> None:
    """Add an error for each part of a request that only a join of two streams by units supports.

    These are an order of results, and answers for each tuple.
    """
    hint = "join two streams at a time, in several joins"
    refuse_how(checked.request.how, "a join of more than two streams, or hop by hop,", hint, checked.problems)
    if "order" in checked.options:
        what = "results of three or more streams have no single order of arrival; leave order out"
        checked.problems.append(QueryError("ORDER", what))
    elif checked.options.get("punctuations"):
        what = "punctuations need an order, and results of three or more streams have none; leave them out"
        checked.problems.append(QueryError("ORDER", what))


@dataclass(frozen=True)
class JoinSettings:
    """Settings of a join of two streams."""

    model: Model | None = None
    """The model. None means the cheapest model that can run the query."""
    choose: Callable[[int], Model] | None = None
    """How the model follows from the number of shuffle partitions; None if the user set the model
    completely."""
    index: str | None = None
    archive_period_us: int | None = None
    order: Order | None = None
    partitions: int = 2
    """Number of shuffle partitions of the session."""
    is_case_sensitive: bool = False
    """Whether the session reads names by case."""
    statistics: Statistics | None = None
    """The statistics from which costs are estimated. None means the default assumptions."""
    run: RunContext = field(default_factory=RunContext)
    """The settings with which the units run."""
    bounds_watermark: bool = False
    """Whether results have a column that says how far the watermark rises after the epoch."""


def refuse_how(how: How, what: str, hint: str, problems: list[ThetastreamError]) -> None:
    """Add an error if the join is not an inner join, because ``what`` has pairs only."""
    if not how.is_inner:
        problems.append(QueryError("HOW", f"{what} has inner joins only, not how={how.name!r}; {hint}"))


def check_max_units(number: int | None, model: Model | None, problems: list[ThetastreamError]) -> None:
    """Add an error if a join may have fewer units at once than its model has."""
    if number is not None and model is not None and number < model.n_units:
        what = (
            f"max_units must be from {model.n_units} to {MOST_UNITS}, because {model!r} has {model.n_units}"
        )
        problems.append(QueryError("MAX_UNITS", f"{what} unit(s), not {number!r}"))
