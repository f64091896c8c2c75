"""The log of a store: versions 0, 1, 2, ..., of which each is written once and never changes.

A subclass keeps texts by version. Its only atomic step is to write a text unless its version exists. This
class seals and chains the texts, and checks what it reads (``thetastream.results.sealed_entry``).

A log whose last entries are gone is an older copy of itself. So a note beside the log names a version that
was written. The note is written after the entry. After a crash between the two, and if several writers write
their notes in another order, it names an older version, which exists too. A log that ends before the version
of its note is refused.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from thetastream.core.errors import StoreError, ThetastreamError
from thetastream.results.sealed_entry import NO_SEAL, make_damaged, read_seal, seal_entry, unseal_entry


class LogState(NamedTuple):
    """What all entries up to a version say together."""

    version: int
    seal: str
    """The seal of the entry of this version."""
    history: dict[str, Any] | None
    """The history as JSON; None if the log has no state, and its entries are read from the first one on."""


class EntryRemoved(StoreError):
    """A state contains entries that are gone and that a reader has not read. It reads the state instead."""

    def __init__(self, where: str) -> None:
        damaged = make_damaged(where, "it is gone, and a newer state is there")
        super().__init__(damaged.condition, damaged.message)


class Log(ABC):
    """The log of the store that messages call ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def find_last(self) -> int:
        """Find the last version that is there; -1 if there is none."""

    @abstractmethod
    def find_text(self, version: int) -> object:
        """Find the text of a version; None if it does not exist."""

    @abstractmethod
    def list_texts(self, after: int, noted: int) -> Iterator[tuple[int, object]]:
        """List the newer versions and their texts, in order. A version that is gone is left out.

        ``noted`` is the version that the note named before.
        """

    @abstractmethod
    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        """Write the text of an entry in one atomic step unless its version exists.

        Return whether it was written.
        """

    @abstractmethod
    def find_note(self) -> object:
        """Find the text of the note; None if there is none."""

    @abstractmethod
    def write_note(self, text: str) -> None:
        """Write the note in place of the one before."""

    def locate(self, version: int) -> str:
        """Name the place of an entry in messages."""
        return f"entry {version} of the log of {self.name}"

    def append(self, version: int, previous: str, entry: Mapping[str, Any]) -> bool:
        """Write an entry behind the one with the seal ``previous``, unless its version exists.

        Return whether it was written.
        """
        text = seal_entry(version, previous, entry)
        if not self.write(version, text, entry):
            return False
        self.write_note(seal_entry(version, read_seal(text), {}))
        return True

    def read_note(self) -> int:
        """Read the version that the note names; -1 if there is no note.

        Raises
        ------
        StoreError
            STORE_DAMAGED or STORE_FORMAT.
        """
        text = self.find_note()
        where = f"the note of the newest entry of the log of {self.name}"
        return -1 if text is None else int(unseal_entry(where, None, text)["version"])

    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none.

        Raises
        ------
        StoreError
            STORE_DAMAGED if the log has a gap, or ends before the version of its note.
        """
        noted, newest = self.read_note(), self.find_last()
        if newest < noted:
            raise self._make_cut(newest, noted)
        return newest

    def read(self, version: int) -> dict[str, Any]:
        """Read an entry.

        Raises
        ------
        StoreError
            STORE_DAMAGED or STORE_FORMAT.
        """
        text = self.find_text(version)
        if text is None:
            raise make_damaged(self.locate(version), "it is gone")
        return unseal_entry(self.locate(version), version, text)

    def read_first(self) -> dict[str, Any]:
        """Read the entry that describes the store.

        Raises
        ------
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_FORMAT.
        """
        if self.find_text(0) is None and self.find_newest() < 0:
            what = f"{self.name} must hold results of th.write, and it has no log of commits"
            raise StoreError("NO_STORE", what)
        return self.read(0)

    def read_after(self, version: int, seal: str) -> Iterator[dict[str, Any]]:
        """Read all newer entries, in order. ``seal`` is that of the entry ``version``.

        Raises
        ------
        StoreError
            STORE_DAMAGED if an entry is damaged, gone, or that of another log; STORE_FORMAT.
        """
        noted = self.read_note()
        for newer, text in self.list_texts(version, noted):
            if newer != version + 1:
                raise make_damaged(self.locate(version + 1), f"it is gone, and entry {newer} is there")
            entry = unseal_entry(self.locate(newer), newer, text)
            if entry["previous"] != seal:
                why = f"it does not continue entry {version}: one of them belongs to another copy of the log"
                raise make_damaged(self.locate(newer), why)
            version, seal = newer, entry["seal"]
            yield entry
        if version < noted:
            raise self._make_cut(version, noted)

    def find_mark(self, version: int) -> Hashable:
        """Find what tells an entry from another one of its version; None if it does not exist.

        A store that was restored from a backup makes a version again, with other rows. Old versions may be
        removed after a state that contains them.
        """
        text = self.find_text(version)
        return text if isinstance(text, str | bytes) else None

    def read_state(self) -> LogState:
        """Read the newest state. By default, a log has none."""
        return LogState(0, self.read_first()["seal"], None)

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each entry that is damaged, gone, or does not continue the one before it.

        Entries that a state contains may be gone.
        """
        noted = -1
        try:
            noted = self.read_note()
        except ThetastreamError as error:
            yield error.message
        try:
            version, seal, _ = self.read_state()
            first = self.read_first()
        except ThetastreamError as error:
            yield error.message
            version, seal = 0, NO_SEAL
        else:
            seal = seal if version else first["seal"]
        for newer, text in self.list_texts(version, noted):
            if newer != version + 1:
                yield f"{self.name} must have entries {version + 1} to {newer - 1}, and they are gone"
            try:
                entry = unseal_entry(self.locate(newer), newer, text)
            except ThetastreamError as error:
                yield error.message
                version, seal = newer, NO_SEAL
                continue
            if newer == version + 1 and seal not in (NO_SEAL, entry["previous"]):
                yield f"{self.locate(newer)} does not continue entry {version}"
            version, seal = newer, entry["seal"]
        if version < noted:
            yield self._make_cut(version, noted).message

    def _make_cut(self, last: int, noted: int) -> StoreError:
        """Make the error of a log that ends before the version of its note."""
        return make_damaged(self.locate(last + 1), f"it is gone, and the log had entry {noted}")
