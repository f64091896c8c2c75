"""Describes the other units of a controlled join for the engine of one unit."""

from thetastream.control.notices import Member
from thetastream.control.plan import ControlPlan
from thetastream.engine.peers import Peers


def describe_peers(plan: ControlPlan, member: Member, slot: int) -> Peers:
    """Describe the generations of the plan of an epoch for the unit of one slot, after its notice."""
    generations = tuple((one.model, one.slots) for one in reversed(plan.membership))
    mine = next((slots for _, slots in generations if slot in slots), ())
    return Peers(generations, mine, find_last_epoch(member), slot)


def find_last_epoch(member: Member) -> int | None:
    """Find the last epoch in which a unit stores new tuples; None if it has not been told to leave."""
    return None if member.leaves is None else member.told
