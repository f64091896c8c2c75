"""The join of three streams and more, hop by hop on the ring and its like: read, checked, planned.

{ (t1, ..., tm) : condition is TRUE, T - ti <= Wi for the latest event time T }

No intermediate result is stored: each tuple, once, where its slice lies (``thetastream.joiner.ring``). On
batch DataFrames there are no epochs that messages could wait for: there the same bag comes from the pipeline
of binary joins (``thetastream.cascade``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from thetastream.binary import JoinPlan, plan_binary
from thetastream.cascade import CascadePlan, plan_cascade
from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On
from thetastream.frontend.mailbox import mailbox_folder
from thetastream.frontend.many import read_many
from thetastream.frontend.model import read_model
from thetastream.frontend.statistics import read_statistics
from thetastream.joiner.ring import RingSpec
from thetastream.models import Multiway, Ring
from thetastream.models.multiway import AUTO, Travel
from thetastream.plan.choose import units_of
from thetastream.plan.cost_ring import RingLoad, initial_slice, load_of
from thetastream.plan.explain_ring import explain_ring
from thetastream.plan.graph import LoweredGraph, lower_graph
from thetastream.plan.lower import archive_period
from thetastream.plan.order import Tie, continued
from thetastream.plan.physical import described
from thetastream.plan.query import Stream
from thetastream.plan.ring import Orders, ring_spec
from thetastream.plan.statistics import Statistics
from thetastream.windows import Rows, Within


@dataclass(frozen=True)
class RingPlan:
    """An m-way join hop by hop that is checked and planned, and has not started."""

    inputs: tuple[Stream, ...]
    on: tuple[str, ...]
    within_us: tuple[int, ...] | None
    lowered: LoweredGraph
    ring: RingSpec
    streams: tuple[DataFrame, ...]
    mailbox: str
    cache_folder: str | None
    load: RingLoad
    """What the ring will have to do, as estimated."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """In the order of the result's columns."""
        return tuple(stream.alias for stream in self.inputs)

    @property
    def event_times(self) -> dict[str, str]:
        """Event-time column by alias, of the streams that have one."""
        return {stream.alias: stream.event_time for stream in self.inputs if stream.event_time}

    def explain(self) -> str:
        """Every stage as text: parsed, rewritten, hops, physical, cost."""
        return explain_ring(
            self.inputs, self.on, self.within_us, self.lowered, self.ring, self.mailbox, self.load
        )

    def dataframe(self) -> DataFrame:
        """The joined DataFrame: one struct column per alias, streaming."""
        from thetastream.spark.ring import build

        return build(
            self.lowered, self.ring, self._fingerprint(), self.streams, self.mailbox, self.cache_folder
        )

    def _fingerprint(self) -> dict[str, str]:
        graph = self.ring.graph
        return {
            **described(self.lowered.sides),
            "event times": repr([side.time for side in graph.sides]),
            "keys": repr([side.keys for side in graph.sides]),
            "condition": repr(sorted(graph.edges.items())),
            "predicates": repr([predicate.name for predicate in graph.predicates]),
            "residual": repr(self.lowered.residual),
            "hops": repr(self.ring.orders),
            "archive period": repr([chain.archive_period_us for chain in self.ring.chains]),
            "model": repr(self.ring.model.kept),
        }


def plan_ring(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within,
    model: Multiway,
    settings: Mapping[str, Any],
    problems: Sequence[ThetastreamError] = (),
) -> "RingPlan | CascadePlan | JoinPlan":
    """``th.plan`` of a join hop by hop; parameters as those of ``plan_cascade``."""
    # 1. Streams, condition, window.
    problems = list(problems)
    asked = read_many(streams, on, within, settings, problems)
    catalyst, inputs, spans = asked.catalyst, asked.inputs, asked.within_us
    if settings["index"] is not None:
        what = "hops share the index of a stream, which is chosen for the strongest of their conditions"
        problems.append(QueryError("INDEX_NOT_APPLICABLE", f"{what}; leave index out"))
    # 2. Model, settings, session.
    spark = next(iter(streams.values())).sparkSession
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "2")
    statistics = read_statistics(settings["statistics"], streams, problems) or Statistics()
    is_auto = isinstance(model, Ring) and model.nodes == AUTO
    read = read_model(model, inputs, catalyst, partitions, problems)
    model = read if isinstance(read, Multiway) else model
    archive_period_us = None
    try:
        if settings["archive_period"] is not None:
            archive_period_us = catalyst.duration(settings["archive_period"], "archive_period")
    except QueryError as problem:
        problems.append(problem)
    orders = hop_orders(model, asked.sizes, asked.ties, problems)
    if not inputs[0].is_streaming:
        raise_problems(problems)
        planner = plan_binary if len(streams) == 2 else plan_cascade
        same = replace(model, order=None) if isinstance(model, Ring) else Ring(model.nodes)
        return planner(streams, on, within, same, settings)
    from thetastream.spark.session import check_session

    problems += check_session(spark, model.n_units)
    has_mailbox = len(inputs) > 2 and model.travel is not Travel.STAY
    mailbox = mailbox_folder(spark, settings["mailbox"], problems) if has_mailbox else ""
    raise_problems(problems)
    # 3. Strategy.
    lowered = lower_graph(
        inputs, [p for p, _ in asked.phrases], [p for p, _ in asked.predicates], spans, catalyst
    )
    load = load_of(inputs, lowered.graph, orders, asked.ties, statistics)
    if isinstance(model, Ring) and is_auto:
        model = replace(model, nodes=load.optimal_length(units_of(partitions)))
    if isinstance(model, Ring) and model.slice is None and settings["statistics"] is not None:
        model = replace(model, slice=Rows(initial_slice(min(load.held), model.n_units)))
    archive_period(map(lowered.graph.lifetime_us, range(len(inputs))), archive_period_us)
    ring = ring_spec(lowered.graph, orders, model, archive_period_us)
    return RingPlan(
        tuple(inputs),
        tuple(asked.texts),
        spans,
        lowered,
        ring,
        tuple(streams.values()),
        mailbox,
        settings["cache_folder"],
        load,
    )


def hop_orders(
    model: Multiway,
    sizes: Mapping[str, float],
    ties: Sequence[Tie],
    problems: list[ThetastreamError],
) -> Orders:
    """Per stream the others in the order in which its tuples look for partners."""
    aliases = list(sizes)
    folded = [alias.casefold() for alias in aliases]
    wanted = {str(alias).casefold(): order for alias, order in (model.order or {}).items()}
    problems += [
        QueryError("BAD_HOPS", f"order names {alias!r}, which is not one of {', '.join(aliases)}")
        for alias in wanted
        if alias not in folded
    ]
    orders = []
    for alias in aliases:
        others = [other for other in aliases if other != alias]
        given = wanted.get(alias.casefold(), continued([alias], sizes, ties)[1:])
        is_list = isinstance(given, list | tuple)
        order = [str(other).casefold() for other in given] if is_list else []
        if sorted(order) != sorted(map(str.casefold, others)):
            problems.append(
                QueryError(
                    "BAD_HOPS",
                    f"order of {alias!r} must list each of {', '.join(others)} once, not {given!r}",
                )
            )
            order = [other.casefold() for other in others]
        orders.append(tuple(folded.index(other) for other in order))
    return tuple(orders)
