"""The versions of a table in a folder of staged tables, and the version that each epoch of a query reads.

    staged/<table>/<number>      a version: its runs and the number of its rows (JSON)
    staged/<table>/checked       what the last comparison of the table with its source has found (JSON)
    epochs/<join>/<n>            the version that epoch n of a join of a query reads (JSON)

A version is written once and never changes. So is the version of an epoch: the first task of the epoch
writes it down, before any row is looked up. All tasks of the epoch, and an epoch that runs again, read it.
Only workers use these files: on Spark Connect, the client may be on another machine.
"""

import contextlib
import json
import time
from dataclasses import dataclass, replace
from itertools import pairwise

from thetastream.core.folder import Folder
from thetastream.core.records import decode, encode
from thetastream.engine.table_partitions import RunExtent
from thetastream.results.version_log import connect

KEPT_EPOCHS = 64
"""The number of epochs whose versions are known."""
REPEATED_EPOCHS = 2
"""The runs that so many of the last epochs of a join read are kept, because Spark may run them again."""
REPLACED_S = 60
"""A version stays for so many seconds after a newer one has come, because a task may have chosen it."""
CHECKED = "checked"
NEW = 0
"""The number of a version that is staged and not added yet."""


@dataclass(frozen=True)
class Version:
    """A version of a table, which is staged."""

    number: int
    """1 for the first version that was staged, then 2, and so on."""
    runs: tuple[str, ...]
    """The names of its runs."""
    n_rows: int
    nbytes: int
    staged_s: float
    """When it was staged, in seconds since 1970."""
    content: str | None = None
    """Two versions with the same text have the same rows. None if Spark cannot hash the rows."""
    extents: tuple[RunExtent, ...] = ()
    """How large each run is, and where its rows lie."""
    layout: str = ""
    """The name of the index of the runs, which says what the columns of the extents are."""
    cuts: tuple[str, ...] = ()
    """The values of the first key at which its rows are cut into ranges, in ascending order, as Spark writes
    them. Empty if its rows are not cut."""

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.staged_s))
        return f"version {self.number}, staged at {when} UTC"


@dataclass(frozen=True)
class Refused:
    """A version that was not staged, because the query cannot use it."""

    condition: str
    """The name of the error."""
    what: str
    when_s: float
    """When it was refused first, in seconds since 1970."""


@dataclass(frozen=True)
class SourceCheck:
    """What comparisons of a table with its source have found."""

    fresh_s: float = 0.0
    """When the newest version last had the rows of the source, in seconds since 1970."""
    stamp: str | None = None
    """What the source looked like then, without its rows: the number of its version, or its files."""
    refused: Refused | None = None
    """The last version, if it was refused."""


@dataclass(frozen=True)
class EpochVersion:
    """The version of a table that an epoch of a query reads."""

    alias: str
    """The alias of the table in the join."""
    version: Version
    fresh_s: float
    """When the version last had the rows of the source, as far as was known when the epoch began."""
    refused: str | None = None
    """The name of the error for which a later version was refused."""


class SharedFolder(Folder):
    """A folder in which one of several writers of a new file succeeds, also on an object store.

    Parameters
    ----------
    root : str
        Path or URI, the same for the driver and all workers.
    name : str
        Path of the folder inside ``root``.
    """

    def __init__(self, root: str, name: str) -> None:
        super().__init__(root, name)
        self._root = root

    @property
    def is_object_store(self) -> bool:
        """Whether it has no folders, and a list of files costs less than to ask for a few of them."""
        return bool(self.filesystem.type_name == "s3")

    def write_new(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one of this name, and return whether it was written.

        Raises
        ------
        QueryError
            NO_ATOMIC_COMMIT or MISSING_PACKAGE.
        StoreError
            STORE_UNREACHABLE.
        """
        if self.is_object_store:
            store = connect(self._root, self.filesystem.region)
            return store.write_new(self.locate(name), data)
        return super().write_new(name, data)


class TableVersions:
    """The versions of one table.

    Parameters
    ----------
    folder : SharedFolder
        The folder ``staged/<table>``.
    """

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder

    def list_numbers(self) -> list[int]:
        """List the numbers of the versions, in ascending order."""
        return sorted(int(name) for name in self._folder.list_files() if name.isdecimal())

    def read_newest(self) -> Version | None:
        """Read the newest version; None if there is none."""
        numbers = self.list_numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Version:
        """Read a version."""
        return decode(Version, json.loads(self._folder.read(str(number))))

    def list_runs(self) -> set[str]:
        """List the runs of all versions."""
        runs: set[str] = set()
        for number in self.list_numbers():
            # Another program may remove a version meanwhile.
            with contextlib.suppress(FileNotFoundError):
                runs.update(self.read(number).runs)
        return runs

    def add(self, version: Version) -> Version:
        """Add a version behind the newest one, and return it with its number.

        A task that runs again finds the version that it has added before.
        """
        while True:
            newest = self.read_newest()
            if newest is not None and newest.runs == version.runs:
                return newest
            numbered = replace(version, number=1 if newest is None else newest.number + 1)
            if self._folder.write_new(str(numbered.number), json.dumps(encode(numbered)).encode()):
                return numbered

    def read_check(self) -> SourceCheck:
        """Read what the last comparison has found."""
        try:
            return decode(SourceCheck, json.loads(self._folder.read(CHECKED)))
        except FileNotFoundError:
            return SourceCheck()

    def write_check(self, check: SourceCheck) -> None:
        """Write what a comparison has found."""
        self._folder.write(CHECKED, json.dumps(encode(check)).encode())

    def list_replaced(self, keep: int, now_s: float) -> list[Version]:
        """List the versions that no new epoch reads, except the newest ``keep`` ones."""
        numbers = self.list_numbers()
        replaced = []
        for number, newer in pairwise(numbers):
            is_old = number <= numbers[-1] - keep
            # Another program may remove the same versions.
            with contextlib.suppress(FileNotFoundError):
                if is_old and now_s - self.read(newer).staged_s > REPLACED_S:
                    replaced.append(self.read(number))
        return replaced

    def remove(self, version: Version) -> None:
        """Remove a version. Its runs remain."""
        with contextlib.suppress(FileNotFoundError):
            self._folder.remove(str(version.number))


class EpochVersions:
    """The version that each epoch of a join reads.

    Parameters
    ----------
    folder : SharedFolder
        The folder ``epochs/<join>``.
    """

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder

    def list_epochs(self) -> list[int]:
        """List the numbers of the epochs, in ascending order."""
        return sorted(int(name) for name in self._folder.list_files() if name.isdecimal())

    def read(self, epoch: int) -> EpochVersion:
        """Read what an epoch reads."""
        return decode(EpochVersion, json.loads(self._folder.read(str(epoch))))

    def find(self, epoch: int) -> EpochVersion | None:
        """Read what an epoch reads; None if nothing is written down for it."""
        return self.read(epoch) if self._folder.exists(str(epoch)) else None

    def decide(self, epoch: int, chosen: EpochVersion) -> EpochVersion:
        """Write down what an epoch reads, unless another task has; return what is written."""
        if not self._folder.write_new(str(epoch), json.dumps(encode(chosen)).encode()):
            return self.read(epoch)
        for old in self.list_epochs():
            if old <= epoch - KEPT_EPOCHS:
                with contextlib.suppress(FileNotFoundError):
                    self._folder.remove(str(old))
        return chosen

    def list_repeated(self, kept_s: float) -> set[str]:
        """List the runs that epochs read which Spark may run again.

        Epochs that began more than ``kept_s`` seconds ago do not count.
        """
        files = {int(name): times for name, times in self._folder.list_files().items() if name.isdecimal()}
        runs: set[str] = set()
        for epoch in sorted(files)[-REPEATED_EPOCHS:]:
            if time.time() - files[epoch][0] / 1e9 <= kept_s:
                # The runs of an entry that cannot be read stay, unless the entry is damaged.
                with contextlib.suppress(FileNotFoundError, ValueError):
                    runs.update(self.read(epoch).version.runs)
        return runs
