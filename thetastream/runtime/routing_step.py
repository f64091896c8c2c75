"""The step of a Spark task that turns the tuples of a stream into blocks for units, one row for each block.

    batches -> tuples without punctuations -> numbers that spread them -> load shedder -> router -> rows

    newest generation:  store and probe, as its model says
    older generations:  probe only
    coming generation:  copies, which it stores and does not count; or probes, to count arrivals

If the control plan has several generations, the router routes the tuples to all of them. A model says where
tuples of newer generations probe (``Model.route_probes``). The later of two tuples meets the earlier one at
exactly one unit that stores the earlier one. So the later tuple finds the earlier one exactly once: in the
generation that stores it. A slot may belong to several generations, and it gets each tuple once. This is
enough, because a tuple that probes it in one of them probes it in all (``Model.shared_kind``). If each tuple
must meet all its partners at one unit, other generations than the newest one get only tuples that may be
partners (``thetastream.runtime.control.handover``).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.blocks import count_fillers, drop_fillers, gather, make_binary, make_nullable, pack
from thetastream.core.columns import (
    ANNOUNCEMENT,
    BLOCK,
    EMPTY,
    HEADER,
    KIND,
    LATEST_TIME,
    MEASURE,
    ORIGIN,
    SHED,
    STREAM,
    UNIT,
)
from thetastream.core.keys import Mask
from thetastream.core.sides import Role
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.routing import Router, split_hash, take_blocks
from thetastream.engine.spreading import Spreader
from thetastream.models.base import Route
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.control.plan import ControlPlan, Generation
from thetastream.runtime.epoch import Coordination, freeze_objects
from thetastream.runtime.punctuations import take_out
from thetastream.runtime.task_facts import ReadTask

Batches = Iterator[pa.RecordBatch]


def make_routing_step(
    fitted: FittedSpec,
    stream: int,
    coordination: Coordination,
    *,
    is_streaming: bool,
    spreads_equal: bool = False,
    has_punctuations: bool = False,
    read_task: ReadTask,
) -> Callable[[Batches], Batches]:
    """Make the function that turns batches into blocks.

    ``spreads_equal`` says whether tuples of equal hashes are equal, so that they may go to several units, and
    ``has_punctuations`` whether batches have the column ``PUNCTUATION``.
    """
    shed, control, early = coordination.shed, coordination.control, coordination.early
    punctuations = coordination.punctuations
    is_announced = is_streaming and (fitted.planned.has_event_time or fitted.planned.has_messages)

    def to_rows(batches: Batches) -> Batches:
        freeze_objects()
        # 1. Find the router and the units of this epoch.
        task = read_task()
        spec, keys, _ = fitted.fit(task.partitions)
        plan = None if control is None else control.find_plan(task)
        if plan is None:
            route, called = spec.router.route, keys[: spec.n_units]
        else:
            route = build_router(fitted.planned, plan).route
            called = tuple(keys[slot] for slot in plan.slots)
        followed = None if plan is None else str(plan.version)
        # 2. Announce the epoch. Origins order the blocks of a stream by partition.
        origin, sent = task.partition << 32, 0
        if is_announced and not origin:
            # An announcement calls every unit in every epoch. So each unit knows the watermark of the
            # previous one, and notices if messages that it sent were lost.
            yield make_rows(called, ANNOUNCEMENT, stream, origin, repeat_nothing(len(called)))
        if plan is not None and plan.policy is not None and not origin and not stream:
            yield make_rows(called, MEASURE, stream, origin, repeat_nothing(len(called)))
        batches = map(drop_fillers, batches)
        shedder = None
        if shed is not None:
            least = 0.0 if plan is None else plan.shed_factor
            shedder = shed.open(task, stream, least)
        # 3. Take punctuations out, and route the tuples that are not dropped.
        latest_us: int | None = None
        punctuated_us: list[int] = []
        spreader = Spreader(task.epoch or 0, task.partition) if spreads_equal else None
        for number, batch in enumerate(map(make_nullable, gather(batches))):
            if has_punctuations:
                batch, time_us = take_out(batch)
                punctuated_us += [] if time_us is None else [time_us]
            if spreader is not None:
                batch = spreader.spread(batch)
            tuples, probing = (batch, None) if shedder is None else shedder.drop(batch)
            if not tuples.num_rows:
                continue
            if early is not None:
                latest_us = early.find_latest(stream, tuples, latest_us)
            for unit, role, packed in _pack_routes(route(stream, tuples, probing)):
                # Each batch has one row, because all blocks together may exceed what an Arrow array can hold.
                yield make_rows([keys[unit]], int(role), stream, origin + number, packed, followed)
                n = count_fillers(task.partition, sent, packed.nbytes)
                sent += packed.nbytes
                if n:
                    yield make_rows([keys[unit]] * n, EMPTY, stream, origin, repeat_nothing(n))
        if punctuations is not None and punctuated_us:
            punctuations.write(task, stream, max(punctuated_us))
        # 4. Report the latest event time, and the tuples that were dropped.
        if latest_us is not None:
            yield make_rows(called, LATEST_TIME, stream, origin, repeat_nothing(len(called)), str(latest_us))
        if shedder is not None and shedder.report is not None:
            report = json.dumps(shedder.report)
            yield make_rows(called[:1], SHED, stream, origin, repeat_nothing(1), report)

    return to_rows


def _pack_routes(routes: Iterable[tuple[int, Role, pa.RecordBatch]]) -> Iterator[tuple[int, Role, pa.Array]]:
    """Pack the block of each route. A block that goes to several units is packed once."""
    # The list keeps all blocks alive, so that no two of them have the same id().
    kept = list(routes)
    packed: dict[int, pa.Array] = {}
    for unit, role, block in kept:
        name = id(block)
        if name not in packed:
            packed[name] = make_binary(pack(block))
        yield unit, role, packed[name]


def repeat_nothing(n: int) -> pa.Array:
    """Make ``n`` empty blocks."""
    return pa.array([b""] * n, pa.binary())


def make_rows(
    units: Sequence[int], kind: int, stream: int, origin: int, blocks: pa.Array, header: str | None = None
) -> pa.RecordBatch:
    """Make one row of the exchange per unit, in the schema ``SCHEMA``."""
    n = len(units)
    columns = {
        UNIT: pa.array(units, pa.int32()),
        KIND: pa.array([kind] * n, pa.int8()),
        STREAM: pa.array([stream] * n, pa.int8()),
        ORIGIN: pa.array([origin] * n, pa.int64()),
        HEADER: pa.array([header] * n, pa.string()),
        BLOCK: blocks,
    }
    return pa.RecordBatch.from_pydict(columns)


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
