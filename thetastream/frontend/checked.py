"""Reads and checks a join request for any number of streams. All planners share this code."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from thetastream.core.shed import Shed
from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import read_condition
from thetastream.frontend.how import refuse_how
from thetastream.frontend.late_folder import read_late_folder
from thetastream.frontend.model import choose_named_model, read_model
from thetastream.frontend.options import Options
from thetastream.frontend.request import JoinRequest
from thetastream.frontend.result_time import read_result_time
from thetastream.frontend.shed import read_shed
from thetastream.frontend.statistics import read_statistics
from thetastream.frontend.streams import read_streams
from thetastream.frontend.window import is_counted, read_window
from thetastream.models.base import Model
from thetastream.plan.query import Query, Stream
from thetastream.plan.statistics import Statistics
from thetastream.predicate import Phrase, Predicate
from thetastream.spark.catalyst import Catalyst
from thetastream.spark.session import count_partitions


@dataclass(frozen=True)
class CheckedRequest:
    """A request that is read. Planners add to ``problems`` what they refuse, and then call ``query``."""

    request: JoinRequest
    catalyst: Catalyst
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
    late: str | None
    """The folder of late tuples; None if they are only counted."""
    shed: Shed | None
    """The load shedder; None if nothing is dropped."""
    partitions: int
    """Number of shuffle partitions of the session."""
    problems: list[ThetastreamError]

    @property
    def options(self) -> Options:
        """The options that the user or the session gave."""
        return self.request.options

    @property
    def cache_folder(self) -> str | None:
        """The folder on each host for mapped segments; None means Spark's local directory."""
        folder = self.options.get("cache_folder")
        return None if folder is None else str(folder)

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


def check(request: JoinRequest) -> CheckedRequest:
    """Read streams, condition, window, model and options, and collect all errors in ``problems``."""
    problems = list(request.problems)
    options, spark = request.options, request.spark
    # 1. Streams, condition, window.
    needs_time = request.within is not None or options.get("order") is not None
    read = read_streams(request.streams, needs_time, options.get("event_time"), request.columns)
    problems += read.problems
    texts, phrases, predicates = read_condition(
        request.on, read.catalyst, read.streams, read.schemas, problems
    )
    within_us = None
    if not is_counted(request.within):
        within_us = read_window(request.within, read.streams, read.catalyst, problems)
    # 2. Options that every planner reads.
    archive_period_us = None
    try:
        if "archive_period" in options:
            archive_period_us = read.catalyst.duration(options["archive_period"], "archive_period")
    except QueryError as problem:
        problems.append(problem)
    statistics = read_statistics(options.get("statistics"), request.streams, problems)
    has_result_time = read_result_time(options.get("result_time"), read.streams, problems)
    late = read_late_folder(spark, options.get("late"), (stream.alias for stream in read.streams), problems)
    shed = read_shed(options.get("shed"), request.how, read.streams, problems)
    # 3. Model.
    partitions = count_partitions(spark)
    named = choose_named_model(request.model, len(read.streams), is_counted(request.within))
    model, has_open_size = read_model(named, read.streams, read.catalyst, partitions, problems)
    return CheckedRequest(
        request,
        read.catalyst,
        read.schemas,
        read.streams,
        tuple(texts),
        tuple(phrases),
        tuple(predicates),
        within_us,
        model,
        has_open_size,
        statistics,
        archive_period_us,
        has_result_time,
        late,
        shed,
        partitions,
        problems,
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
