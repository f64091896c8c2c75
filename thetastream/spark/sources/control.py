"""The control source: it applies requests and drained units to its next offset.

It takes the place of the source without rows that keeps the identity of the query. Beside the identity, an
offset has

    control: {root, name, begun, join, rules, partitions, plan, outcomes}

The control folder is ``control-<name>`` in the folder ``root``. ``begun`` counts how often the folder had to
be made again. ``partitions`` is the number of shuffle partitions for which the planner chose the first model.

Spark writes the offset to the checkpoint before it runs the epoch e that reads it. In epoch e, one task of
the source publishes the plan as "holds from epoch e + 1" and sends notices to units. An epoch that runs again
publishes and sends the same. If nothing changes, the offset stays the same, and Spark runs no task and no
epoch for the source.

The source also follows the policy of the plan (``thetastream.runtime.control.following``). What the policy
asks for has the name ``policy-<epoch>`` among the outcomes.

Spark runs the source in a Python process that does not load this package. Only a new request or a policy
makes it do so, in the background, because this takes seconds and epochs must not wait for it.
"""

import importlib
import json
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from thetastream.core import folder as folders
from thetastream.core import private_folder
from thetastream.core.folder import refuse
from thetastream.core.identity import Identity, decode_identity, encode_identity
from thetastream.runtime.control import files
from thetastream.runtime.control.files import (
    ControlFolder,
    ControlLinks,
    list_awaited,
    list_columns,
    list_generations,
)
from thetastream.spark.sources import identity, read_source
from thetastream.spark.sources.identity import IdentityReader, IdentitySource, continue_query

if TYPE_CHECKING:
    from thetastream.runtime.control.following import FollowedPolicy

FORMAT = "thetastream_control"
APPLYING = "thetastream.runtime.control.change"
"""The module that folds requests."""
LOOK_S = 0.1
"""Requests are looked for at most this often, in seconds."""
NO_LIMIT = ReadMaxRows(2**31 - 1)
"""The usual limit of a read, which is never reached. With ``trigger(once=True)``, Spark gives another one."""
_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"


def read_clock() -> float:
    """Read the clock by which a policy is followed, in seconds."""
    return time.time()


class ControlSource(IdentitySource):
    """Spark's data source ``thetastream_control``, which has the options that ``read_control`` sets."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: Any) -> "ControlReader":
        return make_control_reader(self.options)


class ControlReader(IdentityReader):
    """The reader of one run of a query.

    Parameters
    ----------
    query : Identity
    settings : dict
        The root of control folders, the digest of the join, and the rules of changes.
    plan : dict
        The plan with which the query first starts.
    partitions : int or None
        The number of shuffle partitions for which the planner chose this model; None if the user named it.
    """

    def __init__(
        self, query: Identity, settings: dict[str, Any], plan: dict[str, Any], partitions: int | None
    ) -> None:
        super().__init__(query)
        self._settings = settings
        self._first = {
            **settings,
            "name": uuid.uuid4().hex,
            "begun": 0,
            "partitions": partitions,
            "plan": plan,
            "outcomes": {},
        }
        self._looked_s = float("-inf")
        self._is_made = self._is_checked = False
        self._loading: Thread | None = None
        self._waits = False
        self._followed: FollowedPolicy | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        # The run ends soon, so it waits for requests that are there.
        self._waits = True

    def getDefaultReadLimit(self) -> ReadLimit:
        return NO_LIMIT

    def initialOffset(self) -> dict[str, Any]:
        return {**super().initialOffset(), "control": self._first}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offset = continue_query(start, self._query)
        if "control" not in offset:
            return {**offset, "control": self._first}
        if offset["control"]["name"] == self._first["name"] and not self._is_made:
            return offset  # The first epoch makes the folder.
        control = {**offset["control"], **self._settings}
        # A run of one epoch asks once, for all that is available, and waits for requests that are there.
        self._waits = self._waits or isinstance(limit, ReadAllAvailable)
        now_s = time.monotonic()
        if self._waits or now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            control = self._apply_requests(control)
        return {**offset, "control": control}

    def _apply_requests(self, control: dict[str, Any]) -> dict[str, Any]:
        """Apply what is new to the plan."""
        folder, plan = _open(control), control["plan"]
        _check_files(control)
        if not self._is_checked:
            if not plan["version"] and not folder.is_made:
                # Before the first change, nothing is lost with the folder. Another offset lets a task make it
                # again.
                return {**control, "begun": control["begun"] + 1, "partitions": self._first["partitions"]}
            self._check_slots(plan)
            self._check_tasks(plan)
            folder.forget_later(plan["version"])
            self._is_checked = True
        requests = folder.list_requests()
        awaited = list_awaited(plan)
        drained = awaited & folder.list_drained() if awaited else awaited
        known = control["outcomes"]
        decided, failed = self._follow_policy(folder, plan)
        failed = {name: why for name, why in failed.items() if why not in known.values()}
        is_new = any(name not in known for name in requests)
        if not (drained or decided or failed or is_new):
            return control
        if not self._load():
            return control
        from thetastream.core.records import decode
        from thetastream.runtime.control.change import ControlOffset, apply_requests
        from thetastream.runtime.control.plan import Rules, decode_plan, encode_plan

        rules = decode(Rules, control["rules"])
        arrived = folder.read_arrived(drained) if rules.is_ordered else {}
        before = ControlOffset(decode_plan(control["plan"]), {**known, **failed})
        # A request of a user counts more than what the policy has decided for the plan before it.
        asked: dict[str, str | bytes] = {**({} if is_new else decided), **folder.read_requests(requests)}
        after = apply_requests(before, asked, drained, rules, arrived)
        outcomes = {
            name: outcome
            for name, outcome in after.outcomes.items()
            # A policy may ask again and again for what is refused. Another offset would make another epoch.
            if name not in decided or outcome == "" or outcome not in known.values()
        }
        return {**control, "plan": encode_plan(after.plan), "outcomes": outcomes}

    def _follow_policy(
        self, folder: ControlFolder, plan: dict[str, Any]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the request that the policy of the plan makes, and the error if it fails, by their name.

        A policy that fails does not end the query.
        """
        policy = plan.get("policy")
        if policy is None:
            if self._followed is not None:
                folder.remove_loads(folder.list_loads())  # Units have reported until this plan holds.
                self._followed = None
            return {}, {}
        reports = folder.list_loads()
        if not reports or not self._load():
            return {}, {}
        from thetastream.core.errors import QueryError
        from thetastream.runtime.control.following import FollowedPolicy
        from thetastream.runtime.control.plan import decode_plan
        from thetastream.runtime.control.policies import UnitLoad

        folder.remove_loads(reports)
        loads = [UnitLoad(slot, nbytes, busy_us / 1e6) for _, slot, nbytes, busy_us in reports]
        name = f"policy-{reports[-1][0]}"
        try:
            if self._followed is None or self._followed.values != policy:
                self._followed = FollowedPolicy(policy)
            request = self._followed.decide(read_clock(), loads, decode_plan(plan))
        except QueryError as error:
            return {}, {name: str(error)}
        return {} if request is None else {name: request.write()}, {}

    def _check_slots(self, plan: dict[str, Any]) -> None:
        """Refuse fewer slots than the plan uses."""
        n_slots = 1 + max(slot for one in list_generations(plan) for slot in one["slots"])
        max_units = self._settings["rules"]["max_units"]
        if n_slots > max_units:
            refuse(
                "MAX_UNITS",
                f"max_units must be at least {n_slots}, the slots that units of the checkpoint use; "
                f"it is {max_units}",
            )

    def _check_tasks(self, plan: dict[str, Any]) -> None:
        """Refuse to go on without a task of the program that the plan has, or a column of an added task."""
        rules, tasks = self._settings["rules"].get("tasks"), plan.get("tasks") or ()
        for name, _, join in tasks:
            if rules is None:
                lacking = "max_tasks"
            elif join is None:
                lacking = "" if name in rules["names"] else "the task of this name"
            else:
                columns = zip(list_columns(join), rules["columns"], strict=True)
                lacking = ", ".join(sorted(one for read, sent in columns for one in read - set(sent)))
            if lacking:
                refuse(
                    "STATE_OF_ANOTHER_QUERY",
                    "the tasks of the query have changed while it ran, and the task "
                    f"{name!r} needs {lacking}; give max_tasks, and the tasks with which the query "
                    "first started",
                )

    def _load(self) -> bool:
        """Load what applies requests, in the background; return whether it is loaded."""
        if self._loading is None:
            if hasattr(sys.modules.get(APPLYING), "apply_requests"):
                return True
            self._loading = Thread(target=importlib.import_module, args=(APPLYING,), daemon=True)
            self._loading.start()
        if self._waits:
            self._loading.join()
        return not self._loading.is_alive()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        continue_query(end, self._query)
        control, before = end["control"], start.get("control") or {}
        # Spark asks for an offset that stays the same only in the first epoch.
        is_first = any(before.get(name) != control[name] for name in ("name", "begun")) or start == end
        folder = _open(control)
        if is_first:
            folder.create()
            self._is_made = True
        plan = control["plan"] if is_first else before["plan"]
        self._check_slots(control["plan"])
        self._check_tasks(control["plan"])
        folder.check(plan["version"])
        if not is_first and plan["version"] == control["plan"]["version"]:
            return []
        return [InputPartition((control, plan, is_first))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        control, before, is_first = partition.value
        context = TaskContext.get()
        query, epoch = (
            None if context is None else context.getLocalProperty(name) for name in (_QUERY, _EPOCH)
        )
        if query is None or epoch is None:
            refuse(
                "EPOCH_UNKNOWN",
                "Spark does not tell the number of the epoch inside foreachBatch on Spark Connect, and a "
                "join with max_units needs it; leave max_units out, or write with another sink",
            )
        if is_first:
            _check_partitions(control)
        # Routers find the plan by the link, so it is there before the first plan.
        ControlLinks(control["root"]).write_link(query, control["join"], control["name"])
        if control["plan"]["version"] == before["version"]:
            return
        from thetastream.runtime.control.notice_rows import make_notice_rows

        _open(control).publish(int(epoch) + 1, control["plan"])
        yield from make_notice_rows(before, control["plan"])

    def commit(self, end: dict[str, Any]) -> None:
        control = end.get("control")
        if control is None:
            return  # The last epoch of a run without max_units.
        folder = _open(control)
        folder.remove_requests(control["outcomes"])
        plan = control["plan"]
        began = [one["since"] for one in list_generations(plan)]
        folder.clean(list_awaited(plan), [*began, *(since for _, since, _ in plan.get("tasks") or ())])


def make_control_reader(options: Mapping[str, str]) -> ControlReader:
    """Make the reader from the options of ``make_options``, as JSON."""
    names = ("query", "settings", "plan", "partitions")
    query, settings, plan, partitions = (json.loads(options[name]) for name in names)
    return ControlReader(decode_identity(query), settings, plan, partitions)


def _open(control: dict[str, Any]) -> ControlFolder:
    return ControlFolder(control["root"], control["name"])


def _check_files(control: dict[str, Any]) -> None:
    """Refuse to go on without the files by which routers find the plan. They would follow an older one."""
    if not control["plan"]["version"]:
        return
    folder = _open(control)
    folder.check(control["plan"]["version"])
    if not ControlLinks(control["root"]).names(control["join"], control["name"]):
        refuse(
            "CONTROL_MISSING",
            f"a file beside {folder.where} must name this folder, and it is gone or damaged; put the mailbox "
            "folder back, or begin with a new checkpointLocation",
        )


def _check_partitions(control: dict[str, Any]) -> None:
    """Refuse a query that runs another model than the plan says, because it has other partitions."""
    from thetastream.spark.task_properties import read_task

    running = read_task().partitions
    if control["partitions"] not in (None, running):
        refuse(
            "CONTROL_PARTITIONS",
            f"the planner chose the model for {control['partitions']} shuffle partitions, and the checkpoint "
            f"has {running}; to add max_units to it, set spark.sql.shuffle.partitions to {running}",
        )


def read_control(
    spark: SparkSession,
    query: Identity,
    settings: dict[str, Any],
    plan: dict[str, Any],
    partitions: int | None,
) -> DataFrame:
    """Make the stream of notices of a controlled join, which also keeps the identity of ``query``."""
    return read_source(spark, ControlSource, make_options(query, settings, plan, partitions))


def make_options(
    query: Identity, settings: dict[str, Any], plan: dict[str, Any], partitions: int | None
) -> dict[str, Any]:
    """Make the options of the source: the arguments of ``ControlReader`` by their names."""
    return {
        "query": encode_identity(query),
        "settings": settings,
        "plan": plan,
        "partitions": partitions,
    }


for module in (private_folder, folders, files, identity, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
