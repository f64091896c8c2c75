"""The runs of a version of a table that a process has opened: those that its tuples can meet.

A process opens a run when a tuple first touches its bounds, and keeps it open for later epochs. If the table
is larger than a host, it closes the runs that a whole task has not used.
"""

import time
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import pyarrow as pa

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import StateError
from thetastream.engine.lookup import Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run
from thetastream.engine.table_partitions import Extents
from thetastream.runtime.state import segment_cache
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import Version


def read_extents(version: Version, plan: IndexPlan) -> Extents | None:
    """Read the extents of the runs of a version; None if the runs are arranged for another index."""
    return Extents(version.extents) if version.layout == name_layout(plan) else None


def name_layout(plan: IndexPlan) -> str:
    """Name the index of runs, and the columns of their key rows."""
    return blake2b(segment_cache.describe_layout(plan).encode(), digest_size=8).hexdigest()


class OpenedTable:
    """The runs of a version that this process has opened.

    Parameters
    ----------
    folder : TableFolder
    version : Version
    plan : IndexPlan
        The index of the runs.
    payload : pyarrow.Schema
        The columns of the table.
    opened : mapping of str to Run, optional
        Runs that are open already, by their names.
    """

    def __init__(
        self,
        folder: TableFolder,
        version: Version,
        plan: IndexPlan,
        payload: pa.Schema,
        opened: Mapping[str, Run] | None = None,
    ) -> None:
        self._folder, self._version, self._plan = folder, version, plan
        self._host = folder.host
        self._payload = payload
        known = opened or {}
        self._runs = {n: known[name] for n, name in enumerate(version.runs) if name in known}
        """The open runs, by their place in the version."""
        self._used: set[int] = set()
        """The runs that the present task has used."""
        self._extents = read_extents(version, plan)
        self._table: TableRuns | None = None

    @property
    def runs(self) -> dict[str, Run]:
        """The open runs, by their names."""
        return {self._version.runs[n]: run for n, run in self._runs.items()}

    @property
    def used_bytes(self) -> int:
        """The bytes of the runs that the present task has used."""
        return sum(one.nbytes for n, one in enumerate(self._version.extents) if n in self._used)

    def begin(self, is_partitioned: bool) -> None:
        """Begin a task. If the table is larger than a host, close what the task before has not used."""
        if is_partitioned and len(self._used) < len(self._runs):
            self._runs = {n: run for n, run in self._runs.items() if n in self._used}
            self._table = None
        self._used = set()

    def meet(self, lookup: Lookup, tuples: pa.RecordBatch) -> TableRuns:
        """Return the open runs, with all those in which some tuple may have a partner.

        Raises
        ------
        StateError
            TABLE_MISSING if a run is not there any more, or is damaged.
        """
        if self._extents is None or len(self._used) == len(self._version.runs):
            return self.open_all()
        return self._open(self._extents.find_touched(lookup.build_boxes(tuples)).tolist())

    def open_all(self) -> TableRuns:
        """Open all runs.

        Raises
        ------
        StateError
            TABLE_MISSING.
        """
        return self._open(range(len(self._version.runs)))

    def _open(self, numbers: Iterable[int]) -> TableRuns:
        """Return the open runs, with all those that have these places in the version."""
        for number in set(numbers) - self._used:
            name = self._version.runs[number]
            if number not in self._runs:
                self._runs[number] = self._load(name)
                self._table = None
            self._host.mark_used(name)
            self._used.add(number)
        if self._table is None:
            self._table = TableRuns([run for _, run in sorted(self._runs.items())], self._payload)
        return self._table

    def _load(self, name: str) -> Run:
        try:
            return self._host.load(name, self._plan)
        except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            root = hide_secrets(self._folder.root)
            what = f"an epoch reads {self._version} of a table, which is not in {root} any more"
            hint = "restore the folder, or start the query with a new checkpoint"
            raise StateError("TABLE_MISSING", f"{what} ({error}); {hint}") from error


_OPENED: dict[tuple[tuple[str, ...], str, pa.Schema], tuple[float, OpenedTable]] = {}
"""The versions that this process has read last, and when, by their runs, the layout of their index and the
columns of the table. A version never changes."""
_OPEN_S = 60.0
"""A version that nobody has read for so many seconds is closed. It may be large, and its query may have ended
or read a newer one."""


def open_table(
    folder: TableFolder, version: Version, plan: IndexPlan, payload: pa.Schema, is_partitioned: bool = False
) -> OpenedTable:
    """Open a version for a task, or return it as the task before has left it.

    ``is_partitioned`` says that the table is larger than a host.
    """
    layout, now = segment_cache.describe_layout(plan), time.monotonic()
    key = version.runs, layout, payload
    for other in [one for one, (read_s, _) in _OPENED.items() if one != key and now - read_s > _OPEN_S]:
        del _OPENED[other]
    if key not in _OPENED:
        opened = {
            name: run
            for (_, *others), (_, table) in _OPENED.items()
            if others == [layout, payload]
            for name, run in table.runs.items()
        }
        _OPENED[key] = now, OpenedTable(folder, version, plan, payload, opened)
    table = _OPENED[key][1]
    _OPENED[key] = now, table
    table.begin(is_partitioned)
    return table
