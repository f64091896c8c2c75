"""Keeps the model that the planner chose when a query restarts in a session with other partitions.

Spark keeps the number of shuffle partitions of a query in its checkpoint. The choice of a model is a function
of this number. A plan is made for the number of the session. If the query runs with another one, because it
continues from a checkpoint, workers choose again for the number of the query. So they always choose the model
that was chosen when the query first started.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from thetastream.core.identity import Part
from thetastream.engine.protocol import EngineSpec
from thetastream.spark.grouping_keys import find_unit_keys
from thetastream.spark.task_properties import read_partitions


class Fitted(NamedTuple):
    """The spec under the model that is chosen for some number of partitions, and the part that names it."""

    spec: EngineSpec
    model: Part


@dataclass(frozen=True)
class Choice:
    """What the planner chooses for each number of partitions. Picklable."""

    partitions: int
    """The number of the session, for which the plan was made."""
    fit: Callable[[int], Fitted]


@dataclass(frozen=True)
class FittedSpec:
    """The spec of a query, and the choice by which workers find the spec of a restarted query. Picklable."""

    planned: EngineSpec
    choice: Choice | None = None
    max_units: int = 0
    """The number of slots on which units may run, if the query is controlled."""

    @cached_property
    def other(self) -> Fitted | None:
        """The spec for the partitions of the running query; None if it is the planned one."""
        if self.choice is None:
            return None
        partitions = read_partitions()
        return None if partitions in (None, self.choice.partitions) else self.choice.fit(partitions)

    @property
    def spec(self) -> EngineSpec:
        """The spec that this query runs."""
        return self.planned if self.other is None else self.other.spec

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """The grouping key of each slot on which a unit may run."""
        return find_unit_keys(max(self.spec.n_units, self.max_units))
