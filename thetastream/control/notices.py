"""Notices: what the control source tells single units when the plan changes, and what they remember of it.

A notice arrives in the epoch e in which the control source reads the change. Routers follow the new plan from
epoch e + 1. A unit that joins therefore knows the watermark of epoch e before its first tuple arrives, and a
unit that leaves has stored its last tuple in epoch e.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from thetastream.control.model_json import encode_model
from thetastream.control.plan import ControlPlan

JOINS, LEAVES, ENDS = "joins", "leaves", "ends"


class Notice(NamedTuple):
    """A notice to the unit of one slot."""

    event: str
    """JOINS, LEAVES, or ENDS. A slot that ends belongs to no generation any more."""
    version: int
    """The version of the plan that brings the event."""
    model: Mapping[str, Any] | None = None
    """For JOINS, the model of the generation, as JSON."""
    unit: int = 0
    """For JOINS, the number of the unit in this model."""
    keeps: bool = False
    """For JOINS, whether the unit keeps the tuples that it has stored in an older generation."""

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
    for unit, slot in enumerate(newest.slots):
        if slot not in before.newest.slots:
            kind = newest.model.shared_kind(unit)
            keeps = kind is not None and kinds.get(slot) == kind
            notices[slot] = Notice(JOINS, version, encode_model(newest.model), unit, keeps)
    for slot in before.slots:
        if slot not in after.slots:
            notices[slot] = Notice(ENDS, version)
        elif slot in after.leaving and before.leaving.get(slot) != after.leaving[slot]:
            notices[slot] = Notice(LEAVES, after.leaving[slot])
    return notices


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

    def hear(self, notice: Notice, epoch: int) -> "Member":
        """Return what the unit remembers after a notice that arrived in ``epoch``."""
        if notice.event == JOINS:
            return Member(notice.model, notice.unit, None, epoch)
        return self._replace(leaves=notice.version, told=epoch)

    def has_drained(self, epoch: int, is_empty: bool) -> bool:
        """Whether the unit holds no tuples at the end of ``epoch`` and will never store one again."""
        return self.leaves is not None and epoch > self.told and is_empty


NEVER_TOLD = Member()
"""What a unit remembers that has the model with which the query started, or none."""
