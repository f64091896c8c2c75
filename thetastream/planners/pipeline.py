"""Plans joins of three or more streams as a left-deep pipeline of joins of two streams.

((a JOIN b) JOIN c) JOIN d: each step joins the result of the steps before it with one more stream. The
columns of such a result are flat and are called ``alias__column``. The result time T of its rows is their
latest event time. T keeps the watermark mark. It is later than the watermark at which the row was found, so
the row is never late at the next step. With windows W_i, a result must have T - t_i <= W_i for every stream
i. A step keeps the rows of its left input for min(W_i), and a filter behind the step applies the window of
each stream.

Planning reads only schemas, because the output columns of a step follow from its input columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from thetastream.engine.multiway.hop import Regrouped
from thetastream.errors import QueryError
from thetastream.frontend.checked import CheckedRequest, refuse_result_order
from thetastream.frontend.max_units import refuse_max_units
from thetastream.frontend.window import is_counted
from thetastream.plan.choose import choose_n_units
from thetastream.plan.join_order import choose_join_order, estimate_sizes, find_aliases, list_ties
from thetastream.plan.query import RESULT_TIME, Query, Stream
from thetastream.planners.join_plan import JoinPlan
from thetastream.planners.join_settings import JoinSettings
from thetastream.planners.pipeline_plan import FlatColumn, JoinedSoFar, PipelinePlan
from thetastream.planners.planned_input import GivenStream, PlannedInput
from thetastream.planners.two_streams import plan_query
from thetastream.predicate import Phrase, Predicate, parse, split_conjuncts
from thetastream.spark.carriers import carry
from thetastream.spark.catalyst import Catalyst
from thetastream.spark.idle.reports import list_idle_reports
from thetastream.spark.session import check_session


def plan_pipeline(checked: CheckedRequest) -> PipelinePlan:
    """Plan a join of three or more streams that are joined one after the other."""
    # 1. Refuse what a pipeline does not support, and check the session.
    refuse_result_order(checked)
    if is_counted(checked.request.within):
        what = f"{checked.model!r} joins three streams or more one after the other"
        hint = "results of a join have no order of arrival; use th.Ring(nodes), or leave model out"
        checked.problems.append(QueryError("COUNT_WINDOW", f"{what}, and {hint}"))
    if checked.shed is not None:
        what = "a join of three streams or more, one after the other, does not shed"
        hint = "leave shed out, use th.Ring, or shed in a join of two streams"
        checked.problems.append(QueryError("SHED", f"{what}; {hint}"))
    refuse_max_units(checked.settings["max_units"], "a join of more than two streams", checked.problems)
    model = checked.model
    if not checked.is_streaming:
        model = None if model is None else model.on_batch
    else:
        n_units = choose_n_units(checked.partitions) if model is None else model.n_units
        checked.problems.extend(check_session(checked.request.spark, n_units))
        if model is not None and not model.is_prompt(2):
            what = (
                f"{model!r} joins two streams, and the next join of a pipeline would drop its results as late"
            )
            checked.problems.append(QueryError("LATE_RESULTS", f"{what}; use th.Ring, or another model"))
    query = checked.query()
    # 2. One step for each stream but the first.
    settings = JoinSettings(
        model,
        index=checked.settings["index"],
        archive_period_us=checked.archive_period_us,
        partitions=checked.partitions,
        statistics=checked.statistics,
        cache_folder=checked.settings["cache_folder"],
        late=checked.late,
        idle=list_idle_reports(checked.streams),
        bounds_watermark=checked.request.bounds_watermark and _has_watermarks(checked.streams),
    )
    order = choose_join_order(estimate_sizes(query, checked.statistics), list_ties(query))
    work = _Pipeline(checked, query, settings, order[0])
    every: list[Phrase | Predicate] = [*query.conjuncts, *query.predicates]
    parts = [(part, find_aliases(part, order)) for part in every]
    steps = []
    for alias in order[1:]:
        arrived = {*work.joined_aliases, alias}
        steps.append(work.join(alias, [part for part, read in parts if read <= arrived]))
        parts = [(part, read) for part, read in parts if not read <= arrived]
    rates = "" if checked.statistics is None else f"{checked.statistics.origin} rates, "
    reason = f"the smallest results first, as estimated from {rates}windows and kinds of conjuncts"
    assert work.joined is not None  # there are at least two streams
    return PipelinePlan(query, tuple(steps), reason, work.joined)


class _Pipeline:
    """The streams that are joined so far, and how to join one more stream with them."""

    def __init__(self, checked: CheckedRequest, query: Query, settings: JoinSettings, first: str) -> None:
        self._checked = checked
        self._streams = {stream.alias: stream for stream in query.streams}
        self._settings = settings
        self._flat_names = _name_flat_columns(query.streams)
        spans = query.within_us
        self._windows = None if spans is None else dict(zip(query.aliases, spans, strict=True))
        self.joined_aliases = [first]
        """The aliases joined so far, in join order."""
        self._alias = first
        """The alias of the next step's left source."""
        self.joined: JoinedSoFar | None = None

    def join(self, alias: str, parts: Sequence[Phrase | Predicate]) -> JoinPlan:
        """Plan the step that joins one more stream.

        ``parts`` are the conjuncts and predicates that it completes.
        """
        left, right = self._describe_left(), self._streams[alias]
        # 1. Read both inputs. Their columns are numbered anew.
        schemas = {self._alias: self._find_schema(self._alias), alias: self._find_schema(alias)}
        inputs: list[Stream] = []
        for stream, schema in zip((left, right), schemas.values(), strict=True):
            carried, _ = carry(stream.alias, schema, sum(len(known.carried) for known in inputs))
            inputs.append(replace(stream, carried=carried))
        # 2. Write the condition over their columns.
        texts = [self._relocate(part) for part in parts if isinstance(part, Phrase)]
        predicates = [self._regroup(part) for part in parts if isinstance(part, Predicate)]
        if not parts:
            texts = ["true"]
        phrases = [phrase for text in texts for phrase in split_conjuncts(parse(text))]
        within_us = None
        if self._windows is not None:
            within_us = (min(self._windows[known] for known in self.joined_aliases), self._windows[alias])
        query = Query(tuple(inputs), tuple(texts), tuple(phrases), tuple(predicates), within_us)
        # 3. Plan the step.
        known = self._settings.statistics
        is_last = len(self.joined_aliases) + 1 == len(self._streams)
        settings = replace(
            self._settings,
            statistics=None if known is None else known.of((self._alias, alias)),
            bounds_watermark=self._settings.bounds_watermark and not is_last,
        )
        resolver = Catalyst(self._checked.request.spark, schemas)
        step = plan_query(
            query, resolver, (self._find_source(self._alias), self._find_source(alias)), settings
        )
        self._take(step, alias)
        return step

    def _take(self, step: JoinPlan, alias: str) -> None:
        self.joined_aliases.append(alias)
        columns = tuple(
            FlatColumn(
                known, name, self._flat_names[known, name], self._checked.schemas[known][name].dataType
            )
            for known in self.joined_aliases
            for name, _ in self._streams[known].types
        )
        times = {known: self._streams[known].event_time for known in self.joined_aliases}
        flat_times = {
            known: self._flat_names[known, time] for known, time in times.items() if time is not None
        }
        if len(flat_times) < len(times):
            flat_times = {}
        self.joined = JoinedSoFar(step, self.joined, columns, flat_times, self._windows)
        taken = {name.casefold() for name in self._streams}
        self._alias = "_".join(self.joined_aliases)
        while self._alias.casefold() in taken:
            self._alias += "_"

    def _describe_left(self) -> Stream:
        """Describe the result so far as a stream, without how its columns are sent."""
        joined = self.joined
        if joined is None:
            return self._streams[self._alias]
        return Stream(
            self._alias,
            tuple((field.name, field.dataType.simpleString()) for field in joined.schema),
            event_time=RESULT_TIME if joined.event_times else None,
            is_streaming=self._checked.is_streaming,
            event_time_origin="latest of what is joined",
            watermark_delay_us=0 if joined.event_times else None,
        )

    def _find_schema(self, alias: str) -> StructType:
        if self.joined is not None and alias == self._alias:
            return self.joined.schema
        whole = self._checked.schemas[alias]
        return StructType([whole[name] for name, _ in self._streams[alias].types])

    def _find_source(self, alias: str) -> PlannedInput:
        if self.joined is not None and alias == self._alias:
            return self.joined
        return GivenStream(self._checked.request.streams[alias])

    def _relocate(self, phrase: Phrase) -> str:
        """Write the conjunct with the present names of its columns."""
        return phrase.text if self.joined is None else self.joined.relocate(phrase, self._alias)

    def _regroup(self, predicate: Predicate) -> Predicate:
        """Turn the predicate into one over the result so far and the next stream."""
        if self.joined is None:
            return predicate
        inside = {alias.casefold(): alias for alias in self.joined_aliases}
        moved, kept = [], []
        for alias, names in predicate.columns:
            stream = inside.get(alias.casefold())
            if stream is None:
                kept.append((alias, names))
            else:
                moved.append((alias, tuple((name, self.joined.find_flat(stream, name)) for name in names)))
        together = tuple(flat for _, names in moved for _, flat in names)
        function = Regrouped(predicate.name, predicate, self._alias, tuple(moved))
        return Predicate(function, ((self._alias, together), *kept), predicate.form)


def _has_watermarks(streams: Iterable[Stream]) -> bool:
    return all(stream.is_streaming and stream.event_time is not None for stream in streams)


def _name_flat_columns(streams: Iterable[Stream]) -> dict[tuple[str, str], str]:
    """Name each (alias, column) ``alias__column``. Underscores are appended if the name is taken."""
    names: dict[tuple[str, str], str] = {}
    taken = {RESULT_TIME}
    for stream in streams:
        for column, _ in stream.types:
            flat = f"{stream.alias}__{column}"
            while flat.casefold() in taken:
                flat += "_"
            taken.add(flat.casefold())
            names[stream.alias, column] = flat
    return names
