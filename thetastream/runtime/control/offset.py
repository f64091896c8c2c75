"""The offset of the control source: the plan, and what became of the last requests.

    apply_requests : (offset, requests, drained units)  ->  the next offset

Spark writes an offset to its log before it runs the epoch that reads it. Therefore an epoch that runs again
gets the plan that it had, and nothing outside the query chooses the epoch of a change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from thetastream.core.errors import ThetastreamError
from thetastream.runtime.control.change import change_plan, drop_needless, end_generations
from thetastream.runtime.control.handover import NOT_COUNTED
from thetastream.runtime.control.plan import ControlPlan, Rules
from thetastream.runtime.control.request import Request

LAST_OUTCOMES = 8
"""The number of requests whose outcome an offset keeps after their files have been removed."""
ACCEPTED = ""
"""The outcome of a request that was accepted. The outcome of a refused request is the text of its error."""


@dataclass(frozen=True)
class ControlOffset:
    """The plan that holds from the next epoch on, and the outcomes of requests by their names."""

    plan: ControlPlan
    outcomes: Mapping[str, str] = field(default_factory=dict)


def apply_requests(
    offset: ControlOffset,
    requests: Mapping[str, str | bytes],
    drained: Collection[tuple[int, int]],
    rules: Rules,
    arrived: Mapping[int, tuple[int, int]] = NOT_COUNTED,
) -> ControlOffset:
    """Apply new requests and drained units to the next offset; the same offset if nothing is new.

    Parameters
    ----------
    offset : ControlOffset
    requests : mapping of name to text
        The requests whose files exist. Requests that the offset knows already are not applied again. They are
        applied in the order of their names.
    drained : collection of (slot, version)
        The units that hold no tuples, with the version with which they left.
    rules : Rules
        What the query allows.
    arrived : mapping of version to (int, int)
        For a join with ordered results, how many tuples had arrived before a generation began to count.
    """
    plan = end_generations(offset.plan, drained, arrived)
    outcomes = dict(offset.outcomes)
    for name in sorted(requests):
        if name in offset.outcomes:
            continue
        try:
            plan = change_plan(plan, Request.read(requests[name]), rules, offset.plan.slots)
            outcomes[name] = ACCEPTED
        except ThetastreamError as refused:
            outcomes[name] = str(refused)
    plan = plan if plan is offset.plan else drop_needless(plan, offset.plan.version)
    if plan is offset.plan and len(outcomes) == len(offset.outcomes):
        return offset
    recent = list(outcomes)[-LAST_OUTCOMES:]
    kept = {name: outcome for name, outcome in outcomes.items() if name in recent or name in requests}
    return ControlOffset(plan, kept)
