"""Requests: changes of a running query that a user or a policy asks for.

A request names the new state and not the difference to the old one. Therefore a request that is put twice has
the same effect as one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thetastream.core.arguments import is_number
from thetastream.core.errors import QueryError
from thetastream.core.records import decode, encode
from thetastream.engine.running_tasks import RunningTask
from thetastream.models.base import Model, is_model
from thetastream.runtime.control.plan import decode_model, encode_model
from thetastream.runtime.control.policies import decode_policy

FORMAT = 1
_FIELDS = {"format", "sizes", "model", "shed_factor", "policy", "add", "remove"}
NO_POLICY: Mapping[str, Any] = {}
"""The value of ``Request.policy`` by which no policy is followed any more."""


@dataclass(frozen=True)
class Request:
    """One request. Fields that are left out do not change.

    Raises
    ------
    QueryError
        BAD_REQUEST if ``model`` is no model, or ``shed_factor`` is not from 0 to 1. POLICY if ``policy``
        names no policy.

    Examples
    --------
    >>> request = Request(sizes={"units": (4, 2)})
    >>> request.write()
    '{"format": 1, "sizes": {"units": [4, 2]}}'
    >>> Request.read(request.write()) == request
    True
    """

    sizes: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the model that get new values, as in ``{"units": (4, 2)}``."""
    model: Model | None = None
    """The model that the join should have from now on."""
    shed_factor: float | None = None
    """The share of arriving tuples to drop."""
    policy: Mapping[str, Any] | None = None
    """The policy that changes the units from now on, as plain values; ``NO_POLICY`` ends it."""
    add: RunningTask | None = None
    """A join task that runs from now on. The plan says since which version."""
    remove: str | None = None
    """The name of the join task that ends."""

    def __post_init__(self) -> None:
        if self.model is not None and not is_model(self.model):
            raise QueryError("BAD_REQUEST", f"model must be a model, as in th.Split(4), not {self.model!r}")
        factor = self.shed_factor
        if factor is not None and not (is_number(factor) and 0 <= factor <= 1):
            raise QueryError("BAD_REQUEST", f"shed_factor must be a number from 0 to 1, not {factor!r:.200}")
        if self.policy:
            decode_policy(self.policy)

    def write(self) -> str:
        """Write the request as JSON."""
        values: dict[str, Any] = {"format": FORMAT}
        if self.sizes:
            values["sizes"] = dict(self.sizes)
        if self.model is not None:
            values["model"] = encode_model(self.model)
        if self.shed_factor is not None:
            values["shed_factor"] = self.shed_factor
        if self.policy is not None:
            values["policy"] = dict(self.policy)
        if self.add is not None:
            values["add"] = encode(self.add)
        if self.remove is not None:
            values["remove"] = self.remove
        return json.dumps(values)

    @classmethod
    def read(cls, text: str | bytes) -> "Request":
        """Read what ``write`` returned.

        Raises
        ------
        QueryError
            BAD_REQUEST if the text is no request, and the errors of the model that it names.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise QueryError("BAD_REQUEST", f"a request must be JSON: {error}") from error
        if not isinstance(values, dict) or values.get("format") != FORMAT or not set(values) <= _FIELDS:
            raise QueryError(
                "BAD_REQUEST",
                f"a request must be an object of format {FORMAT} with {', '.join(sorted(_FIELDS))}, "
                f"not {values!r:.200}",
            )
        sizes, written, policy = values.get("sizes", {}), values.get("model"), values.get("policy")
        if not all(isinstance(one, dict | None) for one in (written, policy)) or not isinstance(sizes, dict):
            found = f"{sizes!r}, {written!r} and {policy!r}"
            raise QueryError("BAD_REQUEST", f"sizes, model and policy must be objects, not {found}")
        return cls(
            {name: tuple(value) if isinstance(value, list) else value for name, value in sizes.items()},
            None if written is None else decode_model(written),
            values.get("shed_factor"),
            policy,
            _read_task(values["add"]) if "add" in values else None,
            _read_name(values["remove"]) if "remove" in values else None,
        )


def _read_task(values: Any) -> RunningTask:
    """Read a task, and everything that units will make of it."""
    try:
        task = decode(RunningTask, values)
        if task.join is not None:
            task.join.check()
    except (ValueError, TypeError) as error:
        raise QueryError("BAD_REQUEST", f"add must be a task, not {values!r:.200}: {error}") from error
    return task


def _read_name(value: Any) -> str:
    if not isinstance(value, str):
        raise QueryError("BAD_REQUEST", f"remove must be the name of a task, not {value!r:.200}")
    return value
