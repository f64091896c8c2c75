"""What a planned join hands to the code that builds and runs it.

``Flow`` is the join, and ``RunContext`` has the settings with which its units run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from thetastream.core.columns import ColumnSource
from thetastream.core.condition import SideSpec
from thetastream.core.identity import Identity, Part
from thetastream.core.shed import Shed
from thetastream.engine.order import Order
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.routing import FindPlaces
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import SidePlan
from thetastream.results.description import Description
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.results.staged import Origin, Stage
from thetastream.results.store import Store
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.idle_reports import IdleReports
from thetastream.runtime.task_facts import TaskFacts

CANDIDATE = "candidate row"
"""The struct column of a row between two units. The name is not an identifier, so no alias can have it."""


@dataclass(frozen=True)
class Output:
    """The columns that leave the units, and the columns that the user gets, as SQL."""

    columns: tuple[str, ...]
    """The columns that leave the units: ``name type``, as DDL."""
    restored: tuple[str, ...]
    """The columns that the user gets, as expressions with an alias over the columns that leave the units."""
    residual: tuple[str, ...] = ()
    """Conjuncts over the restored columns, which Spark evaluates on the results of the units."""


def list_block_columns(side: SidePlan) -> list[str]:
    """List the payload columns of a stream in blocks, as DDL."""
    return [f"{carried.block_column} {carried.block_type}" for carried in side.carried]


def restore_struct(side: SidePlan) -> str:
    """Write the user's columns of a stream as one struct, over its block columns."""
    fields = (f"{carried.from_block} AS {quote(carried.field)}" for carried in side.carried)
    return f"struct({', '.join(fields)})"


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
class UnitStage:
    """Units that run between two exchanges, and what leaves them."""

    spec: EngineSpec
    output: Output
    choice: Choice | None = None
    """What the planner chooses for other numbers of partitions; None if the user named the model."""
    order: Order | None = None
    """The order of results; None if they are not ordered."""

    def with_change(self, change: Callable[[EngineSpec], EngineSpec]) -> "UnitStage":
        """Return the stage with a change of its spec, under every model that may be chosen.

        ``change`` must be picklable.
        """
        choice = self.choice
        if choice is not None:
            choice = replace(choice, fit=partial(_fit_change, choice.fit, change))
        return replace(self, spec=change(self.spec), choice=choice)


@dataclass(frozen=True)
class Flow:
    """A planned join of any family: its streams, and the units that they pass."""

    sides: Sequence[SidePlan]
    """For each stream, how its tuples become blocks."""
    keys: Sequence[SideSpec]
    """For each stream, the columns of blocks that units read."""
    stages: tuple[UnitStage, ...]
    """The units. Those of the first stage get the tuples of the streams. Those of each other stage get the
    results of the stage before."""
    identity: Identity
    """The parts of the query that a checkpoint keeps."""
    rules: Rules | None = None
    """How the units may change while the query runs; None if they do not change."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each stream that is the result of a join, the aliases of the user's streams behind it."""
    waits_by: tuple[str, ...] | None = None
    """The event times of the streams, as columns of blocks, if tuples wait for the watermark."""
    places: FindPlaces | None = None
    """Finds the places of tuples for a semantic load shedder; None if there is none."""


def _fit_change(
    fit: Callable[[int], Fitted], change: Callable[[EngineSpec], EngineSpec], partitions: int
) -> Fitted:
    fitted = fit(partitions)
    return fitted._replace(spec=change(fitted.spec))


class NotStaged(Exception):
    """The units cannot write the selected columns. The text gives the reason."""


class Emitted(NamedTuple):
    """What the units of a join emit."""

    sides: Sequence[SidePlan]
    times: Mapping[str, str]
    """The event-time column of each alias, if results have a result time; otherwise it is empty."""

    @property
    def has_deletes(self) -> bool:
        """Whether units emit the sign of each result, because a stream has deletes."""
        return any(side.has_deletes for side in self.sides)


@dataclass(frozen=True)
class Target:
    """A store, what it holds and when results become a snapshot. It is pickled and sent to the workers."""

    store: Store
    description: Description
    rule: Snapshots = EACH_EPOCH

    def open_stage(self, task: TaskFacts) -> Stage:
        """Open a stage for a Spark task."""
        origin = Origin(task.query, task.find_epoch(), str(task.partition))
        return self.store.open_stage(origin, self.description)


@dataclass(frozen=True)
class Staging:
    """What units stage: the columns that a user selected, and where they go."""

    target: Target
    columns: tuple[str, ...]
    """The block columns that units emit."""
    sources: tuple[ColumnSource, ...]
    """For each column of the store, how it follows from a block of results."""


@dataclass(frozen=True)
class RunContext:
    """What the user and the session said about how units run.

    It is read once, when a join is planned, and is passed on whole. It is pickled and sent to the workers.
    """

    mailbox: str = ""
    """The folder of mailboxes, which the driver and all workers must reach. It is empty if there is none, and
    neither messages nor a load shedder nor ``max_units`` need one."""
    cache_folder: str | None = None
    """A folder on each host for mapped segments. None means Spark's local directory."""
    late: str | None = None
    """The folder of late tuples, which all workers must reach; None if late tuples are only counted."""
    idle: IdleReports | None = None
    """What units report about streams that may be idle; None if no stream may be."""
    shed: Shed | None = None
    """The load shedder; None if nothing is dropped."""
    max_units: int | None = None
    """The largest number of units at once; None if the units do not change while the join runs."""
