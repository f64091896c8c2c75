"""The loads of units, from which the routers of the next epochs compute how much they drop.

    folder/loads-<query>-<join>/<unit>.<epoch>.<load>        empty files; the name says everything
    folder/loads-<query>-<join>/cells.<epoch>                what a semantic shedder counts, sealed

Each unit publishes its load after each epoch in which it takes part, and the largest load decides. For the
state, the routers of epoch e take the newest load of each unit from before e, because a unit that takes no
part keeps its state. For the lag, they take the loads of the newest epoch before e. A load follows from the
input of its epoch and from the state before it. So an epoch that runs again publishes the same file, and its
routers read the same files.

The unit to which the routers of an epoch report publishes the counts of cells: those of the epoch before, and
what is reported. Routers take the newest ones from before their epoch.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from thetastream.core.errors import StateError
from thetastream.core.folder import Folder
from thetastream.core.shed import LAG
from thetastream.engine.inbox import ShedReport
from thetastream.engine.semantic_shedding import CellCounts
from thetastream.engine.shedding import Shedder, Shedding
from thetastream.runtime.control.files import seal, unseal
from thetastream.runtime.task_facts import TaskFacts

LOADS = "loads-"
"""Beginning of the name of a folder of loads. The identifier of the query and the join follow."""
CELLS_OF = "cells"
"""Beginning of the name of a file with counts of cells. The epoch follows."""


class _Entry(NamedTuple):
    unit: int
    epoch: int
    load: int


class Loads:
    """The loads of the units of one join of one query.

    Parameters
    ----------
    root : str
        Path or URI of the folder, the same for the driver and all workers.
    name : str
        Name of the folder of this join in it.
    """

    def __init__(self, root: str, name: str) -> None:
        self._folder = Folder(root, name)

    def publish(self, unit: int, epoch: int, load: int) -> None:
        """Publish the load of a unit after an epoch."""
        self._folder.make(is_private=True)
        self._folder.write(f"{unit}.{epoch}.{load}")

    def find(self, epoch: int, of_one_epoch: bool = False) -> int | None:
        """Find the largest of the newest loads of all units before ``epoch``; None if there is none.

        With ``of_one_epoch``, only the loads of the newest epoch count.
        """
        newest = _find_newest(self._folder.list_files(), epoch).values()
        last = max((entry.epoch for entry in newest), default=None)
        loads = (entry.load for entry in newest if not of_one_epoch or entry.epoch == last)
        return max(loads, default=None)

    def publish_cells(self, epoch: int, counts: CellCounts) -> None:
        """Publish the counts of cells after an epoch."""
        self._folder.make(is_private=True)
        name = f"{CELLS_OF}.{epoch}"
        self._folder.write(name, seal(name, counts.encode()))

    def find_cells(self, epoch: int) -> CellCounts | None:
        """Find the newest counts of cells from before ``epoch``; None if there are none.

        Raises
        ------
        StateError
            MAILBOX_DAMAGED.
        """
        found = _list_cells(self._folder.list_files(), epoch)
        if not found:
            return None
        name = f"{CELLS_OF}.{max(found)}"
        try:
            return CellCounts.decode(unseal(name, self._folder.read(name)))
        except ValueError as error:
            what = f"{self._folder.locate(name)}, which a load shedder reads, is damaged: {error}"
            raise StateError("MAILBOX_DAMAGED", f"{what}. Remove it: shedding then starts anew") from error

    def prune(self, epoch: int) -> None:
        """Remove the loads that neither ``epoch``, if it runs again, nor a later epoch reads."""
        names = self._folder.list_files()
        newest = _find_newest(names, epoch)
        for entry in _list_entries(names):
            if entry.epoch < newest.get(entry.unit, entry).epoch:
                with suppress(FileNotFoundError):
                    self._folder.remove(f"{entry.unit}.{entry.epoch}.{entry.load}")
        for number in sorted(_list_cells(names, epoch))[:-1]:
            with suppress(FileNotFoundError):
                self._folder.remove(f"{CELLS_OF}.{number}")


def _list_cells(names: Iterable[str], epoch: int) -> list[int]:
    """List the epochs before ``epoch`` whose counts of cells are there."""
    parts = (name.partition(".") for name in names)
    found = [int(number) for kind, _, number in parts if kind == CELLS_OF and number.isdigit()]
    return [number for number in found if number < epoch]


def _find_newest(names: Iterable[str], epoch: int) -> dict[int, _Entry]:
    """Find the newest load of each unit before ``epoch``."""
    return {entry.unit: entry for entry in sorted(_list_entries(names)) if entry.epoch < epoch}


def _list_entries(names: Iterable[str]) -> list[_Entry]:
    return [
        _Entry(*map(int, parts))
        for parts in (name.split(".") for name in names)
        if len(parts) == 3 and all(part.lstrip("-").isdigit() for part in parts)
    ]


@dataclass(frozen=True)
class ShedLoads:
    """The shedder of a query, and where its units publish their loads. It is pickled and sent to the
    workers."""

    shedding: Shedding
    root: str
    join: str
    """The digest of the joined query. It tells two joins of one Spark query apart."""

    def open(self, task: TaskFacts, stream: int, least: float = 0.0) -> Shedder:
        """Open the shedder of one stream for the epoch of a Spark task.

        At least the share ``least`` is dropped. One task of the epoch removes the loads that no epoch reads
        any more.
        """
        loads, epoch = self._find_loads(task), find_shed_epoch(task)
        load = loads.find(epoch, of_one_epoch=self.shedding.shed.load == LAG)
        counts = loads.find_cells(epoch) if self.shedding.places is not None else None
        if not task.partition and not stream:
            loads.prune(epoch)
        return self.shedding.open(stream, epoch, load, least, counts)

    def publish(self, task: TaskFacts, unit: int, load: int, reports: Sequence[ShedReport] = ()) -> None:
        """Publish the load of a unit after the epoch of a Spark task, and what routers reported to it."""
        loads, epoch = self._find_loads(task), find_shed_epoch(task)
        loads.publish(unit, epoch, load)
        if any(report.arrived is not None for report in reports):
            loads.publish_cells(epoch, (loads.find_cells(epoch) or CellCounts.begin()).add(reports))

    def _find_loads(self, task: TaskFacts) -> Loads:
        return Loads(self.root, f"{LOADS}{task.query}-{self.join}")


def find_shed_epoch(task: TaskFacts) -> int:
    """Return the number of the epoch to which a task belongs.

    Raises
    ------
    StateError
        EPOCH_UNKNOWN.
    """
    return task.find_epoch(
        "Spark does not tell the number of the epoch inside foreachBatch on Spark Connect, and a shedder "
        "needs it; write with another sink, or leave shed out"
    )
