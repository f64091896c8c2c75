"""Units notice if routers follow a version of the control plan that does not hold any more.

    epoch e       the control source tells every unit: version v holds from epoch e + 1 on
    later epochs  routers write the version that they follow into the header of each block of tuples

Routers find the plan in files. They cannot tell a plan that was lost from one that was never made, and they
would follow the one before: if the folder is older than the checkpoint, or if a file is lost just before an
epoch. Each unit keeps what it was told in its state, and the state is as old as the checkpoint.
"""

from collections.abc import Iterable
from typing import NamedTuple

from thetastream.core.errors import StateError


class HeldPlan(NamedTuple):
    """The newest version of the control plan that a unit was told. It is part of the unit's manifest."""

    version: int = 0
    """The version; 0 is the plan with which the query started."""
    told: int = -1
    """The epoch in which the unit was told. The version holds from the next epoch on."""

    def hear(self, version: int | None, epoch: int) -> "HeldPlan":
        """Return what the unit remembers after an epoch that told it ``version``, or nothing."""
        return self if version is None else HeldPlan(version, epoch)

    def check(self, followed: Iterable[int], epoch: int, where: str) -> None:
        """Refuse an older version than the one that holds.

        Parameters
        ----------
        followed : iterable of int
            The versions that routers and this unit follow in the epoch; none if no tuples have come.
        epoch : int
            The epoch.
        where : str
            The folder of control folders.

        Raises
        ------
        StateError
            CONTROL_MISSING.
        """
        oldest = min(followed, default=self.version)
        if epoch <= self.told or oldest >= self.version:
            return
        raise StateError(
            "CONTROL_MISSING",
            f"epoch {epoch} must follow version {self.version} of the control plan, and it found version "
            f"{oldest} in the control folder in {where}: a file is gone, or the folder is older than the "
            "checkpoint; put back the folder that belongs to the checkpoint, or begin with a new "
            "checkpointLocation",
        )


NOTHING_HELD = HeldPlan()
"""What a unit remembers before the first change."""
