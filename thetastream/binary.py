"""The join of two streams: read, checked, planned.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, both inside the window }
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On, read_condition
from thetastream.frontend.streams import read_streams
from thetastream.frontend.window import is_counted, read_counts, read_window
from thetastream.joiner.placing import placing
from thetastream.models.base import Model
from thetastream.models.biclique import Biclique
from thetastream.models.split import Split
from thetastream.order import Order, read_order
from thetastream.plan.explain import explain
from thetastream.plan.folding import Folding
from thetastream.plan.lower import Lowered, lower
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.query import Query
from thetastream.spark.ordered import ARRIVAL
from thetastream.windows import Within

_MOST_DEFAULT_UNITS = 16


@dataclass(frozen=True)
class JoinPlan:
    """A join that is checked and planned, and has not started."""

    query: Query
    lowered: Lowered
    model: Model
    model_reason: str
    streams: tuple[DataFrame, DataFrame]
    cache_folder: str | None = None
    order: Order | None = None

    @property
    def physical(self) -> PhysicalPlan:
        """Key columns, dimensions, index shapes, residual."""
        return self.lowered.physical

    @property
    def event_times(self) -> dict[str, str]:
        """Event-time column by alias, of the streams that have one."""
        return {stream.alias: stream.event_time for stream in self.query.streams if stream.event_time}

    def explain(self) -> str:
        """Every stage as text: parsed, rewritten, shaped, physical, cost."""
        return explain(self.query, self.lowered, self.model, self.model_reason, self.order)

    def dataframe(self, folding: Folding | None = None) -> DataFrame:
        """The joined DataFrame: one struct column per alias; streaming if the inputs are.

        With ``folding``, the units' views of it instead, one row per unit, epoch and group.
        """
        from thetastream.spark.dataflow import build

        order = self.order if folding is None else None
        return build(self.physical, self.model, self.streams, self.cache_folder, folding, order)


def plan_binary(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within,
    model: Model | None,
    settings: Mapping[str, Any],
    problems: Sequence[ThetastreamError] = (),
) -> JoinPlan:
    """``th.plan`` for two streams; ``settings`` are complete, ``problems`` are raised too."""
    # 1. Streams.
    catalyst, inputs, found = read_streams(streams, within, settings["event_time"])
    problems = [*problems, *found]
    # 2. Condition.
    texts, phrases, predicates = read_condition(on, catalyst, inputs, problems)
    # 3. Window and settings.
    counts = read_counts(within, inputs, problems) if is_counted(within) else None
    within_us = None if is_counted(within) else read_window(within, inputs, catalyst, problems)
    archive_period_us, order = None, None
    try:
        if settings["archive_period"] is not None:
            archive_period_us = catalyst.duration(settings["archive_period"], "archive_period")
        order = read_order(settings["order"], settings["punctuations"])
    except QueryError as problem:
        problems.append(problem)
    # 4. Model and session.
    left, right = streams.values()
    needs_arrival = _needs_arrival(within, order)
    model, model_reason = (
        (model, "as asked for") if model is not None else _default_model(left.sparkSession, needs_arrival)
    )
    if needs_arrival and not model.sees_all:
        what = f"{needs_arrival} need the order of arrival, which {model!r} does not keep"
        problems.append(QueryError("SPLIT_NEEDED", f"{what}; use th.Split(cores), or leave model out"))
    if counts is not None and archive_period_us is not None:
        what = "archive_period is a span of event time, and a count window has none; leave it out"
        problems.append(QueryError("ARCHIVE_PERIOD", what))
    if order is not None and ARRIVAL in map(str.casefold, streams):
        problems.append(
            QueryError(
                "INVALID_ALIAS", f"ordered results have a column {ARRIVAL!r}; name the stream otherwise"
            )
        )
    if inputs[0].is_streaming:
        from thetastream.spark.session import check_session

        problems += check_session(left.sparkSession, model.n_units)
    raise_problems(problems)
    # 5. Strategy.
    spans = None if within_us is None else (within_us[0], within_us[1])
    query = Query((inputs[0], inputs[1]), tuple(texts), tuple(phrases), tuple(predicates), spans, counts)
    lowered = lower(query, catalyst, {**settings, "archive_period_us": archive_period_us})
    placing(model, lowered.physical.condition)  # or it is refused
    return JoinPlan(query, lowered, model, model_reason, (left, right), settings["cache_folder"], order)


def _needs_arrival(within: Within, order: Order | None) -> str:
    """What cannot do without the order of arrival."""
    needs = ["count windows"] * is_counted(within) + ["ordered results"] * (order is not None)
    return " and ".join(needs)


def _default_model(spark: Any, needs_arrival: str) -> tuple[Model, str]:
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "2")
    if needs_arrival:
        cores = max(1, min(partitions, 2 * _MOST_DEFAULT_UNITS))
        return Split(cores), f"chosen: {needs_arrival}, {partitions} shuffle partitions"
    per_side = max(1, min(partitions // 2, _MOST_DEFAULT_UNITS))
    return Biclique(units=per_side), f"chosen: any condition, {partitions} shuffle partitions"
