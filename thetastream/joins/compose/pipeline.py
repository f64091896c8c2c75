"""Plans joins of three or more streams as a pipeline of joins of two streams.

((a JOIN b) JOIN c) JOIN d, or (a JOIN b) JOIN (c JOIN d): each step joins two inputs, which are streams or
results of other steps. The columns of a result are flat and are called ``alias__column``. The result time T
of its rows is their latest event time. T keeps the watermark mark. It is later than the watermark at which
the row was found, so the row is never late at the next step. With windows W_i, a result must have
T - t_i <= W_i for every stream i. A step keeps the rows of an input for the min(W_i) of its streams, and a
filter behind the step applies the window of each stream.

Planning reads only schemas, because the output columns of a step follow from its input columns.

The plan of a pipeline of joins, in which the result of each step is an input of a later step.

The columns of such a result are flat. A step keeps the rows of such an input for the shortest window of the
streams in it, and a filter behind the step applies the window of each stream. If the units of the last step
fold its matches, they apply these windows themselves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType, TimestampType

from thetastream.conditions import Phrase, Predicate, parse, split_conjuncts
from thetastream.conditions.names import relocate
from thetastream.core.columns import MARK
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.hop import Regrouped
from thetastream.families.asked import (
    CheckedRequest,
    JoinSettings,
    PlannedInput,
    refuse_result_order,
)
from thetastream.families.pairs.plan import JoinPlan, plan_query
from thetastream.families.views.folding import FinalJoin, Folding
from thetastream.families.windows import is_counted
from thetastream.joins.ask.carriers import carry
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.settings import refuse_max_units
from thetastream.joins.ask.streams import StreamInput
from thetastream.joins.compose.tree import (
    MARGIN,
    JoinTree,
    StreamWindow,
    build_left_deep,
    choose_join_tree,
    is_bushy,
    solve_ties,
)
from thetastream.joins.plan import QueryPlan, build_result_time
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME, WATERMARK_BOUND, Query, Stream
from thetastream.lowering.report import Fact, Section
from thetastream.lowering.selectivity import choose_join_order, estimate_sizes, find_aliases, list_ties
from thetastream.lowering.statistics import choose_n_units
from thetastream.models.base import Model


@dataclass(frozen=True, repr=False)
class PipelinePlan(QueryPlan):
    """A pipeline of joins of two streams that is checked and planned but not started."""

    query: Query
    steps: tuple[JoinPlan, ...]
    """The steps in the order in which they run. A step comes after the steps whose results it joins."""
    order_reason: str
    """Why the streams are joined in this tree."""
    joined: "JoinResult"
    """The result of the last step."""

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(step.model for step in self.steps)

    def explain_join(self) -> tuple[Section, ...]:
        facts = Fact("", self.joined.tree), Fact("order:", self.order_reason)
        steps = (Section(f"Step {n}", sections=step.explain_join()) for n, step in enumerate(self.steps, 1))
        return (Section("Pipeline", facts), *steps)

    @property
    def folding_obstacle(self) -> str | None:
        return self.steps[-1].folding_obstacle

    @property
    def final_join(self) -> FinalJoin:
        step = self.steps[-1].final_join
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

    @property
    def final_inputs(self) -> tuple[PlannedInput, PlannedInput]:
        return self.steps[-1].final_inputs

    def fold(self, folding: Folding, streams: Mapping[str, PlannedInput]) -> "PipelinePlan":
        return replace(self, steps=(*self.steps[:-1], self.steps[-1].fold(folding, streams)))

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias.

        If the last step is folded, they are the rows of its views.
        """
        if self.steps[-1].folding is not None:
            return self.steps[-1].results()
        columns = {(column.alias, column.name): column.flat for column in self.joined.columns}
        structs = (
            F.struct(
                *(F.col(quote(columns[stream.alias, name])).alias(name) for name, _ in stream.types)
            ).alias(stream.alias)
            for stream in self.inputs
        )
        return self.joined.dataframe().select(*structs)


def plan_pipeline(checked: CheckedRequest) -> PipelinePlan:
    """Plan a join of three or more streams as joins of two inputs."""
    # 1. Refuse what a pipeline does not support, and check the session.
    refuse_result_order(checked)
    if is_counted(checked.request.within):
        what = f"{checked.model!r} joins three streams or more by joins of two inputs"
        hint = "results of a join have no order of arrival; use th.Ring(nodes), or leave model out"
        checked.problems.append(QueryError("COUNT_WINDOW", f"{what}, and {hint}"))
    if checked.run.shed is not None:
        what = "a pipeline, which joins three streams or more by joins of two inputs, does not shed"
        hint = "leave shed out, use th.Ring, or shed in a join of two streams"
        checked.problems.append(QueryError("SHED", f"{what}; {hint}"))
    refuse_max_units(checked.options.get("max_units"), "a join of more than two streams", checked.problems)
    model = checked.model
    if not checked.is_streaming:
        model = None if model is None else model.on_batch
    else:
        n_units = choose_n_units(checked.partitions) if model is None else model.n_units
        checked.problems.extend(checked.session.find_problems(n_units))
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
        is_case_sensitive=checked.catalyst.is_case_sensitive,
        statistics=checked.statistics,
        run=checked.run,
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


@dataclass(frozen=True)
class FlatColumn:
    """A column of a stream, and its name ``flat`` in the flat result of a step."""

    alias: str
    name: str
    flat: str
    type: DataType


@dataclass(frozen=True)
class JoinResult:
    """The result of a step as a source of a later step: flat columns and the result time."""

    step: JoinPlan
    left: "JoinResult | None"
    """The result that is the left source of the step. It is None if the left source is a stream."""
    right: "JoinResult | None"
    """The result that is the right source of the step. It is None if the right source is a stream."""
    columns: tuple[FlatColumn, ...]
    event_times: Mapping[str, str]
    """The flat event-time column of each alias. It is empty unless every stream has an event time."""
    windows_us: Mapping[str, int] | None

    def dataframe(self) -> DataFrame:
        """Build the flat columns of the step's pairs that are inside all windows."""
        pairs = self.step.results()
        flat = []
        for column in self.columns:
            alias, source = self._find_side(column.alias)
            name = column.name if source is None else column.flat
            flat.append(F.col(f"{quote(alias)}.{quote(name)}").alias(column.flat))
        if self.watermark_bound is not None:
            flat.append(F.col(quote(self.watermark_bound)))
        frame = pairs.select(*flat)
        if not self.event_times:
            return frame
        times = {alias: F.col(quote(name)) for alias, name in self.event_times.items()}
        newest = F.greatest(*times.values())
        if self.windows_us is not None:
            for alias, time in times.items():
                frame = frame.where(_is_within(newest, time, self.windows_us[alias], self.time_type))
        return frame.withColumn(RESULT_TIME, build_result_time(list(times.values()), {MARK: 0}))

    @property
    def sides(self) -> "tuple[tuple[str, JoinResult | None], ...]":
        """The alias and the source of each input of the step. The source of a stream is None."""
        return tuple(zip(self.step.query.aliases, (self.left, self.right), strict=True))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The joined streams in the order of the columns."""
        return tuple(dict.fromkeys(column.alias for column in self.columns))

    @property
    def tree(self) -> str:
        """The tree of joins as text."""
        left, right = (alias if source is None else source.tree for alias, source in self.sides)
        return f"({left} JOIN {right})"

    def _find_side(self, alias: str) -> "tuple[str, JoinResult | None]":
        """Find the input of the step that has a stream."""
        return next(
            (name, source)
            for name, source in self.sides
            if (name == alias if source is None else alias in source.aliases)
        )

    def relocate_inputs(self, phrase: Phrase) -> str:
        """Write a phrase over the joined streams as SQL over the inputs of the step."""
        text = phrase.text
        for alias, source in self.sides:
            text = text if source is None else source.relocate(parse(text), alias)
        return text

    def relocate(self, phrase: Phrase, alias: str) -> str:
        """Write a phrase over the joined streams as SQL over this result, which has the alias ``alias``."""
        moved = {column.alias.casefold(): column.alias for column in self.columns}
        return relocate(phrase, moved, lambda *column: f"{quote(alias)}.{quote(self.find_flat(*column))}")

    def find_flat(self, alias: str, name: str) -> str:
        """Find the flat name of a column, which may be spelled in another case."""
        mine = [column for column in self.columns if column.alias == alias]
        exact = next((column.flat for column in mine if column.name == name), None)
        return exact or next(column.flat for column in mine if column.name.casefold() == name.casefold())

    def write_window_checks(self, alias: str, other: Stream) -> tuple[str, ...]:
        """Write the condition that the other input of the next step is in the windows of all joined streams.

            t <= min(t_i + W_i)  for each joined stream i

        The time t of the other input is its event time or its result time. The joined streams are in each
        other's windows already. If the other input is a stream, the next step itself checks that the joined
        streams are in its window.
        """
        if self.windows_us is None or not self.event_times:
            return ()
        ends = [
            _add_span(f"{quote(alias)}.{quote(time)}", self.time_type, self.windows_us[known])
            for known, time in self.event_times.items()
        ]
        time = f"{quote(other.alias)}.{quote(str(other.event_time))}"
        if self.time_type == TimestampType():
            time = f"unix_micros({time})"
        return (f"{time} <= least({', '.join(ends)})",)

    @property
    def watermark_bound(self) -> str | None:
        return WATERMARK_BOUND if self.step.settings.bounds_watermark else None

    def list_dropping(self) -> list[str]:
        """The steps before this one say what is before them."""
        return []

    @property
    def time_type(self) -> DataType:
        """The type of the result time: that of the event times, or the wider one if there are two."""
        flat = set(self.event_times.values())
        types = {column.type for column in self.columns if column.flat in flat}
        return types.pop() if len(types) == 1 else TimestampType()

    @property
    def schema(self) -> StructType:
        """The schema of ``dataframe``. It is known without building the DataFrame."""
        fields = [StructField(column.flat, column.type) for column in self.columns]
        if self.watermark_bound is not None:
            fields.append(StructField(self.watermark_bound, LongType()))
        if self.event_times:
            fields.append(StructField(RESULT_TIME, self.time_type, metadata={MARK: 0}))
        return StructType(fields)


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
            return _Input(stream, schema, StreamInput(self._checked.request.streams[tree]), None)
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


LAST_US = 2**63 - 1
"""The latest TIMESTAMP, in microseconds since 1970."""


def _is_within(latest: Column, time: Column, span_us: int, type_: DataType) -> Column:
    """Whether ``latest - time`` is at most the span in elapsed time, in which a day has 24 hours."""
    if type_ == TimestampType():
        # Spark subtracts timestamps as local times, and a change to summer time moves the local clock.
        return F.unix_micros(latest) - F.unix_micros(time) <= span_us
    return (latest - time) <= F.expr(f"INTERVAL '{span_us} microseconds'")


def _add_span(time: str, type_: DataType, span_us: int) -> str:
    """Write the SQL of an event time plus elapsed time. A TIMESTAMP is written as a number of microseconds,
    because Spark adds days to it in local time. A sum beyond the largest number is the largest number."""
    if type_ == TimestampType():
        return f"least(unix_micros({time}), {LAST_US - span_us}) + {span_us}"
    span = f"INTERVAL '{span_us // 1_000_000}.{span_us % 1_000_000:06}' SECOND"
    return f"{time} + {span}"
