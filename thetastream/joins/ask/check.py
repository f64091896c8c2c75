"""Reads and checks a join request for any number of streams. All families share this code."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.conditions import Phrase, Predicate, parse
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.families.request import CheckedRequest
from thetastream.families.windows import is_counted
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.condition import read_condition
from thetastream.joins.ask.model import read_model
from thetastream.joins.ask.request import JoinRequest
from thetastream.joins.ask.settings import (
    choose_mailbox_folder,
    read_late_folder,
    read_result_time,
    read_shed,
)
from thetastream.joins.ask.statistics import read_statistics
from thetastream.joins.ask.streams import read_streams
from thetastream.joins.ask.window import read_window
from thetastream.lowering.query import Stream
from thetastream.runtime.flow import RunContext
from thetastream.runtime.idle.reports import list_idle_reports
from thetastream.spark.session.configure import check_session, count_partitions, is_local
from thetastream.spark.session.memory import warn_of_state


@dataclass(frozen=True)
class ReadInputs:
    """The inputs of a request and its condition, which are read once."""

    catalyst: Catalyst
    streams: tuple[Stream, ...]
    on: tuple[str, ...]
    """The SQL texts of the condition as the user wrote them."""
    phrases: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...]
    problems: list[ThetastreamError]

    def select(self, request: JoinRequest, parts: Sequence[Phrase | Predicate]) -> "ReadInputs":
        """Select the inputs of ``request``, which has fewer of them, with these parts of the condition."""
        catalyst = Catalyst(request.spark, {alias: frame.schema for alias, frame in request.streams.items()})
        streams: list[Stream] = []
        for stream in self.streams:
            if stream.alias in request.streams:
                first = sum(len(known.carried) for known in streams)
                carried, _ = catalyst.carry(stream, request.columns.get(stream.alias), first)
                streams.append(replace(stream, carried=carried))
        phrases = [part for part in parts if isinstance(part, Phrase)]
        predicates = [part for part in parts if isinstance(part, Predicate)]
        phrases = phrases if parts else [parse("true")]
        texts = tuple(phrase.text for phrase in phrases)
        return ReadInputs(catalyst, tuple(streams), texts, tuple(phrases), tuple(predicates), [])


def read_inputs(request: JoinRequest) -> ReadInputs:
    """Read inputs and condition of a request. A table beside streams has no event time."""
    has_tables = len({frame.isStreaming for frame in request.streams.values()}) > 1
    needs_time = request.within is not None or request.options.get("order") is not None
    read = read_streams(request.streams, needs_time, request.options.get("event_time"), request.columns)
    streams = tuple(
        replace(stream, event_time=None) if has_tables and not stream.is_streaming else stream
        for stream in read.streams
    )
    problems = [*request.problems, *read.problems]
    texts, phrases, predicates = read_condition(request.on, read.catalyst, streams, read.schemas, problems)
    return ReadInputs(read.catalyst, streams, tuple(texts), tuple(phrases), tuple(predicates), problems)


def check(request: JoinRequest, read: ReadInputs) -> CheckedRequest:
    """Read window, model and options of a request, and collect all errors in ``problems``."""
    problems, options, spark = read.problems, request.options, request.spark
    # 1. Window.
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
    cache_folder = options.get("cache_folder")
    run = RunContext(
        cache_folder=None if cache_folder is None else str(cache_folder),
        late=late,
        idle=list_idle_reports(read.streams),
        shed=shed,
    )
    # 3. Model.
    partitions = count_partitions(spark)
    model, has_open_size = read_model(
        request.model, read.streams, read.catalyst, partitions, is_counted(request.within), problems
    )
    return CheckedRequest(
        streams=read.streams,
        on=read.on,
        conjuncts=read.phrases,
        predicates=read.predicates,
        within=request.within,
        within_us=within_us,
        how=request.how,
        model=model,
        has_open_size=has_open_size,
        given=request.given,
        statistics=statistics,
        archive_period_us=archive_period_us,
        has_result_time=has_result_time,
        run=run,
        partitions=partitions,
        resolver=read.catalyst,
        session=SparkSessionChecks(spark),
        problems=problems,
    )


@dataclass(frozen=True)
class SparkSessionChecks:
    """Answers the questions of the planner about a Spark session, as ``SessionChecks`` describes them."""

    spark: SparkSession

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        return check_session(self.spark, n_units)

    def choose_mailbox_folder(self, asked: str | Path | None, problems: list[ThetastreamError]) -> str:
        return choose_mailbox_folder(self.spark, asked, problems)

    def warn_of_state(self, nbytes: float) -> None:
        warn_of_state(nbytes, is_local(self.spark))
