"""Finds the newest offset of the control source of a join, describes it and puts requests, from any process.

A running query of this process tells its offsets in its progress. For other queries, they are read from the
checkpoint.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import QueryError, StateError, ThetastreamError
from thetastream.core.folder import Folder, split_path
from thetastream.core.identity import CONDITION
from thetastream.core.records import decode
from thetastream.runtime.checkpoint_files import find_last_epoch, read_epoch
from thetastream.runtime.control.change import change_plan, list_moving
from thetastream.runtime.control.files import ControlFolder
from thetastream.runtime.control.plan import ControlPlan, Rules, TaskRules, decode_plan
from thetastream.runtime.control.request import Request
from thetastream.runtime.control.tasks import list_running

WAIT_S = 60.0
"""How long ``control`` waits for the first epoch of a query that has been started."""
POLL_S = 0.1


@dataclass(frozen=True)
class NewestOffset:
    """The newest offset of one controlled join."""

    control: Mapping[str, Any]

    @property
    def plan(self) -> ControlPlan:
        """The plan that holds from the next epoch on."""
        return decode_plan(self.control["plan"])

    @property
    def rules(self) -> Rules:
        """What the query allows."""
        return decode(Rules, self.control["rules"])

    @property
    def folder(self) -> ControlFolder:
        """The control folder."""
        return ControlFolder(self.control["root"], self.control["name"])

    def put(self, request: Request) -> str:
        """Put a request, after checking it against the plan; return its name.

        Raises
        ------
        QueryError
            The errors of ``change_plan``. Then nothing was asked for.
        """
        change_plan(self.plan, request, self.rules)
        return self.folder.put_request(request.write())

    def describe(self, held: Mapping[int, int] | None) -> dict[str, Any]:
        """Describe the plan, and what became of the last requests, as ``ControlHandle.status`` does.

        ``held`` is the number of stored tuples of each unit; None if it is not known.
        """
        plan, folder, rules, coming = self.plan, self.folder, self.rules, self.plan.coming
        beginnings = folder.find_beginnings(one.since for one in (*plan.membership, plan.target))
        marks = folder.list_drained()
        outcomes = {name: outcome or "accepted" for name, outcome in self.control["outcomes"].items()}
        waiting = {name: "waiting" for name in folder.list_requests() if name not in outcomes}
        generations = [
            {
                "model": repr(one.model),
                "units": list(one.slots),
                "since": beginnings.get(one.since, (None,))[0] if one.since else 0,
                "leaving": [slot for slot in one.slots if slot in plan.leaving],
                "moving": sorted(slot for slot, _ in list_moving(one, plan, rules) - marks),
                "drained": [slot for slot in one.slots if (slot, plan.leaving.get(slot)) in marks],
                "held": None if held is None else sum(held.get(slot, 0) for slot in one.slots),
            }
            for one in plan.membership
        ]
        return {
            "version": plan.version,
            "max_units": rules.max_units,
            "shed_factor": plan.shed_factor,
            "policy": None if plan.policy is None else dict(plan.policy),
            "tasks": None if rules.tasks is None else self._describe_tasks(rules.tasks),
            "generations": generations,
            "coming": None
            if coming is None
            else {
                "model": repr(coming.model),
                "units": list(coming.slots),
                "since": beginnings.get(coming.since, (None,))[0],
                "waits_for": [slot for slot in plan.newest.slots if (slot, coming.since) not in marks],
            },
            "requests": {**outcomes, **waiting},
        }

    def _describe_tasks(self, rules: TaskRules) -> dict[str, Any]:
        """Describe the tasks that run. One that has run from the beginning began in epoch 0."""
        running = list_running(self.plan, rules.names)
        beginnings = self.folder.find_beginnings(task.since for task in running)
        return {
            task.name: {
                "since": beginnings.get(task.since, (None,))[0] if task.since else 0,
                "on": None if task.join is None else task.join.on,
            }
            for task in running
        }


def find_join(offsets: Iterable[Mapping[str, Any]], join: str | None, where: str) -> NewestOffset:
    """Find a controlled join among the offsets of all sources of a query.

    ``join`` names it if there are several, and ``where`` names the query in messages.

    Raises
    ------
    QueryError
        NOT_CONTROLLED or SEVERAL_JOINS.
    """
    controlled = {offset["control"]["join"]: offset for offset in offsets if "control" in offset}
    joins = {name: offset["control"] for name, offset in controlled.items()}
    if not joins:
        raise QueryError(
            "NOT_CONTROLLED",
            f"{where} must have a join with max_units or max_tasks, and it has none; start it with one of "
            "them, also from its present checkpoint",
        )
    if join in joins:
        return NewestOffset(joins[join])
    if join is not None or len(joins) > 1:
        asked = "" if join is None else f", and none of them is {join!r}"
        named = ", ".join(_name_join(name, offset) for name, offset in controlled.items())
        what = f"{where} has the joins {named}{asked}; give join= as one of these names"
        raise QueryError("SEVERAL_JOINS", what)
    return NewestOffset(next(iter(joins.values())))


def list_joins(path: str, where: str) -> dict[str, NewestOffset]:
    """List the controlled joins in the newest offsets of a checkpoint by their names.

    ``where`` names the query in messages.

    Raises
    ------
    ThetastreamError
        NO_CHECKPOINT, or NOT_CONTROLLED if there are none.
    """
    offsets = read_checkpoint(path)
    names = [offset["control"]["join"] for offset in offsets if "control" in offset] or [None]
    return {str(name): find_join(offsets, name, where) for name in names}


def _name_join(name: str, offset: Mapping[str, Any]) -> str:
    """Write the name of a join, with its condition if the offset has it.

    >>> _name_join("8091b3d096a3", {"query": {CONDITION: ["a.x<b.x", "a.x < b.x", "equal"]}})
    '8091b3d096a3 (a.x < b.x)'
    """
    found = offset.get("query", {}).get(CONDITION)
    return name if found is None else f"{name} ({found[1]})"


def wait_for_progress(query: Any) -> Iterator[dict[str, Any]]:
    """Yield the offsets of all sources in the newest report of a query; wait for the first report."""
    until_s = time.monotonic() + WAIT_S
    while not (report := query.lastProgress):
        if not query.isActive or time.monotonic() > until_s:
            raise StateError("NO_EPOCH", f"query {query.id} must have run an epoch; it has run none yet")
        time.sleep(POLL_S)
    yield from read_offsets(report if isinstance(report, dict) else json.loads(report.json))


def read_checkpoint(path: str) -> list[dict[str, Any]]:
    """Read the offsets of all sources in the newest offsets of a checkpoint."""
    what = f"{hide_secrets(path)} must be the checkpoint of a streaming query"
    try:
        folder = Folder(*split_path(path))
        epoch = find_last_epoch(folder.list_files("offsets"))
        if epoch < 0:
            raise ThetastreamError("NO_CHECKPOINT", f"{what}, and no epoch of a query has begun there")
        return read_epoch(folder, "offsets", epoch)[1]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ThetastreamError("NO_CHECKPOINT", f"{what}; reading it failed: {error}") from None


def read_offsets(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the newest offset of each source in a progress report that has fields."""
    for source in report.get("sources", ()):
        offset = source.get("endOffset")
        if isinstance(offset, str) and offset.startswith("{"):
            offset = json.loads(offset)
        if isinstance(offset, dict):
            yield offset
