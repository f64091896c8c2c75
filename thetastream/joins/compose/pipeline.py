"""Joins three or more streams as a pipeline of joins of two inputs.

((a JOIN b) JOIN c) JOIN d, or (a JOIN b) JOIN (c JOIN d): each step joins two inputs, which are streams or
results of other steps. The columns of a result are flat and are called ``alias__column``. The result time T
of its rows is their latest event time. T keeps the watermark mark. It is later than the watermark at which
the row was found, so the row is never late at the next step. With windows W_i, a result must have
T - t_i <= W_i for every stream i. A step keeps the rows of an input for the min(W_i) of its streams, and a
filter behind the step applies the window of each stream. If the units of the last step fold its matches, they
apply these windows themselves.

Planning reads only schemas, because the output columns of a step follow from its input columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetastream.conditions import Phrase, Predicate, parse, split_conjuncts
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.hop import Regrouped
from thetastream.families.base import Facts, FinalJoin
from thetastream.families.pairs.plan import PairsPlan, plan_query
from thetastream.families.request import RESULTS_OF_MORE, JoinRequest, Refusal, find_answers_problems
from thetastream.families.result_time import write_result_time
from thetastream.families.views.folding import Folding
from thetastream.families.windows import is_counted
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.streams import StreamInput
from thetastream.joins.compose.flat_results import FlatColumn, JoinResult, name_flat_columns
from thetastream.joins.compose.tree import (
    MARGIN,
    JoinTree,
    StreamWindow,
    build_left_deep,
    choose_join_tree,
    is_bushy,
    solve_ties,
)
from thetastream.joins.joined import PlannedInput, UnitsJoin
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME, WATERMARK_BOUND, Query, Stream, list_conditions
from thetastream.lowering.report import Fact, Section
from thetastream.lowering.selectivity import choose_join_order, estimate_sizes, find_aliases, list_ties
from thetastream.lowering.statistics import Statistics
from thetastream.models.base import Model


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of joins of two streams that is checked and planned but not started."""

    query: Query
    steps: tuple[UnitsJoin, ...]
    """The steps in the order in which they run. A step comes after the steps whose results it joins."""
    order_reason: str
    """Why the streams are joined in this tree."""
    joined: "JoinResult"
    """The result of the last step."""
    is_folded: bool = False
    """Whether the results of the last step are views."""

    refused: ClassVar[Mapping[str, Refusal]] = {
        **RESULTS_OF_MORE,
        "shed": Refusal(
            "SHED",
            "a pipeline, which joins three streams or more by joins of two inputs, does not shed; leave shed "
            "out, use th.Ring, or shed in a join of two streams",
        ),
    }

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.query.streams

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for step in self.steps for model in step.models)

    @property
    def facts(self) -> Facts:
        query, last = self.query, self.steps[-1].facts
        return Facts(
            condition=" AND ".join(list_conditions(query.on, query.predicates)),
            result_time=write_result_time(query.streams),
            shows_result_time=query.has_result_time,
            has_deletes=last.has_deletes,
            longest_window_us=max(query.within_us or (0,)),
            final=last.final if isinstance(last.final, str) else self._describe_final_join(last.final),
        )

    def _describe_final_join(self, step: FinalJoin) -> FinalJoin:
        left, right = step.streams
        sides = ((self.joined.left, left, right), (self.joined.right, right, left))
        checks = [
            check
            for joined, mine, other in sides
            if joined is not None
            for check in joined.write_window_checks(mine.alias, other)
        ]
        return replace(step, checks=(*step.checks, *checks), relocate=self._relocate_final)

    def _relocate_final(self, phrase: Phrase) -> Phrase:
        return parse(self.joined.relocate_inputs(phrase))

    def explain(self) -> tuple[Section, ...]:
        facts = Fact("", self.joined.tree), Fact("order:", self.order_reason)
        steps = (Section(f"Step {n}", sections=step.explain()) for n, step in enumerate(self.steps, 1))
        return (Section("Pipeline", facts), *steps)

    @property
    def final_inputs(self) -> tuple[PlannedInput, ...]:
        return self.steps[-1].final_inputs

    def fold(self, folding: Folding, inputs: Mapping[str, PlannedInput]) -> "Pipeline":
        *before, last = self.steps
        return replace(self, steps=(*before, last.fold(folding, inputs)), is_folded=True)

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias, or the rows of views."""
        if self.is_folded:
            return self.steps[-1].results()
        columns = {(column.alias, column.name): column.flat for column in self.joined.columns}
        structs = (
            F.struct(
                *(F.col(quote(columns[stream.alias, name])).alias(name) for name, _ in stream.types)
            ).alias(stream.alias)
            for stream in self.inputs
        )
        change = self.joined.change_type
        return self.joined.dataframe().select(*structs, *([] if change is None else [change]))


def plan_pipeline(request: JoinRequest, frames: Mapping[str, DataFrame]) -> Pipeline:
    """Plan a join of three or more streams as joins of two inputs."""
    # 1. Refuse what a pipeline does not support, and check the session.
    request = request.without(Pipeline.refused).with_problems(find_answers_problems(request.how))
    request = request.prepare_run(has_messages=False)
    query = request.with_problems(_find_model_problems(request)).query()
    # 2. Choose the tree, and plan its steps.
    tree, reason = _choose_tree(query, request.statistics)
    assert not isinstance(tree, str)  # there are at least three streams
    work = _Steps(request, query, frames)
    joined = work.join(tree)
    return Pipeline(query, tuple(work.steps), reason, joined)


def _find_model_problems(request: JoinRequest) -> Iterator[QueryError]:
    """Find reasons why the steps of a pipeline cannot have the model or the windows of a request."""
    model = request.model
    if is_counted(request.within):
        what = f"{model!r} joins three streams or more by joins of two inputs"
        hint = "results of a join have no order of arrival; use th.Ring(nodes), or leave model out"
        yield QueryError("COUNT_WINDOW", f"{what}, and {hint}")
    if request.is_streaming and model is not None and not model.runs_on_units:
        what = f"{model!r} joins two streams, and the next join of a pipeline would drop its results"
        yield QueryError("LATE_RESULTS", f"{what} as late; use th.Ring, or another model")


def _choose_tree(query: Query, known: Statistics | None) -> tuple[JoinTree, str]:
    """Choose the tree of joins, and say why."""
    ties = list_ties(query)
    order = choose_join_order(estimate_sizes(query, known), ties)
    rates = "" if known is None else f"{known.origin} rates, "
    reason = f"the smallest results first, as estimated from {rates}windows and kinds of conjuncts"
    if known is None or known.results_per_second is None or query.within_us is None:
        return build_left_deep(order), reason
    flows = {
        alias: StreamWindow(known.rate_of(alias), span / 1e6)
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


class _Steps:
    """Plans the steps of a tree, each after the steps whose results it joins."""

    def __init__(self, request: JoinRequest, query: Query, frames: Mapping[str, DataFrame]) -> None:
        self.steps: list[UnitsJoin] = []
        self._request = request
        self._frames = frames
        self._spark = next(iter(frames.values())).sparkSession
        self._streams = {stream.alias: stream for stream in query.streams}
        self._bounds_watermark = request.bounds_watermark and _has_watermarks(query.streams)
        self._flat_names = name_flat_columns(query.streams)
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
            stream, frame = self._streams[tree], self._frames[tree]
            schema = StructType([frame.schema[name] for name, _ in stream.types])
            return _Input(stream, schema, StreamInput(frame), None)
        joined = self.join(tree)
        names = {name.casefold() for name in (*self._streams, *taken)}
        alias = "_".join(joined.aliases)
        while alias.casefold() in names:
            alias += "_"
        stream = Stream(
            alias,
            tuple((field.name, field.dataType.simpleString()) for field in joined.schema),
            event_time=RESULT_TIME if joined.event_times else None,
            is_streaming=self._request.is_streaming,
            event_time_origin="latest of what is joined",
            watermark_delay_us=0 if joined.event_times else None,
            parts=joined.aliases,
            change_type=joined.change_type,
            watermark_bound=joined.watermark_bound,
        )
        return _Input(stream, joined.schema, joined, joined)

    def _join(self, inputs: tuple[_Input, _Input]) -> JoinResult:
        """Plan the step that joins two inputs, with the conjuncts and predicates that it completes."""
        left, right = inputs
        arrived = {*left.aliases, *right.aliases}
        parts = [part for part, read in self._parts if read <= arrived]
        self._parts = [(part, read) for part, read in self._parts if not read <= arrived]
        # 1. Read both inputs. Their columns are numbered anew.
        catalyst = Catalyst(self._spark, {given.stream.alias: given.schema for given in inputs})
        streams: list[Stream] = []
        for given in inputs:
            first = sum(len(known.carried) for known in streams)
            streams.append(replace(given.stream, carried=catalyst.carry(given.stream, None, first)[0]))
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
        known = self._request.statistics
        request = replace(
            self._request,
            resolver=catalyst,
            statistics=None if known is None else known.of(query.aliases),
        )
        planned = plan_query(request, query, None, PairsPlan)
        bounds = self._bounds_watermark and len(arrived) < len(self._streams)
        step = UnitsJoin(replace(planned, bounds_watermark=bounds), (left.source, right.source))
        self.steps.append(step)
        return self._describe_result(step, inputs, WATERMARK_BOUND if bounds else None)

    def _describe_result(
        self, step: UnitsJoin, inputs: tuple[_Input, _Input], watermark_bound: str | None
    ) -> JoinResult:
        aliases = [alias for given in inputs for alias in given.aliases]
        columns = tuple(
            FlatColumn(alias, name, self._flat_names[alias, name], self._frames[alias].schema[name].dataType)
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
        return JoinResult(step, left.joined, right.joined, columns, flat_times, windows, watermark_bound)


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
