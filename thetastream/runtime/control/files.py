"""The files of a controlled join.

    root/control-<name>/requests/<time>-<id>      requests, put by anybody
    root/control-<name>/plans/<epoch>-<version>   the plan that holds from an epoch on
    root/control-<name>/drained/<slot>-<version>  marks of units for which a version need not wait any more
    root/control-<name>/loads/<epoch>.<slot>.<bytes>.<us>
                                                  reports of units for a policy: stored bytes, time of work
    root/control-queries/<query>-<join>           the name of the control folder of a join

A Spark task that runs again writes its files again, with the same content. The plans and marks of an epoch
are complete once the epoch is committed. Plans, marks and the files of ``control-queries`` end with a
checksum that includes their place, so a file that is torn, altered, without its checksum or at another place
is refused. Errors are imported only where they are raised, as in the mailbox.
"""

import json
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from thetastream.core.addresses import hide_secrets
from thetastream.core.folder import AGAIN, Folder, refuse, refuse_unusable

REQUESTS, PLANS, DRAINED, LOADS, LABEL = "requests", "plans", "drained", "loads", "label"
LINKS = "control-queries"
KEPT_PLANS = 64
"""The number of last plans that are kept. An epoch that runs again needs two of them."""


def seal(place: str, text: str) -> bytes:
    """Append a checksum over the text and the place where its file lies.

    >>> seal("plans/2-1", "{}")
    b'{}\\n56b99091'
    """
    return f"{text}\n{zlib.crc32(f'{place} {text}'.encode()):08x}".encode()


def unseal(place: str, data: bytes) -> str:
    """Check the checksum and return the text.

    Raises
    ------
    ValueError
        If the file is damaged, has no checksum, or was written at another place.
    """
    text, line, _ = data.decode().rpartition("\n")
    if not line:
        raise ValueError("it has no checksum: it is cut off, or written by an earlier version of Thetastream")
    if data != seal(place, text):
        raise ValueError("it is cut off, altered, or that of another place")
    return text


def list_generations(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """List the generations of a plan as JSON. The coming one is the last."""
    return [*plan["membership"], *([plan["coming"]] if "coming" in plan else [])]


def list_awaited(plan: dict[str, Any]) -> set[tuple[int, int]]:
    """List the marks for which a plan as JSON waits: (slot, version)."""
    handing_over = plan["membership"][-1]["slots"] if "coming" in plan else []
    version = list_generations(plan)[-1]["since"]
    leaving = {(int(slot), since) for slot, since in plan["leaving"].items()}
    return leaving | {(slot, version) for slot in handing_over}


def list_columns(join: dict[str, Any]) -> list[set[str]]:
    """List the columns of left and of right blocks that the join of an added task reads, as JSON."""
    return [
        {*spec["columns"], *spec["computed"], *(test["column"] for clause in clauses for test in clause)}
        for spec, clauses in zip(join["sides"], join["tests"], strict=True)
    ]


def name_control(name: str) -> str:
    """Return the name of a control folder inside the folder of mailboxes."""
    return f"control-{name}"


class ControlFolder(Folder):
    """The folder of one controlled join.

    Parameters
    ----------
    root : str
        Path or URI of the folder of mailboxes, the same for the driver and all workers.
    name : str
        The name that the offsets of the control source have.
    """

    def __init__(self, root: str, name: str) -> None:
        super().__init__(root, name_control(name))
        self._name = name
        self.where = f"{hide_secrets(root).rstrip('/')}/{name_control(name)}"

    def _reach(self, what: str, hint: str = AGAIN) -> AbstractContextManager[None]:
        """Raise CONTROL_UNUSABLE if the block cannot use the folder."""
        return refuse_unusable(
            "CONTROL_UNUSABLE", f"{what} must be in {self.where}, and using it failed", hint
        )

    def create(self) -> None:
        """Make the folder."""
        with self._reach("the control folder of the query"):
            self.make(is_private=True)
            self.write(LABEL, b"")

    @property
    def is_made(self) -> bool:
        """Whether the folder is there."""
        return self.exists(LABEL)

    def check(self, version: int) -> None:
        """Check that the folder has the plan of a version, if there has been a change.

        Raises
        ------
        StateError
            CONTROL_MISSING.
        """
        versions = {found for _, found in self._list_pairs(PLANS)}
        if version and version not in versions:
            refuse(
                "CONTROL_MISSING",
                f"the plan of the checkpoint (version {version}) must be in {self.where}, and it is gone; "
                "put the folder back, or begin with a new checkpointLocation",
            )

    # Requests

    def put_request(self, text: str) -> str:
        """Put a request; return its name. Names sort by the time at which requests were put.

        Raises
        ------
        StateError
            CONTROL_UNUSABLE. Then nothing was asked for.
        """
        name = f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}"
        hint = "Nothing was asked for, and the query runs as before: make room there, and ask again"
        with self._reach("the request", hint):
            self._write_inside(REQUESTS, name, text.encode())
        return name

    def list_requests(self) -> list[str]:
        """List the names of the requests that were put."""
        return sorted(name for name in self.list_files(REQUESTS) if not name.startswith("."))

    def read_requests(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read requests. One that has gone since it was listed was removed by another driver of the query.

        This driver has stood still then, and Spark ends it when it writes its next offsets.
        """
        found = {}
        with self._reach("requests"):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = self.read(f"{REQUESTS}/{name}")
        return found

    def remove_requests(self, names: Iterable[str]) -> None:
        """Remove requests that are folded."""
        self._discard(f"{REQUESTS}/{name}" for name in set(names) & set(self.list_requests()))

    # Plans

    def publish(self, epoch: int, plan: dict[str, Any]) -> None:
        """Publish the plan that holds from ``epoch`` on."""
        name = f"{epoch}-{plan['version']}"
        with self._reach("the plan"):
            self._write_inside(PLANS, name, seal(f"{self._name}/{PLANS}/{name}", json.dumps(plan)))

    def list_plans(self) -> list[tuple[int, int]]:
        """List the published plans: (first epoch, version), in order."""
        return sorted(self._list_pairs(PLANS))

    def find_beginnings(self, versions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Find the plan with which each version began to hold, as (first epoch, version).

        One epoch may read requests that lead to several versions. Only the last one is published then.
        """
        plans = self.list_plans()
        later = {version: [plan for plan in plans if plan[1] >= version] for version in versions}
        return {version: found[0] for version, found in later.items() if found}

    def read_plan(self, epoch: int, version: int) -> dict[str, Any]:
        """Read a published plan."""
        name = f"{PLANS}/{epoch}-{version}"
        try:
            found: dict[str, Any] = json.loads(unseal(f"{self._name}/{name}", self.read(name)))
        except (ValueError, OSError) as error:
            refuse("CONTROL_MISSING", f"the plan {self.where}/{name} is damaged: {error}")
        return found

    # Marks

    def mark_drained(self, slot: int, version: int, arrived: Sequence[int] | None = None) -> None:
        """Mark a unit for which ``version`` need not wait any more (``Member.find_drained``)."""
        name = f"{slot}-{version}"
        data = b"" if arrived is None else seal(f"{self._name}/{DRAINED}/{name}", json.dumps(arrived))
        with self._reach("the mark"):
            self._write_inside(DRAINED, name, data)

    def read_arrived(self, marks: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Read the numbers of arrived tuples in these marks: version -> (left, right).

        Raises
        ------
        StateError
            CONTROL_MISSING if a mark is damaged.
        """
        found = {}
        for slot, version in marks:
            name = f"{DRAINED}/{slot}-{version}"
            try:
                data = self.read(name)
                if not data:
                    continue
                left, right = json.loads(unseal(f"{self._name}/{name}", data))
            except (ValueError, OSError) as error:
                refuse("CONTROL_MISSING", f"the mark {self.where}/{name} is damaged: {error}")
            found[version] = int(left), int(right)
        return found

    def list_drained(self) -> set[tuple[int, int]]:
        """List the marks: (slot, version)."""
        return self._list_pairs(DRAINED)

    # Loads

    def report_load(self, epoch: int, slot: int, mlv_bytes: int, busy_us: int) -> None:
        """Report the load of a unit after an epoch. An epoch that runs again may add a second report."""
        with self._reach("the load of a unit"):
            self._write_inside(LOADS, f"{epoch}.{slot}.{mlv_bytes}.{busy_us}", b"")

    def list_loads(self) -> list[tuple[int, int, int, int]]:
        """List the reports that are there, in the order of epochs: (epoch, slot, bytes, microseconds)."""
        names = (name.split(".") for name in self.list_files(LOADS))
        return sorted(
            (int(epoch), int(slot), int(nbytes), int(busy_us))
            for epoch, slot, nbytes, busy_us in (parts for parts in names if len(parts) == 4)
            if all(part.isdecimal() for part in (epoch, slot, nbytes, busy_us))
        )

    def remove_loads(self, reports: Iterable[tuple[int, int, int, int]]) -> None:
        """Remove reports that were read."""
        self._discard(f"{LOADS}/{'.'.join(map(str, report))}" for report in reports)

    def forget_later(self, version: int) -> None:
        """Remove what was written for later versions, because an older copy of the checkpoint may be in use.

        These are the plans of later versions, and all marks: a unit that has drained marks itself again.
        """
        later = [f"{PLANS}/{epoch}-{found}" for epoch, found in self.list_plans() if found > version]
        marks = [f"{DRAINED}/{slot}-{since}" for slot, since in self.list_drained()]
        with self._reach("what was written for later versions"):
            for name in later + marks:
                with suppress(FileNotFoundError):  # Another driver of the query has removed it.
                    self._fs.delete_file(f"{self._folder}/{name}")

    def clean(self, awaited: Iterable[tuple[int, int]], versions: Iterable[int]) -> None:
        """Remove the marks for which the plan does not wait any more, and old plans.

        The last plans are kept, and those with which these versions began to hold.
        """
        old = [f"{DRAINED}/{slot}-{version}" for slot, version in self.list_drained() - set(awaited)]
        beginnings = set(self.find_beginnings(versions).values())
        plans = [plan for plan in self.list_plans()[:-KEPT_PLANS] if plan not in beginnings]
        self._discard(old + [f"{PLANS}/{epoch}-{version}" for epoch, version in plans])

    def _write_inside(self, inside: str, name: str, data: bytes) -> None:
        """Write a file into a folder inside this one, which is made if it is not there."""
        self._fs.create_dir(f"{self._folder}/{inside}", recursive=True)
        self.write(f"{inside}/{name}", data)

    def _discard(self, names: Iterable[str]) -> None:
        """Remove files that nobody reads any more. What cannot be removed does no harm."""
        for name in names:
            with suppress(OSError):
                self._fs.delete_file(f"{self._folder}/{name}")

    def _list_pairs(self, inside: str) -> set[tuple[int, int]]:
        """List the names that are two numbers. Other files were put there by somebody else."""
        pairs = (name.split("-") for name in self.list_files(inside))
        return {
            (int(pair[0]), int(pair[1]))
            for pair in pairs
            if len(pair) == 2 and all(part.isdecimal() for part in pair)
        }


class ControlLinks(Folder):
    """The names of the control folders of queries. Routers and units know their query, but not the name of
    its folder."""

    def __init__(self, root: str) -> None:
        super().__init__(root, LINKS)

    def write_link(self, query: str, join: str, name: str) -> None:
        """Write the name of the control folder of a join.

        Raises
        ------
        StateError
            CONTROL_TWICE if another join of the query has the same meaning.
        """
        known = self.find(query, join)
        if known not in (None, name):
            refuse(
                "CONTROL_TWICE",
                f"a query must have one controlled join of one meaning, and it has two of {join}; leave "
                "max_units out for one of them",
            )
        what = f"the name of the control folder must be in {LINKS}, beside {name_control(name)}"
        with refuse_unusable("CONTROL_UNUSABLE", f"{what}, and writing it failed"):
            self.make(is_private=True)
            self.write(f"{query}-{join}", seal(f"{query}-{join}", name))

    def find(self, query: str, join: str) -> str | None:
        """Find the name of the control folder of a join.

        Raises
        ------
        StateError
            CONTROL_MISSING if the file is damaged.
        """
        try:
            name = self._read_name(f"{query}-{join}")
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            refuse("CONTROL_MISSING", f"the file {LINKS}/{query}-{join} of a mailbox is damaged: {error}")
        return name

    def names(self, join: str, name: str) -> bool:
        """Whether a file of this join is intact and names the control folder ``name``."""
        for link in self.list_files():
            with suppress(ValueError, OSError):
                if link.endswith(f"-{join}") and self._read_name(link) == name:
                    return True
        return False

    def _read_name(self, link: str) -> str:
        name = unseal(link, self.read(link))
        if not re.fullmatch("[0-9a-f]{32}", name):
            raise ValueError("it names no control folder")
        return name
