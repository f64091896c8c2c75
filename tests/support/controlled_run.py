"""Run a controlled query in this process: requests change its units between epochs.

The control source, the entries that routers read and the notices to units are those of Spark. Files are
dictionaries.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tests.support.local_run import LocalRun, add_hash
from thetastream.core.columns import HASH
from thetastream.core.keys import Mask
from thetastream.core.records import encode
from thetastream.core.sides import Role
from thetastream.engine.inbox import Inbox
from thetastream.engine.protocol import Engine, EngineSpec, OpenStore
from thetastream.engine.store.segment import MemoryStore
from thetastream.models.base import Model
from thetastream.runtime.control.change import ControlOffset, apply_requests
from thetastream.runtime.control.notices import ENDS, JOINS, Member, Notice, describe_peers, list_notices
from thetastream.runtime.control.plan import ControlPlan, Rules, decode_model
from thetastream.runtime.control.request import Request
from thetastream.runtime.routing_step import PlanRouter, build_router


class ControlledRun(LocalRun):
    """A query whose units may change, one epoch at a time.

    Parameters
    ----------
    spec : EngineSpec
        The query under the model with which it starts.
    model : Model
        This model.
    rules : Rules
        What the query allows.
    """

    def __init__(self, spec: EngineSpec, model: Model, rules: Rules) -> None:
        super().__init__(spec, rules.max_units)
        self._rules = rules
        first = ControlPlan.begin(model)
        self.offset = ControlOffset(first)
        """The offset of the control source."""
        self.requests: dict[str, str] = {}
        """The requests that were put, by name."""
        self.entries: dict[int, ControlPlan] = {0: first}
        """The published plans, by the epoch from which each holds."""
        self.arrived: dict[int, tuple[int, int]] = {}
        """The numbers of arrived tuples in these marks, by the version of the plan."""
        self.drained: set[tuple[int, int]] = set()
        """The marks of units that have drained: (slot, version of the plan)."""
        self.members = [Member() for _ in range(rules.max_units)]
        self._told: tuple[set[int], Any] = set(), None
        """The units that are told in this epoch which tasks run from the next one on, and these tasks."""
        self._notices: dict[int, Notice] = {}

    def put(self, request: Request, name: str | None = None) -> str:
        """Put a request, which the next epoch reads; return its name."""
        name = name or f"{len(self.requests):06}"
        self.requests[name] = request.write()
        return name

    def epoch(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None = None
    ) -> Iterator[list[pa.Array]]:
        """Run one epoch over all units and yield the columns of results, piece by piece."""
        before = self.offset
        self.read_offset(apply_requests(before, self.requests, self.drained, self._rules, self.arrived))
        yield from super().epoch(batches, watermark_us)

    def read_offset(self, after: ControlOffset) -> None:
        """Publish the plan of the next offset, which holds from the epoch after the one that begins now."""
        epoch = self._clock.epoch + 1
        if after.plan.version != self.offset.plan.version:
            self.entries[epoch + 1] = after.plan
        self._notices = list_notices(self.offset.plan, after.plan)
        is_told = after.plan.version != self.offset.plan.version and after.plan.tasks is not None
        told = {*self.offset.plan.slots, *after.plan.slots} if is_told else set()
        self._told = told, encode(after.plan.tasks)
        self.offset = after

    @property
    def plan(self) -> ControlPlan:
        """The plan of the epoch that runs."""
        return self.entries[max(epoch for epoch in self.entries if epoch <= self._clock.epoch)]

    @property
    def _slots(self) -> Sequence[int]:
        return self.plan.slots

    def open(self, slot: int) -> Engine:
        """Open the engine of one unit for the epoch that ``deliver`` began, after its notice."""
        notice = self._notices.get(slot)
        if notice is not None and notice.event == JOINS and not notice.keeps:
            self.states[slot], self._stores[slot] = self._spec.state_type(), MemoryStore()
        if notice is not None and notice.event != ENDS:
            self.members[slot] = self.members[slot].hear(notice, self._clock.epoch)
        return super().open(slot)

    def _open(self, slot: int, state: Any, open_store: OpenStore) -> Engine:
        member = self.members[slot]
        if member.model is None:
            return self._spec.open(slot, state, open_store)
        spec = self._spec.with_model(decode_model(member.model))
        return spec.open(member.unit, state, open_store)

    def run(self, slot: int, inbox: Inbox, engine: Engine | None = None) -> Iterator[list[pa.Array]]:
        """Run one unit in the epoch that ``deliver`` began, if the plan has it or a notice came for it."""
        if slot not in self.plan.slots and slot not in self._notices:
            return
        engine = engine or self.open(slot)  # The unit reads its notice before it learns of its peers.
        member = self.members[slot]
        inbox.peers = describe_peers(self.plan, member, slot, self._notices.get(slot))
        inbox.tasks = self._told[1] if slot in self._told[0] else None
        yield from super().run(slot, inbox, engine)
        counters, epoch = self.counters[slot], self._clock.epoch
        member = self.members[slot] = member.remember(epoch, counters)
        drained = member.find_drained(epoch, self._clock.watermark_us, counters.is_empty)
        if drained is not None:
            self.drained.add((slot, drained))
            if member.arrived is not None:
                left, right = member.arrived
                self.arrived[drained] = left, right
        notice = self._notices.get(slot)
        if notice is not None and notice.event == ENDS:
            self.members[slot] = Member()
            self.states[slot], self._stores[slot] = self._spec.state_type(), MemoryStore()

    def _route(
        self, stream: int, batch: pa.RecordBatch, probing: Mask | None = None
    ) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        router: PlanRouter = build_router(self._spec, self.plan)
        return router.route(stream, batch if HASH in batch.schema.names else add_hash(batch), probing)
