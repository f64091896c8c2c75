"""Finds policies by name, and writes them as plain values.

    TwoPhaseScaling(capacity="2 GB")  <->  {"name": "two-phase-scaling", "capacity": "2 GB"}

``REGISTRY`` has the policies of this package. Another package offers a policy by an entry point of the group
``thetastream.policies``, whose name is the name of the policy. The process that reads the control source of a
query makes the policy from its name, so it must be able to import the package.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from datetime import timedelta
from importlib.metadata import entry_points
from inspect import signature
from typing import Any

from thetastream.core.errors import QueryError, suggest_or_list
from thetastream.core.spans import to_micros
from thetastream.models.base import Model
from thetastream.runtime.control.policies.load import Policy
from thetastream.runtime.control.policies.load_balancing import LoadBalancing
from thetastream.runtime.control.policies.two_phase_scaling import TwoPhaseScaling

GROUP = "thetastream.policies"
"""The group of the entry points by which other packages offer policies."""
REGISTRY: dict[str, Callable[..., Policy]] = {
    TwoPhaseScaling.name: TwoPhaseScaling,
    LoadBalancing.name: LoadBalancing,
}
"""The policies of this package by their names."""


def list_policies() -> list[str]:
    """List the names of all policies, those of other packages included.

    >>> list_policies()[:1]
    ['two-phase-scaling']
    """
    return [*REGISTRY, *sorted({one.name for one in entry_points(group=GROUP)} - REGISTRY.keys())]


def find_policy(name: str) -> Callable[..., Policy]:
    """Find a policy by its name.

    Raises
    ------
    QueryError
        POLICY if there is none.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    for point in entry_points(group=GROUP, name=name):
        try:
            found: Callable[..., Policy] = point.load()
        except Exception as error:  # The code of another package may raise anything.
            where = f"the entry point {name!r} of the group {GROUP} ({point.value})"
            raise QueryError("POLICY", f"{where} cannot be loaded: {error}") from error
        return found
    what = f"the name of the policy ({name!r:.200}) must be one of {', '.join(list_policies())}"
    raise QueryError("POLICY", what)


def make_policy(name: str, settings: Mapping[str, Any]) -> Policy:
    """Make a policy from its name and its settings.

    >>> make_policy("two-phase-scaling", {"high": 0.9}).high
    0.9

    Raises
    ------
    QueryError
        POLICY if there is no such policy, if it has no such setting, or if a value is not in its range.
    """
    kind = find_policy(name)
    known = list(signature(kind).parameters)
    for setting in settings:
        if setting not in known:
            hint = suggest_or_list(setting, known)
            raise QueryError("POLICY", f"the policy {name} has no setting {setting!r}{hint}")
    return kind(**settings)


def find_model_obstacle(name: str, model: Model) -> str | None:
    """Say what a policy changes that a model cannot change while a query runs; None if there is nothing."""
    with suppress(QueryError):  # A policy that no package has changes nothing.
        needed = getattr(find_policy(name), "needs", None)
        if needed is not None and needed not in model.sizes:
            return f"the policy {name} changes {needed}, which {model!r} cannot do"
    return None


def encode_policy(policy: Policy) -> dict[str, Any]:
    """Convert a policy to plain values: its name, and the settings that differ from their defaults.

    >>> encode_policy(TwoPhaseScaling(capacity="2 GB", every=timedelta(minutes=2)))
    {'name': 'two-phase-scaling', 'capacity': '2 GB', 'every': '120000000 us'}

    Raises
    ------
    QueryError
        POLICY if this is no policy, or if no process could make it again from its name.
    """
    name = getattr(policy, "name", None)
    if not hasattr(policy, "begin") or not isinstance(name, str):
        raise QueryError("POLICY", f"a policy is needed, such as th.TwoPhaseScaling(), not {policy!r}")
    if find_policy(name) is not type(policy):
        what = f"{type(policy).__name__} is not the policy that {name!r} names"
        raise QueryError("POLICY", f"{what}; give it a name of its own, and an entry point in {GROUP!r}")
    values = {
        one.name: getattr(policy, one.name)
        for one in fields(policy)  # type: ignore[arg-type]
        if one.default is MISSING or getattr(policy, one.name) != one.default
    }
    return {"name": name, **{key: _encode_value(value) for key, value in values.items()}}


def decode_policy(values: Mapping[str, Any]) -> Policy:
    """Read what ``encode_policy`` returned.

    Raises
    ------
    QueryError
        POLICY if the values name no policy, and the errors of ``make_policy``.
    """
    name = values.get("name")
    if not isinstance(name, str):
        raise QueryError("POLICY", f"a policy must have a name, and {dict(values)!r:.200} has none")
    return make_policy(name, {key: value for key, value in values.items() if key != "name"})


def _encode_value(value: Any) -> Any:
    return f"{to_micros(value)} us" if isinstance(value, timedelta) else value
