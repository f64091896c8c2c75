"""The log of a store: entries 0, 1, 2, ..., of which each is written once and never changes.

    entry n = {"format": 2, "version": n, "previous": seal of entry n - 1, ..., "seal": seal of this entry}
    seal    = SHA-256 of the text before it

The seal of an entry depends on the seals of all entries before it, so an entry fits only one place of one
log. A damaged, exchanged or missing entry is noticed.

A log whose last entries are gone is an older copy of itself. So a note beside the log names an entry that
was written. The note is written after the entry. After a crash between the two, and if several writers write
their notes in another order, it names an older entry, which exists too. A log that ends before the entry of
its note is refused.

A state says what all entries up to one of them say together. Entries that a state contains may be gone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from thetastream.core.errors import StoreError, ThetastreamError
from thetastream.results.backend import NOTE, STATE, Backend

FORMAT = 2
"""The version of the format of entries."""
NO_SEAL = ""
"""What the first entry names as the seal of the entry before it."""
_SEALED = re.compile(r'(.*), "seal": "([0-9a-f]{64})"\}', re.DOTALL)


class LogState(NamedTuple):
    """What all entries up to a version say together."""

    version: int
    seal: str
    """The seal of the entry of this version."""
    history: dict[str, Any] | None
    """The history as JSON; None if the log has no state, and its entries are read from the first one on."""


class EntryRemoved(StoreError):
    """A state contains entries that are gone and that a reader has not read. It reads the state instead."""


class Log:
    """The log that a backend keeps.

    Parameters
    ----------
    name : str
        The name of the store in messages.
    backend : Backend
    place : str
        The place of an entry in messages, with ``{name}`` and ``{n}``.
    """

    def __init__(self, name: str, backend: Backend, place: str) -> None:
        self._name, self._backend, self._place = name, backend, place

    def locate(self, version: int) -> str:
        """Name the place of an entry in messages."""
        return self._place.format(name=self._name, n=version)

    def append(self, version: int, previous: str, entry: Mapping[str, Any]) -> bool:
        """Write an entry behind the one with the seal ``previous``, unless its version exists.

        Return whether it was written.
        """
        text = seal_entry(version, previous, entry)
        if not self._backend.append(version, text, entry):
            return False
        self._backend.mark(seal_entry(version, read_seal(text), {}))
        return True

    def find_text(self, version: int) -> object:
        """Find the text of an entry, the note or the state; None if there is none."""
        return next((text for _, text in self._backend.read(version)), None)

    def find_seal(self, version: int) -> str | None:
        """Find the seal of an entry, which tells it from another one of its version; None without an entry.

        A store that was restored from a backup makes a version again, with other rows.
        """
        text = self.find_text(version)
        known = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return None if text is None else read_seal(known)

    def read_note(self) -> int:
        """Read the version that the note names; -1 if there is no note.

        Raises
        ------
        StoreError
            STORE_DAMAGED or STORE_FORMAT.
        """
        text = self.find_text(NOTE)
        where = f"the note of the newest entry of the log of {self._name}"
        return -1 if text is None else int(unseal_entry(where, None, text)["version"])

    def find_newest(self) -> int:
        """Find the newest version; -1 if there is none.

        Raises
        ------
        StoreError
            STORE_DAMAGED if the log has a gap, or ends before the version of its note.
        """
        noted, newest = self.read_note(), self._backend.newest()
        if newest < noted:
            raise make_damaged(self.locate(newest + 1), _tell_cut(noted))
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
            what = f"{self._name} must hold results of th.write, and it has no log of commits"
            hint = 'a job writes one with store = "parquet", and plain files with format = "parquet"'
            raise StoreError("NO_STORE", f"{what}; {hint}")
        return self.read(0)

    def read_after(self, version: int, seal: str) -> Iterator[dict[str, Any]]:
        """Read all newer entries, in order. ``seal`` is that of the entry ``version``.

        Raises
        ------
        StoreError
            STORE_DAMAGED if an entry is damaged, gone, or that of another log; STORE_FORMAT.
        EntryRemoved
            If a newer state contains entries that are gone.
        """
        noted = self.read_note()
        for newer, text in self._backend.read(version + 1, with_later=True):
            if newer != version + 1:
                raise self._miss(version + 1, f"it is gone, and entry {newer} is there")
            entry = unseal_entry(self.locate(newer), newer, text)
            if entry["previous"] != seal:
                why = f"it does not continue entry {version}: one of them belongs to another copy of the log"
                raise make_damaged(self.locate(newer), why)
            version, seal = newer, entry["seal"]
            yield entry
        self._refuse_cut(version, noted)

    def read_state(self) -> LogState:
        """Read the newest state. Without one, it is what entry 0 says.

        Raises
        ------
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_FORMAT.
        """
        for version, text in self._backend.read(STATE):
            found = unseal_entry(f"the state after {self.locate(version)}", version, text)
            return LogState(version, found["previous"], found["history"])
        return LogState(0, self.read_first()["seal"], None)

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each entry that is damaged, gone, or does not continue the one before it."""
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
        try:
            last = self._backend.newest() if noted < 0 else noted
        except ThetastreamError as error:
            yield error.message
            last = noted
        start = version + 1
        while True:
            for newer, text in self._backend.read(start, with_later=True):
                if newer != version + 1:
                    yield f"{self._name} must have entries {version + 1} to {newer - 1}, and they are gone"
                try:
                    entry = unseal_entry(self.locate(newer), newer, text)
                except ThetastreamError as error:
                    yield error.message
                    version, seal = newer, NO_SEAL
                    continue
                if newer == version + 1 and seal not in (NO_SEAL, entry["previous"]):
                    yield f"{self.locate(newer)} does not continue entry {version}"
                version, seal = newer, entry["seal"]
            # An entry that is gone may end the reading.
            start = max(start, version + 1) + 1
            if start > last:
                break
        if version < last:
            yield make_damaged(self.locate(version + 1), _tell_cut(last)).message

    def _refuse_cut(self, version: int, noted: int) -> None:
        """Raise if a reader found no entry after ``version``, and there was or is one.

        A log without a note is asked for its last entry. The next entry may have come in the meantime.
        """
        last = self._backend.newest() if noted < 0 else noted
        if version < last and (noted >= 0 or self.find_text(version + 1) is None):
            raise self._miss(version + 1, _tell_cut(last))

    def _miss(self, version: int, why: str) -> StoreError:
        """Make the error of an entry that is gone."""
        damaged = make_damaged(self.locate(version), why)
        is_covered = self.read_state().version >= version
        return EntryRemoved(damaged.condition, damaged.message) if is_covered else damaged


def _tell_cut(noted: int) -> str:
    """Say that a log ends before the version of its note."""
    return f"it is gone, and the log had entry {noted}"


def seal_entry(version: int, previous: str, entry: Mapping[str, Any]) -> str:
    """Write an entry as one object of JSON that ends with its seal.

    >>> seal_entry(7, "", {"epoch": 3})[:57]
    '{"format": 2, "version": 7, "previous": "", "epoch": 3, "'
    """
    body = json.dumps({"format": FORMAT, "version": version, "previous": previous, **entry})[:-1]
    return f'{body}, "seal": "{sha256(body.encode()).hexdigest()}"}}'


def read_seal(text: str) -> str:
    """Read the seal of an entry that ``seal_entry`` wrote."""
    return text[-66:-2]


def unseal_entry(where: str, version: int | None, text: object) -> dict[str, Any]:
    """Read an entry that ``seal_entry`` wrote.

    Parameters
    ----------
    where : str
        The place of the entry in messages.
    version : int or None
        The version that the entry must have; None if it may have any.
    text : str or bytes
        What the place has. A value of another type is an entry of an earlier version of Thetastream.

    Raises
    ------
    StoreError
        STORE_DAMAGED, or STORE_FORMAT if an earlier version of Thetastream wrote the entry.
    """
    try:
        found = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise make_damaged(where, f"it is no text: {error}") from None
    parts = _SEALED.fullmatch(found) if isinstance(found, str) else None
    if parts is None:
        if _is_earlier(found):
            what = f"{where} must have format {FORMAT}, and an earlier version of Thetastream wrote it"
            raise StoreError("STORE_FORMAT", f"{what}. Begin with a new checkpoint and a new store")
        raise make_damaged(where, "it does not end with its seal")
    if sha256(parts[1].encode()).hexdigest() != parts[2]:
        raise make_damaged(where, "its content does not fit its seal")
    entry: dict[str, Any] = json.loads(parts[0])
    if entry["format"] != FORMAT:
        what = f"{where} must have format {FORMAT}, and it has format {entry['format']}"
        raise StoreError("STORE_FORMAT", f"{what}. Use the version of Thetastream that wrote it")
    if version is not None and entry["version"] != version:
        raise make_damaged(where, f"it is entry {entry['version']}, and this is the place of {version}")
    return entry


def make_damaged(where: str, why: str) -> StoreError:
    """Make the error of an entry of a log that is damaged, exchanged or gone."""
    hint = "Restore the store from a backup. thetastream verify lists all that is damaged"
    return StoreError("STORE_DAMAGED", f"{where} must be as its commit wrote it, and {why}. {hint}")


def _is_earlier(text: object) -> bool:
    """Whether an entry has the form of earlier versions, which wrote objects of JSON without a seal."""
    if isinstance(text, Mapping):  # PostgreSQL kept entries as values of type JSONB.
        return True
    try:
        found = json.loads(str(text))
    except ValueError:
        return False
    return isinstance(found, dict) and "seal" not in found and found.get("format") in (None, 1)
