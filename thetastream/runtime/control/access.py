"""How routers and units of a running query reach its control folder.

Routers of epoch k follow the greatest plan that holds from an epoch at or before k. It was published in an
epoch before k, which is committed, so all routers of epoch k find the same plan, whenever they look.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.core.errors import StateError, ThetastreamError
from thetastream.runtime.control.files import ControlFolder, ControlLinks
from thetastream.runtime.control.plan import ControlPlan, decode_plan
from thetastream.runtime.task_facts import TaskFacts


@dataclass(frozen=True)
class ControlAccess:
    """The control of one join, as its tasks reach it. Picklable."""

    root: str
    """The folder of control folders, which the driver and all workers must reach."""
    join: str
    """The digest of the join."""

    def find_plan(self, task: TaskFacts) -> ControlPlan | None:
        """Find the plan of the epoch to which a task belongs; None before the first change."""
        folder = self._find_folder(task)
        if folder is None or task.epoch is None:
            return None
        plans = [entry for entry in folder.list_plans() if entry[0] <= task.epoch]
        return _read_plan(folder, *plans[-1]) if plans else None

    def mark_drained(
        self, task: TaskFacts, slot: int, version: int, arrived: Sequence[int] | None = None
    ) -> None:
        """Mark a unit for which ``version`` of the plan need not wait any more.

        ``arrived`` says how many tuples had arrived before units of this version began to count them.
        """
        folder = self._find_folder(task)
        assert folder is not None  # A unit drains only after a notice of the control source.
        folder.mark_drained(slot, version, arrived)

    def report_load(self, task: TaskFacts, slot: int, mlv_bytes: int, busy_ms: float) -> None:
        """Report the load of a unit after the epoch to which a task belongs."""
        folder = self._find_folder(task)
        assert folder is not None  # A router asks for reports because it has found a plan there.
        folder.report_load(task.find_epoch(), slot, mlv_bytes, round(1000 * busy_ms))

    def _find_folder(self, task: TaskFacts) -> ControlFolder | None:
        name = ControlLinks(self.root).find(task.query, self.join)
        return None if name is None else ControlFolder(self.root, name)


def _read_plan(folder: ControlFolder, epoch: int, version: int) -> ControlPlan:
    # Each task reads the file: if an older copy of the checkpoint is continued, it may have another content.
    found = folder.read_plan(epoch, version)
    try:
        return decode_plan(found)
    except (ThetastreamError, LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"the plan of epoch {epoch} (version {version}) in {folder.where} must be a plan"
        raise StateError("CONTROL_MISSING", f"{what}: {error!r}") from error
