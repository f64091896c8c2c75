"""Routes the tuples of a stream to all generations of a plan.

    newest generation:  store and probe, as its model says
    older generations:  probe only

A model says where tuples of newer generations probe (``Model.route_probes``). The later of two tuples meets
the earlier one at exactly one unit that stores the earlier one. So the later tuple finds the earlier one
exactly once: in the generation that stores it. A slot may belong to several generations, and it gets each
tuple once. This is enough, because every tuple of the other side probes such a slot (``Model.shared_kind``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.control.plan import ControlPlan
from thetastream.core.sides import Role
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.routing import Mask, Router, split_hash, take_blocks
from thetastream.models.routes import Route


@dataclass(frozen=True)
class PlanRouter:
    """The router of a plan with any number of generations. Picklable."""

    generations: tuple[tuple[Router, tuple[int, ...]], ...]
    """For each generation, newest first, its router and its slots."""

    def route(
        self, stream: int, batch: pa.RecordBatch, probing: Mask | None = None
    ) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        """Yield (slot, role, block) for every destination of the rows of ``batch``.

        The batch has the column ``h``, the hash of each tuple, if a model of the plan needs it. ``probing``
        says which rows look for partners; by default all of them.
        """
        payload, tuples = split_hash(batch)
        routes: list[Route] = []
        probed: set[int] = set()
        for number, (router, slots) in enumerate(self.generations):
            find = router.find_probe_routes if number else router.find_routes
            found = list(find(stream, payload, tuples, probing))
            mine = [route._replace(unit=slots[route.unit]) for route in found]
            routes += [route for route in mine if route.unit not in probed]
            probed |= {route.unit for route in mine if route.role is not Role.STORE}
        yield from take_blocks(payload, routes)


def build_router(spec: EngineSpec, plan: ControlPlan) -> PlanRouter:
    """Build the router of a plan for the query ``spec``."""
    return PlanRouter(
        tuple((spec.with_model(one.model).router, one.slots) for one in reversed(plan.membership))
    )
