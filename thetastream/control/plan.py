"""The control plan: everything that may change while a query runs, as one small value.

    ControlPlan = (version, membership, shed factor)

The *membership* is a list of generations. The newest generation stores new tuples. A tuple probes all
generations, because older ones still hold tuples that it can join. A *slot* is a grouping key of Spark on
which a unit runs; slots are numbered from 0 to ``max_units`` - 1.

Offsets of the control source and the entries that routers read hold the plan as JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from thetastream.control.model_json import decode_model, encode_model
from thetastream.models.base import Model


class Generation(NamedTuple):
    """The units that began to store tuples with one version of the plan."""

    since: int
    """The version of the plan that began this generation."""
    model: Model
    slots: tuple[int, ...]
    """``slots[i]`` is the slot on which unit i of the model runs."""


@dataclass(frozen=True)
class ControlPlan:
    """The plan of an epoch.

    Examples
    --------
    >>> from thetastream.models import Biclique
    >>> plan = ControlPlan.begin(Biclique((1, 2)))
    >>> plan.version, plan.newest.slots, plan.shed_factor
    (0, (0, 1, 2), 0.0)
    >>> ControlPlan.from_json(plan.as_json()) == plan
    True
    """

    version: int
    """The number of changes since the query first started."""
    membership: tuple[Generation, ...]
    """The generations that hold tuples, oldest first. The last one stores new tuples."""
    shed_factor: float = 0.0
    """The least share of arriving tuples that the load shedder drops, from 0 to 1."""
    leaving: Mapping[int, int] = field(default_factory=dict)
    """The slots that store no new tuples: slot -> the version of the plan with which it stopped."""

    @classmethod
    def begin(cls, model: Model) -> "ControlPlan":
        """Make the plan with which a query first starts."""
        return cls(0, (Generation(0, model, tuple(range(model.n_units))),))

    @property
    def newest(self) -> Generation:
        """The generation that stores new tuples."""
        return self.membership[-1]

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """The slots of all generations, in order."""
        return tuple(sorted({slot for generation in self.membership for slot in generation.slots}))

    def advance(self, **changes: Any) -> "ControlPlan":
        """Return the next version of the plan, with these fields changed."""
        return replace(self, version=self.version + 1, **changes)

    def as_json(self) -> dict[str, Any]:
        """Convert the plan to plain values."""
        return {
            "version": self.version,
            "membership": [
                {"since": since, "model": encode_model(model), "slots": list(slots)}
                for since, model, slots in self.membership
            ],
            "shed_factor": self.shed_factor,
            "leaving": {str(slot): version for slot, version in self.leaving.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ControlPlan":
        """Read what ``as_json`` returned."""
        return cls(
            int(values["version"]),
            tuple(
                Generation(int(one["since"]), decode_model(one["model"]), tuple(map(int, one["slots"])))
                for one in values["membership"]
            ),
            float(values["shed_factor"]),
            {int(slot): int(version) for slot, version in values["leaving"].items()},
        )
