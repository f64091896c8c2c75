"""Policies: pure functions from the load of units to the numbers of units or their shares.

To add a policy, write one file and one entry in ``REGISTRY`` (``policies/registry.py``).
"""

from thetastream.runtime.control.policies.load import Decider, GroupLoad, Load, Policy, Sizes, UnitLoad
from thetastream.runtime.control.policies.load_balancing import LoadBalancing
from thetastream.runtime.control.policies.registry import (
    REGISTRY,
    decode_policy,
    encode_policy,
    find_model_obstacle,
    find_policy,
    list_policies,
    make_policy,
)
from thetastream.runtime.control.policies.two_phase_scaling import TwoPhaseScaling

__all__ = [
    "REGISTRY",
    "Decider",
    "GroupLoad",
    "Load",
    "LoadBalancing",
    "Policy",
    "Sizes",
    "TwoPhaseScaling",
    "UnitLoad",
    "decode_policy",
    "encode_policy",
    "find_model_obstacle",
    "find_policy",
    "list_policies",
    "make_policy",
]
