"""Notices: the control source tells single units about a change of the plan, and the units remember it.

A notice arrives in the epoch e in which the control source reads the change. Routers follow the new plan from
epoch e + 1. A unit that joins therefore knows the watermark of epoch e before its first tuple arrives, and a
unit that leaves has stored its last tuple in epoch e. A unit that hands over has received the last tuple of
which the coming generation gets no copy (``thetastream.runtime.control.handover``).

``describe_peers`` describes the other units of the join for the engine of one unit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Peers
from thetastream.runtime.control.plan import ControlPlan, Generation, encode_model

JOINS, LEAVES, ENDS = "joins", "leaves", "ends"
HANDS_OVER, TAKES_OVER, STAYS = "hands over", "takes over", "stays"


class Notice(NamedTuple):
    """A notice to the unit of one slot."""

    event: str
    """JOINS, LEAVES, ENDS, HANDS_OVER, TAKES_OVER or STAYS.

    A slot that ends belongs to no generation any more. A unit hands over if another generation is coming, and
    it stays if that generation does not come after all.
    """
    version: int
    """The version of the plan that brings the event. For HANDS_OVER, that of the coming generation."""
    model: Mapping[str, Any] | None = None
    """For JOINS, the model of the generation, as JSON."""
    unit: int = 0
    """For JOINS, the number of the unit in this model."""
    keeps: bool = False
    """For JOINS, whether the unit keeps the tuples that it has stored in an older generation."""
    arrived: Sequence[int] | None = None
    """For a unit that takes over, how many left and right tuples had arrived before it began to count. None
    if it need not know."""

    def write(self) -> str:
        """Write the notice as JSON."""
        return json.dumps(self)

    @classmethod
    def read(cls, text: str) -> "Notice":
        """Read what ``write`` returned."""
        return cls(*json.loads(text))


def list_notices(before: ControlPlan, after: ControlPlan) -> dict[int, Notice]:
    """List the notices of a change of the plan, by slot. The plans may be several versions apart."""
    newest, version = after.newest, after.version
    kinds = {
        slot: generation.model.shared_kind(unit)
        for generation in before.membership
        for unit, slot in enumerate(generation.slots)
    }
    notices = {}
    for generation in _list_begun(before, after):
        for unit, slot in enumerate(generation.slots):
            if slot not in before.newest.slots:
                kind = generation.model.shared_kind(unit)
                keeps = kind is not None and kinds.get(slot) == kind
                notices[slot] = Notice(JOINS, version, encode_model(generation.model), unit, keeps)
    for slot in before.slots:
        if slot not in after.slots:
            notices[slot] = Notice(ENDS, version)
        elif slot in after.leaving and before.leaving.get(slot) != after.leaving[slot]:
            notices[slot] = Notice(LEAVES, after.leaving[slot])
    arrived = after.arrived if newest == before.coming else None
    if after.coming not in (None, before.coming):
        notice = Notice(HANDS_OVER, after.target.since, arrived=arrived)
        notices |= dict.fromkeys(newest.slots, notice)
    elif arrived is not None:
        notices |= dict.fromkeys(newest.slots, Notice(TAKES_OVER, version, arrived=arrived))
    elif before.coming is not None and after.target == before.newest:
        notices |= dict.fromkeys(newest.slots, Notice(STAYS, version))
    return notices


def _list_begun(before: ControlPlan, after: ControlPlan) -> list[Generation]:
    """List the generations whose units may join. Units of a coming generation join before it takes over."""
    return [one for one in (after.newest, after.coming) if one is not None and one != before.coming]


class Member(NamedTuple):
    """What a unit remembers of its notices. It is part of the unit's manifest."""

    model: Mapping[str, Any] | None = None
    """The model of its generation, as JSON; None for the model with which the query started."""
    unit: int = 0
    """Its number in this model."""
    leaves: int | None = None
    """The version of the plan with which it left; None if it stores new tuples."""
    told: int = -1
    """The epoch that brought the last notice."""
    hands_over: int | None = None
    """The version of the generation to which it hands over; None if there is none."""
    until_us: int | None = None
    """From this watermark on, no tuple that the unit held at the end of the epoch ``told`` can be a partner
    of a new tuple. None if it held no such tuple."""
    arrived: Sequence[int] | None = None
    """How many left and right tuples had arrived by then; None if the unit does not count them for others."""
    began: int | None = -1
    """The epoch in which it took over; None if it has not, or need not know."""

    def hear(self, notice: Notice, epoch: int) -> "Member":
        """Return what the unit remembers after a notice that arrived in ``epoch``."""
        if notice.event == JOINS:
            return Member(notice.model, notice.unit, None, epoch, began=None)
        if notice.event == LEAVES:
            return self._replace(leaves=notice.version, told=epoch, hands_over=None, arrived=None)
        began = self.began if notice.arrived is None else epoch
        hands_over = notice.version if notice.event == HANDS_OVER else None
        return self._replace(hands_over=hands_over, told=epoch, began=began)

    def remember(self, epoch: int, counters: Counters) -> "Member":
        """Return what the unit remembers at the end of an epoch, in which it counted this work."""
        if self.hands_over is None or epoch != self.told:
            return self
        return self._replace(until_us=counters.partners_until_us, arrived=counters.arrived)

    def find_drained(self, epoch: int, watermark_us: int | None, is_empty: bool) -> int | None:
        """Find the version of the plan that no longer has to wait for this unit; None if there is none.

        A unit that leaves has drained if it is empty at the end of an epoch in which it stored nothing. A
        unit that hands over has drained if no tuple from before the notice can be a partner of a new one.
        """
        if self.leaves is not None:
            return self.leaves if epoch > self.told and is_empty else None
        if self.until_us is None or (watermark_us is not None and watermark_us >= self.until_us):
            return self.hands_over
        return None


NEVER_TOLD = Member()
"""What a unit remembers that has the model with which the query started, or none."""


def describe_self(member: Member, slot: int, notice: Notice | None) -> Peers:
    """Describe to the unit of one slot its own place among the generations, after its notice."""
    last_epoch = None if member.leaves is None else member.told
    arrived = None if notice is None else notice.arrived
    return Peers(last_epoch=last_epoch, slot=slot, began=member.began, arrived=arrived)


def describe_peers(plan: ControlPlan, member: Member, slot: int, notice: Notice | None) -> Peers:
    """Describe the generations of the plan of an epoch for the unit of one slot, after its notice."""
    generations = tuple((one.model, one.slots) for one in reversed(plan.membership))
    mine = next((slots for _, slots in generations if slot in slots), ())
    return describe_self(member, slot, notice)._replace(generations=generations, slots=mine)
