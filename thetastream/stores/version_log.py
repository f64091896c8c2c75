"""The log of a store in a folder: versions 0, 1, 2, ..., each a JSON file that appears whole and only once.

    folder/_log/00000000000000000000.json    the description of the store
    folder/_log/00000000000000000007.json    the seventh commit, or a rewrite
    folder/_log/state-00000000000000000007.json    the state that follows from the versions up to the seventh

Only files that commits name contain results. All other files in the folder contain none.
"""

import json
import re
import time
from collections.abc import Hashable, Iterator
from contextlib import suppress
from typing import Any

from thetastream.core.folder import Folder, hide_secrets
from thetastream.errors import StoreError
from thetastream.stores.commit_file import write_once

FORMAT = 1
"""The version of the format of entries."""

GRACE_S = 3600
"""The least age of an entry that is removed because a state contains it, in seconds."""

_NAME = re.compile(r"(state-)?([0-9]{20})\.json")
"""The names of entries and states. Files with other names are not part of the log."""

_NEWEST: dict[str, int] = {}
"""The newest version of each log that this process knows."""


class VersionLog:
    """The log of the store in the folder ``root``, a path or URI."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.where = hide_secrets(root)
        self._folder = Folder(root, "_log")

    def read_first(self) -> dict[str, Any]:
        """Read the entry that describes the store.

        Raises
        ------
        StoreError
            NO_STORE or STORE_DAMAGED.
        """
        if not self._folder.exists(_name(0)):
            what = f"{self.where} must hold results of th.write, and it has no log of commits"
            raise StoreError("NO_STORE", what)
        return self.read(0)

    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none.

        The folder is listed once. Later calls only ask whether the next version exists. Old entries are
        removed in their order. So if the next version does not exist and afterwards this version still
        exists, the next version was never written.
        """
        newest = _NEWEST.get(self._root, -1)
        while True:
            while newest >= 0 and self.has(newest + 1):
                newest += 1
            if newest >= 0 and self.has(newest):
                break
            found = (_NAME.fullmatch(name) for name in self._folder.list_files())
            newest = max((int(one[2]) for one in found if one and not one[1]), default=-1)
            if newest < 0:
                break
        _NEWEST[self._root] = newest
        return newest

    def read(self, version: int) -> dict[str, Any]:
        """Read an entry.

        Raises
        ------
        StoreError
            STORE_DAMAGED.
        """
        entry = self._read_json(_name(version))
        if entry.get("format") != FORMAT:
            where = f"{self.where}/_log/{_name(version)}"
            raise StoreError("STORE_DAMAGED", f"{where} must have the format {FORMAT}; it has another one")
        return entry

    def _read_json(self, name: str) -> dict[str, Any]:
        where = f"{self.where}/_log/{name}"
        try:
            found = json.loads(self._folder.read(name))
        except (OSError, ValueError) as error:
            raise StoreError("STORE_DAMAGED", f"{where} must be an entry of the log: {error}") from error
        if not isinstance(found, dict):
            raise StoreError("STORE_DAMAGED", f"{where} must be an entry of the log, and it is no object")
        return found

    def has(self, version: int) -> bool:
        """Whether an entry exists. Old entries are removed after a state that contains them."""
        return self._folder.exists(_name(version))

    def find_mark(self, version: int) -> Hashable:
        """Find what tells an entry from another one of its version; None if it does not exist."""
        return self._folder.find_mark(_name(version))

    def read_state(self) -> tuple[int, dict[str, Any] | None]:
        """Read the newest state, and the version after which it was written; (0, None) if there is none."""
        versions = self._list_states()
        if not versions:
            return 0, None
        return versions[-1], self._read_json(_name_state(versions[-1]))

    def write_state(self, version: int, state: dict[str, Any]) -> None:
        """Write the state after a version, and remove old states and entries.

        Those before the previous state are removed if they are older than ``GRACE_S`` seconds. Younger ones
        are kept, because a writer that pauses could write an entry again that was removed meanwhile.
        """
        before = [one for one in self._list_states() if one < version]
        self._folder.write(_name_state(version), json.dumps(state).encode())
        now = time.time()
        # They are removed in their order, so that ``find_newest`` finds no gap after an entry that exists.
        for name, (changed_ns, _) in sorted(self._folder.list_files().items()):
            found = _NAME.fullmatch(name)
            is_old = found and before and 0 < int(found[2]) < before[-1]
            if is_old and now - changed_ns / 1e9 >= GRACE_S:
                with suppress(FileNotFoundError):  # Another process has removed it.
                    self._folder.remove(name)

    def _list_states(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self._folder.list_files())
        return sorted(int(one[2]) for one in found if one and one[1])

    def read_after(self, version: int) -> Iterator[dict[str, Any]]:
        """Read all entries after ``version``, one after the other. The folder is not listed."""
        while self._folder.exists(_name(version + 1)):
            version += 1
            yield self.read(version)

    def append(self, version: int, entry: dict[str, Any]) -> bool:
        """Write an entry unless this version exists; return whether it was written.

        Raises
        ------
        QueryError
            NO_ATOMIC_COMMIT or MISSING_PACKAGE.
        StoreError
            STORE_UNREACHABLE.
        """
        self._folder.make()
        text = json.dumps({"format": FORMAT, "version": version, **entry})
        return write_once(self._root, self._folder, _name(version), text.encode())


def _name_state(version: int) -> str:
    return f"state-{version:020}.json"


def _name(version: int) -> str:
    return f"{version:020}.json"
