"""Follows the policy of a control plan: reports of units become the requests that the policy makes.

The process of the control source follows it, when Spark asks for the offset of the next epoch. What the
policy asks for is applied as a request of a user, and becomes part of this offset. An epoch that runs again
therefore has the units that it had, although the reports of units depend on clocks. A query that starts again
finds the policy in its offset. The policy has then seen nothing yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.runtime.control.plan import ControlPlan
from thetastream.runtime.control.policies import UnitLoad, decode_policy
from thetastream.runtime.control.policies.load import LoadReader
from thetastream.runtime.control.request import Request


class FollowedPolicy:
    """A policy at work on one run of a query.

    Parameters
    ----------
    values : mapping
        The policy, as plain values.

    Raises
    ------
    QueryError
        POLICY if no policy can be made of the values, for example because its package is not installed.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self._decider, self._reader = decode_policy(values).begin(), LoadReader()

    def decide(self, time_s: float, reports: Iterable[UnitLoad], plan: ControlPlan) -> Request | None:
        """Return what the policy asks for after these reports; None if nothing changes.

        Nothing is asked for while a generation is coming, because the present units have all the load until
        it takes over.

        Raises
        ------
        QueryError
            POLICY if the policy fails.
        """
        load = self._reader.read(time_s, reports, plan)
        try:
            decided = self._decider.decide(load)
            if decided is None or plan.coming is not None:
                return None
            model, slots = plan.newest.model, plan.newest.slots
            if isinstance(decided, Mapping):
                return Request(model=model.with_sizes(capacities=tuple(decided[slot] for slot in slots)))
            return Request(model=model.resized(decided))
        except Exception as error:  # The policy of another package may raise anything.
            raise QueryError("POLICY", f"the policy {self.values['name']!r} has failed: {error!r}") from error
