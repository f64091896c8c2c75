"""The join of three streams and more, hop by hop on the ring and its like: read, checked, planned.

{ (t1, ..., tm) : condition is TRUE, T - ti <= Wi for the latest event time T }

No intermediate result is stored: each tuple, once, where its slice lies (``thetastream.joiner.ring``). On
batch DataFrames there are no epochs that messages could wait for: there the same bag comes from the pipeline
of binary joins (``thetastream.cascade``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from thetastream.binary import JoinPlan, plan_binary
from thetastream.cascade import CascadePlan, plan_cascade
from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On
from thetastream.frontend.hops import read_orders, refinement
from thetastream.frontend.mailbox import mailbox_folder
from thetastream.frontend.many import Many, read_many
from thetastream.frontend.model import read_model
from thetastream.frontend.statistics import read_statistics
from thetastream.joiner.ring import RingSpec
from thetastream.models import Multiway, Ring
from thetastream.models.multiway import AUTO
from thetastream.plan.choose import units_of
from thetastream.plan.cost_ring import RingLoad, initial_slice, load_of
from thetastream.plan.explain_ring import explain_ring
from thetastream.plan.graph import LoweredGraph, lower_graph
from thetastream.plan.lower import archive_period
from thetastream.plan.physical import described
from thetastream.plan.query import Stream
from thetastream.plan.ring import ring_spec
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
    # 1. What the user said.
    problems = list(problems)
    asked = read_many(streams, on, within, settings, problems)
    read = _read_model(model, asked, streams, settings, problems)
    hops = read_orders(read.model, asked.sizes, asked.ties, problems)
    if not asked.inputs[0].is_streaming:
        raise_problems(problems)
        planner = plan_binary if len(streams) == 2 else plan_cascade
        same = replace(model, order=None) if isinstance(model, Ring) else Ring(read.model.nodes)
        return planner(streams, on, within, same, settings)
    # 2. The session.
    from thetastream.spark.session import check_session

    spark = next(iter(streams.values())).sparkSession
    problems += check_session(spark, read.model.n_units)
    has_mailbox = read.model.has_mailbox(len(streams))
    mailbox = mailbox_folder(spark, settings["mailbox"], problems) if has_mailbox else ""
    raise_problems(problems)
    # 3. Condition to hops, hops to indexes.
    lowered = lower_graph(
        asked.inputs,
        [phrase for phrase, _ in asked.phrases],
        [predicate for predicate, _ in asked.predicates],
        asked.within_us,
        asked.catalyst,
    )
    graph = lowered.graph
    load = load_of(asked.inputs, graph, hops.orders, asked.ties, read.statistics or Statistics())
    chosen = _sized(model, read, load)
    archive_period(map(graph.lifetime_us, range(len(streams))), read.archive_period_us)
    refined = refinement(chosen, graph, hops.is_set, asked.ties)
    ring = ring_spec(graph, hops.orders, chosen, read.archive_period_us, refined)
    return RingPlan(
        tuple(asked.inputs),
        tuple(asked.texts),
        asked.within_us,
        lowered,
        ring,
        tuple(streams.values()),
        mailbox,
        settings["cache_folder"],
        load,
    )


class _Settings(NamedTuple):
    """Model and settings, as far as they can be read before anything is planned."""

    model: Multiway
    statistics: Statistics | None
    archive_period_us: int | None
    partitions: int


def _read_model(
    model: Multiway,
    asked: Many,
    streams: Mapping[str, DataFrame],
    settings: Mapping[str, Any],
    problems: list[ThetastreamError],
) -> _Settings:
    if settings["index"] is not None:
        what = "hops share the index of a stream, which is chosen for the strongest of their conditions"
        problems.append(QueryError("INDEX_NOT_APPLICABLE", f"{what}; leave index out"))
    spark = next(iter(streams.values())).sparkSession
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "2")
    statistics = read_statistics(settings["statistics"], streams, problems)
    read = read_model(model, asked.inputs, asked.catalyst, partitions, problems)
    archive_period_us = None
    try:
        if settings["archive_period"] is not None:
            archive_period_us = asked.catalyst.duration(settings["archive_period"], "archive_period")
    except QueryError as problem:
        problems.append(problem)
    known = read if isinstance(read, Multiway) else model
    return _Settings(known, statistics, archive_period_us, partitions)


def _sized(given: Multiway, read: _Settings, load: RingLoad) -> Multiway:
    """The model with as many nodes as cost least, and slices to begin with, where the user left them open."""
    model = read.model
    if isinstance(model, Ring) and given.nodes == AUTO:
        model = replace(model, nodes=load.optimal_length(units_of(read.partitions)))
    if isinstance(model, Ring) and model.slice is None and read.statistics is not None:
        model = replace(model, slice=Rows(initial_slice(min(load.held), model.n_units)))
    return model
