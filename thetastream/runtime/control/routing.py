"""Routes the tuples of a stream to all generations of a plan.

    newest generation:  store and probe, as its model says
    older generations:  probe only
    coming generation:  copies, which it stores and does not count; or probes, to count arrivals

A model says where tuples of newer generations probe (``Model.route_probes``). The later of two tuples meets
the earlier one at exactly one unit that stores the earlier one. So the later tuple finds the earlier one
exactly once: in the generation that stores it. A slot may belong to several generations, and it gets each
tuple once. This is enough, because every tuple of the other side probes such a slot (``Model.shared_kind``).

If each tuple must meet all its partners at one unit, other generations than the newest one get only tuples
that may be partners (``thetastream.runtime.control.handover``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.sides import Role
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.routing import Mask, Router, split_hash, take_blocks
from thetastream.models.routes import Route
from thetastream.runtime.control.plan import ControlPlan, Generation


@dataclass(frozen=True)
class PlanRouter:
    """The router of a plan with any number of generations. Picklable."""

    generations: tuple[tuple[Router, tuple[int, ...]], ...]
    """For each generation, newest first, its router and its slots."""
    partner_streams: tuple[int, ...] = ()
    """The streams in which tuples look for partners that they must all meet at one unit."""
    coming: tuple[Router, tuple[int, ...]] | None = None
    """The router and the slots of the coming generation."""

    def route(
        self, stream: int, batch: pa.RecordBatch, probing: Mask | None = None
    ) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        """Yield (slot, role, block) for every destination of the rows of ``batch``.

        ``probing`` says which rows look for partners; by default all of them.
        """
        payload, hashes = split_hash(batch)
        routes: list[Route] = []
        probed: set[int] = set()
        is_partner = stream in self.partner_streams
        has_one = self.partner_streams and not is_partner
        for number, (router, slots) in enumerate(self.generations[:1] if has_one else self.generations):
            find = router.find_probe_routes if number else router.find_routes
            found = list(find(stream, payload, hashes, probing))
            mine = [route._replace(unit=slots[route.unit]) for route in found]
            routes += [route for route in mine if route.unit not in probed]
            probed |= {route.unit for route in mine if route.role is not Role.STORE}
        if self.coming is not None and (is_partner or not self.partner_streams):
            # For an order of results, the coming generation only counts the tuples.
            role = Role.COPY if is_partner else Role.PROBE
            router, slots = self.coming
            for route in router.find_routes(stream, payload, hashes, probing):
                routes.append(route._replace(unit=slots[route.unit], role=role))
        yield from take_blocks(payload, routes)


def build_router(spec: EngineSpec, plan: ControlPlan) -> PlanRouter:
    """Build the router of a plan for the query ``spec``."""
    older = [_build(spec, generation) for generation in reversed(plan.membership)]
    coming = None if plan.coming is None else _build(spec, plan.coming)
    return PlanRouter(tuple(older), spec.partner_streams, coming)


def _build(spec: EngineSpec, generation: Generation) -> tuple[Router, tuple[int, ...]]:
    return spec.with_model(generation.model).router, generation.slots
