"""The control plan: everything that may change while a query runs, as one small value.

    ControlPlan = (version, membership, shed factor, policy, tasks)

The *membership* is a list of generations. The newest generation stores new tuples. A tuple probes all
generations, because older ones still hold tuples that it can join. If each tuple is answered at one unit, a
generation is *coming* before it becomes the newest one (``thetastream.runtime.control.handover``). A *slot*
is a grouping key of Spark on which a unit runs; slots are numbered from 0 to ``max_units`` - 1. Offsets of
the control source and the entries that routers read hold the plan as JSON, and requests hold models as JSON:
a name and the fields that differ from the defaults.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

from thetastream.core.errors import QueryError
from thetastream.core.records import decode, encode
from thetastream.core.spans import Rows
from thetastream.engine.running_tasks import RunningTask
from thetastream.models import REGISTRY
from thetastream.models.base import Model

_NAME, _ROWS, _MICROS = "name", "rows", "microseconds"


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
    >>> decode_plan(encode_plan(plan)) == plan
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
    coming: Generation | None = None
    """The generation that takes over from the newest one later, and stores copies until then."""
    arrived: tuple[int, int] | None = None
    """How many left and right tuples had arrived before the newest generation began to count; None if it need
    not know."""
    policy: Mapping[str, Any] | None = None
    """The policy that changes the units, as plain values (``encode_policy``); None if there is none."""
    tasks: tuple[RunningTask, ...] | None = None
    """The join tasks that run; None for those of the program, which have run from the beginning."""

    @classmethod
    def begin(cls, model: Model) -> "ControlPlan":
        """Make the plan with which a query first starts."""
        return cls(0, (Generation(0, model, tuple(range(model.n_units))),))

    @property
    def newest(self) -> Generation:
        """The generation that stores new tuples."""
        return self.membership[-1]

    @property
    def target(self) -> Generation:
        """The generation that stores new tuples once the last change is complete."""
        return self.coming or self.newest

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """The slots of all generations, in order."""
        coming = () if self.coming is None else (self.coming,)
        return tuple(sorted({slot for one in (*self.membership, *coming) for slot in one.slots}))

    def advance(self, **changes: Any) -> "ControlPlan":
        """Return the next version of the plan, with these fields changed."""
        return replace(self, version=self.version + 1, **changes)


def encode_plan(plan: ControlPlan) -> dict[str, Any]:
    """Convert a plan to plain values."""
    later: dict[str, Any] = {} if plan.coming is None else {"coming": _encode_generation(plan.coming)}
    if plan.arrived is not None:
        later["arrived"] = plan.arrived
    if plan.policy is not None:
        later["policy"] = dict(plan.policy)
    if plan.tasks is not None:
        later["tasks"] = encode(plan.tasks)
    return {
        "version": plan.version,
        "membership": [_encode_generation(generation) for generation in plan.membership],
        "shed_factor": plan.shed_factor,
        "leaving": {str(slot): version for slot, version in plan.leaving.items()},
        **later,
    }


def decode_plan(values: Mapping[str, Any]) -> ControlPlan:
    """Read what ``encode_plan`` returned."""
    named: dict[str, Any] = {"membership": tuple(map(_decode_generation, values["membership"]))}
    if "coming" in values:
        named["coming"] = _decode_generation(values["coming"])
    return decode(ControlPlan, {**values, **named})


def _encode_generation(generation: Generation) -> dict[str, Any]:
    return {**generation._asdict(), "model": encode_model(generation.model)}


def _decode_generation(values: Mapping[str, Any]) -> Generation:
    return Generation(int(values["since"]), decode_model(values["model"]), tuple(map(int, values["slots"])))


@dataclass(frozen=True)
class TaskRules:
    """What a query of several join tasks allows, if tasks may be added and removed."""

    most: int
    """The largest number of tasks at once."""
    names: tuple[str, ...]
    """The tasks of the program."""
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns of left and of right blocks. A task can read no others."""
    results: tuple[tuple[str, ...], tuple[str, ...]]
    """Those that results have. Results of all tasks have the same columns."""


@dataclass(frozen=True)
class Rules:
    """What a query allows, fixed when it starts."""

    max_units: int
    """The number of slots."""
    routings: tuple[str, ...] = ()
    """The routings by content that the condition supports: "hash", "range"."""
    never_expires: tuple[bool, bool] = (False, False)
    """For each stream, whether its stored tuples stay joinable for ever."""
    can_shed: bool = False
    """Whether the join has a load shedder."""
    counts_tuples: bool = False
    """Whether windows count tuples, so that each unit must see all of them."""
    only_sizes: bool = False
    """Whether only the sizes of the model may change, because the units send messages to each other."""
    preserved: tuple[int, ...] = ()
    """The streams whose tuples are answered one by one, each at a unit that sees all its partners."""
    is_ordered: bool = False
    """Whether results are ordered, so that each unit must know how many tuples have arrived."""
    moves_tuples: bool = False
    """Whether a unit that leaves can move its tuples to newer units. It moves tuples that never expire, and
    all tuples if the newest model asks for it."""
    tasks: TaskRules | None = None
    """What is allowed to change of the tasks; None if they stay as they are."""


def encode_model(model: Model) -> dict[str, Any]:
    """Convert a model to plain values.

    >>> from thetastream.models import Biclique
    >>> encode_model(Biclique((4, 2)))
    {'name': 'biclique', 'units': [4, 2]}

    A ring that makes all hops in one epoch is written as the ring of which the planner made it:

    >>> from thetastream.models import Ring
    >>> encode_model(Ring(2).store_once(1))
    {'name': 'ring', 'nodes': 2}
    """
    values = {
        one.name: getattr(model, one.name)
        for one in fields(REGISTRY.get(model.name, type(model)))  # type: ignore[arg-type]
        if one.default is MISSING or getattr(model, one.name) != one.default
    }
    return {_NAME: model.name, **{name: _encode_value(value) for name, value in values.items()}}


def decode_model(values: Mapping[str, Any]) -> Model:
    """Read what ``encode_model`` returned.

    Raises
    ------
    QueryError
        BAD_REQUEST if the values name no model, and the errors of the model.
    """
    kind = REGISTRY.get(str(values.get(_NAME)))
    if kind is None:
        raise QueryError("BAD_REQUEST", f"a model must be one of {', '.join(REGISTRY)}, not {dict(values)}")
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    unknown = [name for name in values if name not in known and name != _NAME]
    if unknown:
        raise QueryError("BAD_REQUEST", f"{kind.__name__} has no {', '.join(unknown)}, only {sorted(known)}")
    try:
        return kind(**{name: _decode_value(value) for name, value in values.items() if name != _NAME})
    except (TypeError, ValueError, OverflowError) as error:
        what = f"a request must give {kind.__name__} values of the right types, not {dict(values)!r:.200}"
        raise QueryError("BAD_REQUEST", f"{what}: {error}") from error


def _encode_value(value: Any) -> Any:
    if isinstance(value, Rows):
        return {_ROWS: value.n}
    if isinstance(value, timedelta):
        return {_MICROS: value // timedelta(microseconds=1)}
    if isinstance(value, tuple | list):
        return [_encode_value(one) for one in value]
    return value


def _decode_value(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {_ROWS}:
        return Rows(value[_ROWS])
    if isinstance(value, dict) and set(value) == {_MICROS}:
        return timedelta(microseconds=value[_MICROS])
    return tuple(value) if isinstance(value, list) else value
