"""The join of two streams: read, checked, planned.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, both inside the window }
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On, read_condition
from thetastream.frontend.hops import read_orders
from thetastream.frontend.mailbox import mailbox_folder
from thetastream.frontend.model import read_model
from thetastream.frontend.statistics import read_statistics
from thetastream.frontend.streams import read_streams
from thetastream.frontend.window import arrival_problems, is_counted, read_counts, read_window
from thetastream.models import Chain, Multiway
from thetastream.models.base import Model
from thetastream.order import Order, read_order
from thetastream.plan.choose import arrival_problem, choose, refusal, units_of
from thetastream.plan.explain import explain
from thetastream.plan.folding import Folding
from thetastream.plan.lower import Lowered, lower
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.query import Query
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import workload
from thetastream.spark.ordered import ARRIVAL
from thetastream.windows import Within


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
    partitions: int = 2
    """Of the session the model was chosen for."""
    statistics: Statistics | None = None
    """What costs are estimated from; None: what is assumed of any stream."""
    mailbox: str = ""
    """Folder of mailboxes, for a model that needs one."""

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
        return explain(
            self.query,
            self.lowered,
            self.model,
            self.model_reason,
            self.order,
            self.partitions,
            self.statistics,
        )

    def dataframe(self, folding: Folding | None = None) -> DataFrame:
        """The joined DataFrame: one struct column per alias; streaming if the inputs are.

        With ``folding``, the units' views of it instead, one row per unit, epoch and group.
        """
        if isinstance(self.model, Chain) and self.mailbox:
            from thetastream.spark.chain import build as build_chain

            assert folding is None  # refused: its results may come behind the watermark
            return build_chain(self.physical, self.model, self.streams, self.mailbox, self.cache_folder)
        from thetastream.spark.dataflow import build

        order = self.order if folding is None else None
        return build(self.physical, self.model, self.streams, self.cache_folder, folding, order)


def plan_binary(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within,
    model: Model | str | None,
    settings: Mapping[str, Any],
    problems: Sequence[ThetastreamError] = (),
) -> JoinPlan:
    """``th.plan`` for two streams; ``settings`` are complete, ``problems`` are raised too."""
    # 1. Streams.
    needs_time = within is not None or settings["order"] is not None
    catalyst, inputs, found = read_streams(streams, needs_time, settings["event_time"])
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
    statistics = read_statistics(settings.get("statistics"), streams, problems)
    partitions = int(left.sparkSession.conf.get("spark.sql.shuffle.partitions") or "2")
    named = read_model(model, inputs, catalyst, partitions, problems)
    if isinstance(named, Multiway):
        read_orders(named, dict.fromkeys(streams, 1.0), (), problems)  # of two streams there is only one
    unordered = None if named is None else arrival_problem(named, is_counted(within), order is not None)
    if unordered is not None:
        problems.append(unordered)
    if counts is not None and archive_period_us is not None:
        what = "archive_period is a span of event time, and a count window has none; leave it out"
        problems.append(QueryError("ARCHIVE_PERIOD", what))
    if order is not None and ARRIVAL in map(str.casefold, streams):
        problems.append(
            QueryError(
                "INVALID_ALIAS", f"ordered results have a column {ARRIVAL!r}; name the stream otherwise"
            )
        )
    if counts is not None or order is not None:
        problems += [found for found in arrival_problems(inputs) if str(found) not in map(str, problems)]
    mailbox = ""
    if inputs[0].is_streaming:
        from thetastream.spark.session import check_session

        n_units = units_of(partitions) if named is None else named.n_units
        problems += check_session(left.sparkSession, n_units)
        if isinstance(named, Chain) and named.hands_on:
            mailbox = mailbox_folder(left.sparkSession, settings["mailbox"], problems)
    elif named is not None:
        named = named.on_batch
    raise_problems(problems)
    # 5. Strategy.
    spans = None if within_us is None else (within_us[0], within_us[1])
    query = Query((inputs[0], inputs[1]), tuple(texts), tuple(phrases), tuple(predicates), spans, counts)
    lowered = lower(query, catalyst, {**settings, "archive_period_us": archive_period_us})
    if named is None:
        work = workload(query, lowered, statistics or Statistics())
        named, reason = choose(
            work, partitions, lambda model: refusal(model, lowered, order is not None) is None
        )
    else:
        reason = "as asked for"
        raise_problems([problem for problem in [refusal(named, lowered)] if problem is not None])
    folder = settings["cache_folder"]
    return JoinPlan(
        query, lowered, named, reason, (left, right), folder, order, partitions, statistics, mailbox
    )
