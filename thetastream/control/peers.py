"""Describes the other units of a controlled join for the engine of one unit."""

from thetastream.control.notices import Member, Notice
from thetastream.control.plan import ControlPlan
from thetastream.engine.peers import Peers


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
