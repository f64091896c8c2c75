"""Plans joins of three or more streams as a pipeline of joins of two streams.

((a JOIN b) JOIN c) JOIN d, or (a JOIN b) JOIN (c JOIN d): each step joins two inputs, which are streams or
results of other steps. The columns of a result are flat and are called ``alias__column``. The result time T
of its rows is their latest event time. T keeps the watermark mark. It is later than the watermark at which
the row was found, so the row is never late at the next step. With windows W_i, a result must have
T - t_i <= W_i for every stream i. A step keeps the rows of an input for the min(W_i) of its streams, and a
filter behind the step applies the window of each stream.

Planning reads only schemas, because the output columns of a step follow from its input columns.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql.types import StructType

from thetastream.engine.multiway.hop import Regrouped
from thetastream.errors import QueryError
from thetastream.frontend.checked import CheckedRequest, refuse_result_order
from thetastream.frontend.max_units import refuse_max_units
from thetastream.frontend.window import is_counted
from thetastream.plan.choose import choose_n_units
from thetastream.plan.join_order import choose_join_order, estimate_sizes, find_aliases, list_ties
from thetastream.plan.join_tree import (
    MARGIN,
    Flow,
    JoinTree,
    build_left_deep,
    choose_join_tree,
    is_bushy,
    solve_ties,
)
from thetastream.plan.query import RESULT_TIME, Query, Stream
from thetastream.planners.join_plan import JoinPlan
from thetastream.planners.join_settings import JoinSettings
from thetastream.planners.pipeline_plan import FlatColumn, JoinResult, PipelinePlan
from thetastream.planners.planned_input import GivenStream, PlannedInput
from thetastream.planners.two_streams import plan_query
from thetastream.predicate import Phrase, Predicate, parse, split_conjuncts
from thetastream.spark.carriers import carry
from thetastream.spark.catalyst import Catalyst
from thetastream.spark.idle.reports import list_idle_reports
from thetastream.spark.session import check_session


def plan_pipeline(checked: CheckedRequest) -> PipelinePlan:
    """Plan a join of three or more streams as joins of two inputs."""
    # 1. Refuse what a pipeline does not support, and check the session.
    refuse_result_order(checked)
    if is_counted(checked.request.within):
        what = f"{checked.model!r} joins three streams or more by joins of two inputs"
        hint = "results of a join have no order of arrival; use th.Ring(nodes), or leave model out"
        checked.problems.append(QueryError("COUNT_WINDOW", f"{what}, and {hint}"))
    if checked.shed is not None:
        what = "a pipeline, which joins three streams or more by joins of two inputs, does not shed"
        hint = "leave shed out, use th.Ring, or shed in a join of two streams"
        checked.problems.append(QueryError("SHED", f"{what}; {hint}"))
    refuse_max_units(checked.options.get("max_units"), "a join of more than two streams", checked.problems)
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
    # 2. Choose the tree, and plan its steps.
    settings = JoinSettings(
        model,
        index=checked.options.get("index"),
        archive_period_us=checked.archive_period_us,
        partitions=checked.partitions,
        statistics=checked.statistics,
        cache_folder=checked.cache_folder,
        late=checked.late,
        idle=list_idle_reports(checked.streams),
        bounds_watermark=checked.request.bounds_watermark and _has_watermarks(checked.streams),
    )
    tree, reason = _choose_tree(query, checked)
    assert not isinstance(tree, str)  # there are at least three streams
    work = _Pipeline(checked, query, settings)
    joined = work.join(tree)
    return PipelinePlan(query, tuple(work.steps), reason, joined)


def _choose_tree(query: Query, checked: CheckedRequest) -> tuple[JoinTree, str]:
    """Choose the tree of joins, and say why."""
    known, ties = checked.statistics, list_ties(query)
    order = choose_join_order(estimate_sizes(query, known), ties)
    rates = "" if known is None else f"{known.origin} rates, "
    reason = f"the smallest results first, as estimated from {rates}windows and kinds of conjuncts"
    if known is None or known.results_per_second is None or query.within_us is None:
        return build_left_deep(order), reason
    flows = {
        alias: Flow(known.rate_of(alias), span / 1e6)
        for alias, span in zip(query.aliases, query.within_us, strict=True)
    }
    solved = solve_ties(ties, flows, known.results_of(query.aliases))
    tree = None if solved is None else choose_join_tree(order, flows, solved)
    if tree is None:
        return build_left_deep(order), reason
    reason = "the cheapest left-deep tree"
    if is_bushy(tree):
        reason = f"costs less than 1/{MARGIN:g} of {reason}"
    return tree, f"{reason}, as estimated from {known.origin} rates of results"


class _Input(NamedTuple):
    """An input of a step: a stream, or the result of another step."""

    stream: Stream
    """The description of the input. If it is a result, the description does not say how columns are sent."""
    schema: StructType
    source: PlannedInput
    joined: JoinResult | None

    @property
    def aliases(self) -> tuple[str, ...]:
        """The streams in it, in join order."""
        return (self.stream.alias,) if self.joined is None else self.joined.aliases


class _Pipeline:
    """Plans the steps of a tree, each after the steps whose results it joins."""

    def __init__(self, checked: CheckedRequest, query: Query, settings: JoinSettings) -> None:
        self.steps: list[JoinPlan] = []
        self._checked = checked
        self._streams = {stream.alias: stream for stream in query.streams}
        self._settings = settings
        self._flat_names = _name_flat_columns(query.streams)
        spans = query.within_us
        self._windows = None if spans is None else dict(zip(query.aliases, spans, strict=True))
        parts: list[Phrase | Predicate] = [*query.conjuncts, *query.predicates]
        self._parts = [(part, find_aliases(part, query.aliases)) for part in parts]
        """The conjuncts and predicates that no step has yet, and the aliases that they read."""

    def join(self, tree: tuple[JoinTree, JoinTree]) -> JoinResult:
        """Plan the steps of a tree, and return the result of the last one."""
        left = self._plan_input(tree[0])
        right = self._plan_input(tree[1], left.stream.alias)
        return self._join((left, right))

    def _plan_input(self, tree: JoinTree, *taken: str) -> _Input:
        """Plan the steps of an input, and describe it. Its alias must not be one of those that are taken."""
        if isinstance(tree, str):
            stream = self._streams[tree]
            whole = self._checked.schemas[tree]
            schema = StructType([whole[name] for name, _ in stream.types])
            return _Input(stream, schema, GivenStream(self._checked.request.streams[tree]), None)
        joined = self.join(tree)
        names = {name.casefold() for name in (*self._streams, *taken)}
        alias = "_".join(joined.aliases)
        while alias.casefold() in names:
            alias += "_"
        stream = Stream(
            alias,
            tuple((field.name, field.dataType.simpleString()) for field in joined.schema),
            event_time=RESULT_TIME if joined.event_times else None,
            is_streaming=self._checked.is_streaming,
            event_time_origin="latest of what is joined",
            watermark_delay_us=0 if joined.event_times else None,
        )
        return _Input(stream, joined.schema, joined, joined)

    def _join(self, inputs: tuple[_Input, _Input]) -> JoinResult:
        """Plan the step that joins two inputs, with the conjuncts and predicates that it completes."""
        left, right = inputs
        arrived = {*left.aliases, *right.aliases}
        parts = [part for part, read in self._parts if read <= arrived]
        self._parts = [(part, read) for part, read in self._parts if not read <= arrived]
        # 1. Read both inputs. Their columns are numbered anew.
        streams: list[Stream] = []
        for given in inputs:
            carried, _ = carry(given.stream.alias, given.schema, sum(len(known.carried) for known in streams))
            streams.append(replace(given.stream, carried=carried))
        # 2. Write the condition over their columns.
        texts = [_relocate(part, inputs) for part in parts if isinstance(part, Phrase)]
        predicates = [_regroup(part, inputs) for part in parts if isinstance(part, Predicate)]
        if not parts:
            texts = ["true"]
        phrases = [phrase for text in texts for phrase in split_conjuncts(parse(text))]
        windows = self._windows
        within_us = None
        if windows is not None:
            within_us = tuple(min(windows[alias] for alias in given.aliases) for given in inputs)
        query = Query(tuple(streams), tuple(texts), tuple(phrases), tuple(predicates), within_us)
        # 3. Plan the step.
        known = self._settings.statistics
        is_last = len(arrived) == len(self._streams)
        settings = replace(
            self._settings,
            statistics=None if known is None else known.of(query.aliases),
            bounds_watermark=self._settings.bounds_watermark and not is_last,
        )
        resolver = Catalyst(
            self._checked.request.spark, {given.stream.alias: given.schema for given in inputs}
        )
        step = plan_query(query, resolver, (left.source, right.source), settings)
        self.steps.append(step)
        return self._describe_result(step, inputs)

    def _describe_result(self, step: JoinPlan, inputs: tuple[_Input, _Input]) -> JoinResult:
        aliases = [alias for given in inputs for alias in given.aliases]
        columns = tuple(
            FlatColumn(
                alias, name, self._flat_names[alias, name], self._checked.schemas[alias][name].dataType
            )
            for alias in aliases
            for name, _ in self._streams[alias].types
        )
        times = {alias: self._streams[alias].event_time for alias in aliases}
        flat_times = {
            alias: self._flat_names[alias, time] for alias, time in times.items() if time is not None
        }
        if len(flat_times) < len(times):
            flat_times = {}
        windows = None if self._windows is None else {alias: self._windows[alias] for alias in aliases}
        left, right = inputs
        return JoinResult(step, left.joined, right.joined, columns, flat_times, windows)


def _relocate(phrase: Phrase, inputs: Iterable[_Input]) -> str:
    """Write a conjunct with the present names of its columns."""
    text = phrase.text
    for given in inputs:
        if given.joined is not None:
            text = given.joined.relocate(parse(text), given.stream.alias)
    return text


def _regroup(predicate: Predicate, inputs: Iterable[_Input]) -> Predicate:
    """Turn a predicate into one over the two inputs of a step."""
    for given in inputs:
        joined, together = given.joined, given.stream.alias
        if joined is None:
            continue
        inside = {alias.casefold(): alias for alias in joined.aliases}
        moved, kept = [], []
        for alias, names in predicate.columns:
            stream = inside.get(alias.casefold())
            if stream is None:
                kept.append((alias, names))
            else:
                moved.append((alias, tuple((name, joined.find_flat(stream, name)) for name in names)))
        flat_names = tuple(flat for _, names in moved for _, flat in names)
        function = Regrouped(predicate.name, predicate, together, tuple(moved))
        predicate = Predicate(function, ((together, flat_names), *kept), predicate.form)
    return predicate


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
