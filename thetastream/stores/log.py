"""The protocol of the log of a store. Its only atomic step is to append a version."""

from collections.abc import Hashable, Iterator
from typing import Any, Protocol


class Log(Protocol):
    """Versions 0, 1, 2, ... of a store. Each version is written once and never changes."""

    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none."""

    def read_first(self) -> dict[str, Any]:
        """Read version 0. It raises StoreError NO_STORE if there is none."""

    def read(self, version: int) -> dict[str, Any]:
        """Read a version."""

    def read_after(self, version: int) -> Iterator[dict[str, Any]]:
        """Read all newer versions, in order."""

    def append(self, version: int, entry: dict[str, Any]) -> bool:
        """Write a version in one atomic step unless it exists; return whether it was written."""

    def find_mark(self, version: int) -> Hashable:
        """Find what tells a version from another one of its number; None if the version does not exist.

        A store that was restored from a backup makes a version again, with other rows. Old versions may be
        removed after a state that contains them.
        """

    def read_state(self) -> tuple[int, dict[str, Any] | None]:
        """Read the newest state, and the version after which it was written; (0, None) if there is none."""
