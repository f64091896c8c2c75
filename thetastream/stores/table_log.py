"""The log of a store in a table of a database, whose key is the version."""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any

from thetastream.errors import StoreError


class TableLog(ABC):
    """Versions of a store as rows of a table. No version is removed."""

    def __init__(self, name: str) -> None:
        self._name = name

    @abstractmethod
    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none."""

    @abstractmethod
    def find(self, version: int) -> dict[str, Any] | None:
        """Find a version; None if it does not exist."""

    @abstractmethod
    def read_after(self, version: int) -> Iterator[dict[str, Any]]:
        """Read all newer versions, in order."""

    @abstractmethod
    def append(self, version: int, entry: dict[str, Any]) -> bool:
        """Write a version in one atomic step unless it exists; return whether it was written."""

    def read_first(self) -> dict[str, Any]:
        """Read the version that describes the store."""
        found = self.find(0)
        if found is None:
            what = f"{self._name} must hold results of th.write, and it has no log of commits"
            raise StoreError("NO_STORE", what)
        return found

    def read(self, version: int) -> dict[str, Any]:
        """Read a version."""
        found = self.find(version)
        if found is None:
            raise StoreError("STORE_DAMAGED", f"{self._name} must have commit {version}; it is gone")
        return found

    def find_mark(self, version: int) -> Hashable:
        """Find what tells a version from another one of its number; None if it does not exist."""
        found = self.find(version)
        return None if found is None else json.dumps(found, sort_keys=True)

    def read_state(self) -> tuple[int, dict[str, Any] | None]:
        """Return (0, None), because a log in a table has no states."""
        return 0, None
