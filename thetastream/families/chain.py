"""Plans joins of two streams on a handshake chain (ESJ), and explains the terms of its cost function J."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from thetastream.engine.handshake.block_size import BYTE_S, LOOK_S, MESSAGE_S, BlockCost
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.families.pairs.explain import explain_statistics
from thetastream.families.pairs.flow import describe_pairs
from thetastream.families.pairs.plan import TwoStreamPlan, describe_emitted, plan_two_streams
from thetastream.families.pairs.workload import Workload, build_workload
from thetastream.families.request import JoinRequest, Refusal
from thetastream.lowering.physical import PhysicalPlan
from thetastream.lowering.query import Query
from thetastream.lowering.report import Fact
from thetastream.lowering.statistics import Statistics
from thetastream.models.base import AUTO
from thetastream.models.chain import Chain
from thetastream.runtime.flow import Emitted, UnitStage

ASSUMED_EPOCH_S = 1.0
"""Assumed event time that an epoch spans, if it was not measured."""


def estimate_block_cost(model: Chain, work: Workload, epoch_s: float) -> BlockCost:
    """Estimate the work of a worker at an end of the chain in an epoch.

    All arrivals probe, and all except 1 / k of them move on to the next worker.
    """
    left, right = work.inflows
    arrivals = (left.rate + right.rate) * (epoch_s or ASSUMED_EPOCH_S)
    held = sum(flow.estimate_held(1) for flow in work.inflows) / model.workers
    looks = held if work.index.cost.looks_at_all else (work.candidates or 1.0)
    return BlockCost(
        moved=arrivals * (model.workers - 1) / model.workers,
        probes=arrivals,
        look_share=min(1.0, looks / max(held, 1.0)),
        nbytes=(left.sent_bytes + right.sent_bytes) / 2,
        held=held,
    )


def explain_chain(model: Chain, query: Query, work: Workload, statistics: Statistics) -> Iterator[Fact]:
    """Yield the cost of the chain."""
    a, b = query.aliases
    k = model.workers
    yield Fact(f"tuple of {a}, of {b}:", f"1 send, then from worker to worker, {k - 1} at most, one an epoch")
    yield Fact("state:", f"each tuple once; those of {b} that are under way twice, for two epochs")
    cost = estimate_block_cost(model, work, statistics.epoch_s)
    if not cost.moved:
        return
    best = cost.find_best(model.alpha)
    block = best if model.block == AUTO else int(model.block)
    yield Fact(
        "block:",
        f"J(b) = {cost.moved:,.0f} moved x {MESSAGE_S * 1e6:.0f} us / b + {cost.moved:,.0f} x "
        f"{cost.nbytes:.0f} bytes x {BYTE_S * 1e9:.0f} ns + {cost.probes:,.0f} probes x "
        f"{cost.look_share:.2g} x {LOOK_S * 1e9:.0f} ns x b / 2, an epoch",
    )
    for name, size in (("runs with", block), ("least at", best)):
        terms = cost.serialisation_s(size), cost.transmission_s, cost.imbalance_s(size)
        parts = ", ".join(
            f"{word} {seconds * 1000:.3g} ms"
            for word, seconds in zip(("serialisation", "transmission", "imbalance"), terms, strict=True)
        )
        yield Fact(f"  {name} b = {size:,}:", f"{cost.total_s(size) * 1000:.3g} ms ({parts})")
    if model.block == AUTO:
        yield Fact("", "  every worker measures its own terms, and chooses its block anew at each epoch")


@dataclass(frozen=True, repr=False)
class ChainPlan(TwoStreamPlan):
    """A join of two streams on a handshake chain, whose workers pass tuples on to their neighbours."""

    sends_messages = True
    # A pair may be found long after its later tuple came.
    is_prompt = False

    @property
    def stores_tuples_only(self) -> bool:
        return False  # tuples and messages about them are under way between the workers

    def _describe_emitted(self) -> Emitted | str:
        return describe_emitted(self)

    def _describe_final_join(self) -> str:
        return "results of a chain may come behind the watermark"

    def _explain_cost(self) -> Iterator[Fact]:
        given = self.request.statistics
        known = given or Statistics()
        work = build_workload(self.query, self.lowered, known)
        assert isinstance(self.model, Chain)
        yield from explain_chain(self.model, self.query, work, known)
        yield explain_statistics(self.query, given)
        yield Fact("choice:", f"{self.model!r}, {self.chosen.reason}")

    def list_stages(self, plan: PhysicalPlan) -> tuple[UnitStage, ...]:
        output = describe_pairs(plan.sides, plan.residual)
        return (UnitStage(self.build_task(plan), output),)

    def build_task(self, plan: PhysicalPlan) -> HandshakeSpec:
        """Build the join of one of several tasks, whose plan may name key columns otherwise."""
        assert isinstance(self.model, Chain)
        return HandshakeSpec(plan.condition, plan.indexes, plan.archive_period_us, self.model)


class ChainFamily:
    """Joins of two streams on a handshake chain.

    Batch DataFrames have no epochs in which tuples could move.
    """

    refused: ClassVar[Mapping[str, Refusal]] = {}

    def takes(self, request: JoinRequest) -> bool:
        model = request.model
        is_chain = isinstance(model, Chain) and model.forwards_tuples
        return is_chain and request.is_streaming and len(request.streams) == 2

    def plan(self, request: JoinRequest) -> ChainPlan:
        return plan_two_streams(request, ChainPlan)


CHAIN = ChainFamily()
