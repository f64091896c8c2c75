"""Policies: pure functions from the load of units to the numbers of units.

To add a policy, write one file and one entry in ``REGISTRY``. The command line and the simulator look
policies up there.
"""

from collections.abc import Callable

from thetastream.runtime.control.policies.load import Decider, GroupLoad, Load, Policy, Sizes
from thetastream.runtime.control.policies.two_phase_scaling import TwoPhaseScaling

REGISTRY: dict[str, Callable[..., Policy]] = {
    "two-phase-scaling": TwoPhaseScaling,
}

__all__ = ["REGISTRY", "Decider", "GroupLoad", "Load", "Policy", "Sizes", "TwoPhaseScaling"]
