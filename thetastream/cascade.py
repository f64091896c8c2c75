"""The join of three and more streams: a left-deep pipeline of binary joins.

((a JOIN b) JOIN c) JOIN d: each step joins what is joined so far, flat columns ``alias__column``, with
one more stream. The result time T of a tuple so far is its latest event time, and carries the mark of
the watermark on: it is later than the watermark it was found under, so the next step never finds it
late. With windows W_i a result must have T - t_i <= W_i for every stream i; a step keeps tuples so far
for min(W_i), and what still differs per stream is filtered behind it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.binary import JoinPlan, plan_binary
from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On
from thetastream.frontend.many import read_many
from thetastream.frontend.statistics import read_statistics
from thetastream.frontend.streams import MARK
from thetastream.joiner.hop import Regrouped
from thetastream.models.base import Model
from thetastream.plan.domains import quoted
from thetastream.plan.order import join_order
from thetastream.plan.query import Stream
from thetastream.plan.statistics import Statistics
from thetastream.predicate import Phrase, Predicate
from thetastream.predicate.names import relocate
from thetastream.windows import Within, spell

TIME = "result_time"


@dataclass(frozen=True)
class CascadePlan:
    """A pipeline of binary joins that is checked and planned, and has not started."""

    aliases: tuple[str, ...]
    """In the order of the result's columns."""
    steps: tuple[JoinPlan, ...]
    """In the order they run."""
    event_times: dict[str, str]
    """Event-time column by alias, of the streams that have one."""
    order_reason: str
    result: DataFrame

    def explain(self) -> str:
        """The tree, then every step as ``JoinPlan.explain`` gives it."""
        tree = self.steps[0].query.aliases[0]
        for step in self.steps:
            tree = f"({tree} JOIN {step.query.aliases[1]})"
        steps = (f"== Step {n} ==\n{step.explain()}" for n, step in enumerate(self.steps, 1))
        return "\n\n".join([f"== Pipeline ==\n{tree}\norder: {self.order_reason}", *steps])

    def dataframe(self) -> DataFrame:
        """The joined DataFrame: one struct column per alias; streaming if the inputs are."""
        return self.result


def plan_cascade(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within,
    model: Model | str | None,
    settings: Mapping[str, Any],
    problems: Sequence[ThetastreamError] = (),
) -> CascadePlan:
    """``th.plan`` for three streams and more; ``settings`` are complete, ``problems`` are raised too."""
    problems = list(problems)
    asked = read_many(streams, on, within, settings, problems)
    inputs, reads, calls = asked.inputs, asked.phrases, asked.predicates
    read_statistics(settings["statistics"], streams, problems)
    raise_problems(problems)
    spans = asked.within_us
    if isinstance(model, Model) and not model.is_prompt(2) and inputs[0].is_streaming:
        what = f"{model!r} joins two streams: the next join of a pipeline would call its results late"
        raise QueryError("LATE_RESULTS", f"{what}; use th.Ring, or another model")
    windows = None if spans is None else dict(zip(streams, spans, strict=True))
    by_alias = {stream.alias: stream for stream in inputs}
    order = [by_alias[alias] for alias in join_order(asked.sizes, asked.ties)]
    event_times = {stream.alias: stream.event_time for stream in inputs if stream.event_time}
    work = _Cascade(streams, by_alias, windows, event_times, order[0].alias)
    steps = []
    for stream in order[1:]:
        arrived = {*work.joined, stream.alias}
        texts = [work.relocated(phrase) for phrase, aliases in reads if aliases <= arrived]
        functions = [work.regrouped(predicate) for predicate, aliases in calls if aliases <= arrived]
        reads = [(phrase, aliases) for phrase, aliases in reads if not aliases <= arrived]
        calls = [(predicate, aliases) for predicate, aliases in calls if not aliases <= arrived]
        steps.append(work.step(stream, [*texts, *functions] or ["true"], model, settings))
    reason = "the smallest results first, as estimated from windows and kinds of conjuncts"
    return CascadePlan(tuple(streams), tuple(steps), event_times, reason, work.result(list(streams)))


def result_time(times: Sequence[Column], delay_ms: int) -> Column:
    """The latest of these event times, marked as event time; NULL, and so never late, if one is NULL."""
    is_known = reduce(and_, (time.isNotNull() for time in times))
    return F.when(is_known, F.greatest(*times)).alias(TIME, metadata={MARK: delay_ms})


class _Cascade:
    """What is joined so far, and how to take one more stream in."""

    def __init__(
        self,
        frames: Mapping[str, DataFrame],
        inputs: Mapping[str, Stream],
        windows: Mapping[str, int] | None,
        event_times: Mapping[str, str],
        first: str,
    ) -> None:
        self._frames = frames
        self._inputs = inputs
        self._windows = windows
        self._event_times = event_times
        self._flat_names = _flat_names(inputs.values())
        self.joined = [first]
        self._alias = first
        self._frame = frames[first]

    def _flat(self, alias: str, column: str) -> str:
        names = self._flat_names
        exact = names.get((alias, column))
        return exact or next(
            flat for (a, c), flat in names.items() if a == alias and c.casefold() == column.casefold()
        )

    @property
    def _is_flat(self) -> bool:
        return len(self.joined) > 1

    def relocated(self, phrase: Phrase) -> str:
        """The conjunct over the columns as they are called now."""
        if not self._is_flat:
            return phrase.text
        moved = {alias.casefold(): alias for alias in self.joined}
        return relocate(
            phrase, moved, lambda alias, column: f"{quoted(self._alias)}.{quoted(self._flat(alias, column))}"
        )

    def regrouped(self, predicate: Predicate) -> Predicate:
        """The predicate as one over what is joined so far and the next stream."""
        if not self._is_flat:
            return predicate
        inside = {alias.casefold(): alias for alias in self.joined}
        moved, kept = [], []
        for alias, names in predicate.columns:
            stream = inside.get(alias.casefold())
            if stream is None:
                kept.append((alias, names))
            else:
                moved.append((alias, tuple((name, self._flat(stream, name)) for name in names)))
        together = tuple(flat for _, names in moved for _, flat in names)
        function = Regrouped(predicate.name, predicate, self._alias, tuple(moved))
        return Predicate(function, ((self._alias, together), *kept), predicate.is_encoded)

    def step(
        self,
        stream: Stream,
        on: list[str | Predicate],
        model: Model | str | None,
        settings: Mapping[str, Any],
    ) -> JoinPlan:
        """Join with one more stream."""
        alias, left = stream.alias, self._alias
        within = None
        if self._windows is not None:
            shortest = min(self._windows[a] for a in self.joined)
            within = {left: spell(shortest), alias: spell(self._windows[alias])}
        times = {a: t for a, t in ((left, self._time()), (alias, stream.event_time)) if t is not None}
        event_time = None if stream.is_streaming else times
        given = settings["statistics"]
        statistics = given.of((left, alias)) if isinstance(given, Statistics) else given
        plan = plan_binary(
            {left: self._frame, alias: self._frames[alias]},
            on,
            within,
            model,
            {**settings, "event_time": event_time, "statistics": statistics},
        )
        self._take(plan.dataframe(), alias)
        return plan

    def _take(self, pairs: DataFrame, alias: str) -> None:
        columns = [
            F.col(f"{quoted(self._alias)}.{quoted(self._name(a, name))}").alias(self._flat(a, name))
            for a in self.joined
            for name, _ in self._inputs[a].types
        ]
        columns += [
            F.col(f"{quoted(alias)}.{quoted(name)}").alias(self._flat(alias, name))
            for name, _ in self._inputs[alias].types
        ]
        self.joined.append(alias)
        frame = pairs.select(*columns)
        if all(a in self._event_times for a in self.joined):
            times = {a: F.col(quoted(self._flat(a, self._event_times[a]))) for a in self.joined}
            latest = F.greatest(*times.values())
            if self._windows is not None:
                for a, time in times.items():
                    frame = frame.where(_is_within(latest, time, self._windows[a], self._time_type))
            frame = frame.withColumn(TIME, result_time(list(times.values()), 0))
        self._frame = frame
        taken = {name.casefold() for name in self._inputs}
        self._alias = "_".join(self.joined)
        while self._alias.casefold() in taken:
            self._alias += "_"

    @property
    def _time_type(self) -> str:
        first = self._inputs[self.joined[0]]
        return first.type_of(self._event_times[first.alias])

    def _time(self) -> str | None:
        if not self._is_flat:
            return self._event_times.get(self.joined[0])
        return TIME if TIME in self._frame.columns else None

    def _name(self, alias: str, column: str) -> str:
        return self._flat(alias, column) if self._is_flat else column

    def result(self, aliases: Sequence[str]) -> DataFrame:
        """One struct column per alias."""
        structs = (
            F.struct(
                *(F.col(quoted(self._flat(a, name))).alias(name) for name, _ in self._inputs[a].types)
            ).alias(a)
            for a in aliases
        )
        return self._frame.select(*structs)


def _is_within(latest: Column, time: Column, span_us: int, type_: str) -> Column:
    """Whether ``latest - time`` is at most the span, in elapsed time: days have 24 hours."""
    if type_ == "timestamp":
        # Of timestamps Spark subtracts the local clocks, which a change to summer time moves.
        return F.unix_micros(latest) - F.unix_micros(time) <= span_us
    return (latest - time) <= F.expr(f"INTERVAL '{span_us} microseconds'")


def _flat_names(streams: Iterable[Stream]) -> dict[tuple[str, str], str]:
    """(alias, column) -> ``alias__column``, with underscores behind where that is taken."""
    names: dict[tuple[str, str], str] = {}
    taken = {TIME}
    for stream in streams:
        for column, _ in stream.types:
            flat = f"{stream.alias}__{column}"
            while flat.casefold() in taken:
                flat += "_"
            taken.add(flat.casefold())
            names[stream.alias, column] = flat
    return names
