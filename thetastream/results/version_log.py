"""The log of a store in a folder: versions 0, 1, 2, ..., each a JSON file that appears whole and only once.

    folder/_log/00000000000000000000.json    the description of the store
    folder/_log/00000000000000000007.json    the seventh commit, or a rewrite
    folder/_log/state-00000000000000000007.json    the state that follows from the versions up to the seventh
    folder/_log/newest.json    the note: a version that was written

Only files that commits name contain results. All other files in the folder contain none.
"""

import re
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from thetastream.core.folder import Folder, hide_secrets
from thetastream.results.atomic_files import write_once
from thetastream.results.log import EntryRemoved, Log, LogState
from thetastream.results.sealed_entry import make_damaged, seal_entry, unseal_entry
from thetastream.results.store import make_unreachable

GRACE_S = 3600
"""The least age of an entry that is removed because a state contains it, in seconds."""
LIST_S = 10.0
"""A reader that has read all entries lists the folder again after this time, in seconds."""
LIST_SHARE = 0.01
"""The largest share of its time for which a reader that has read all entries lists the folder."""

_NAME = re.compile(r"(state-)?([0-9]{20})\.json")
"""The names of entries and states. Files with other names are not part of the log."""

NOTE = "newest.json"
"""The name of the note."""

_NEWEST: dict[str, int] = {}
"""The newest version of each log that this process knows."""


class _Listing(NamedTuple):
    """The entries and states in the folder of a log."""

    versions: frozenset[int]
    states: frozenset[int]
    next_s: float
    """The time of the monotonic clock at which a reader lists the folder again."""

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is none. A state names an entry, so this entry must exist too."""
        return max(self.versions | self.states, default=-1)

    @property
    def covered(self) -> int:
        """The last version that a state contains; 0 if there is no state."""
        return max(self.states, default=0)


_LISTED: dict[str, _Listing] = {}
"""The last listing of the folder of each log."""


class VersionLog(Log):
    """The log of the store in the folder ``root``, a path or URI."""

    def __init__(self, root: str) -> None:
        super().__init__(hide_secrets(root))
        self._root = root
        self._folder = Folder(root, "_log")

    def locate(self, version: int) -> str:
        return f"{self.name}/_log/{_name(version)}"

    def find_last(self) -> int:
        """Find the last version that is there; -1 if there is none.

        The folder is listed once. Later calls only ask whether the next version exists. Old entries are
        removed in their order. So if the next version does not exist and afterwards this version still
        exists, the next version was never written.

        Raises
        ------
        StoreError
            STORE_DAMAGED if an entry is gone that no state contains.
        """
        newest = _NEWEST.get(self._root, -1)
        while True:
            while newest >= 0 and self.has(newest + 1):
                newest += 1
            if newest >= 0 and self.has(newest):
                break
            listing = self._list()
            self._refuse_gap(listing)
            newest = listing.newest
            if newest < 0:
                break
        _NEWEST[self._root] = newest
        return newest

    def find_text(self, version: int) -> object:
        return self._read(_name(version))

    def has(self, version: int) -> bool:
        """Whether an entry exists. Old entries are removed after a state that contains them."""
        with self._reach():
            return self._folder.exists(_name(version))

    def find_mark(self, version: int) -> Hashable:
        """Find what tells an entry from another one of its version; None if it does not exist."""
        with self._reach():
            return self._folder.find_mark(_name(version))

    def list_texts(self, after: int, noted: int) -> Iterator[tuple[int, object]]:
        """List the newer versions and their texts, in order.

        The folder is listed only if the next version does not exist, and not each time (``LIST_S``).

        Raises
        ------
        EntryRemoved
            If a state contains entries that are gone and that the reader has not read.
        """
        while True:
            while self.has(after + 1):
                text = self.find_text(after + 1)
                if text is None:  # Another process has removed it, and a state contains it.
                    break
                after += 1
                yield after, text
            listing = _LISTED.get(self._root)
            is_known = listing is not None and listing.newest == after == _NEWEST.get(self._root, after)
            if is_known and noted <= after and listing is not None and time.monotonic() < listing.next_s:
                return
            listing = self._list()
            if listing.newest <= after:
                return
            if not self.has(after + 1):
                if listing.covered > after:
                    raise EntryRemoved(self.locate(after + 1))
                after = min(version for version in listing.versions if version > after + 1) - 1

    def read_state(self) -> LogState:
        """Read the newest state.

        Raises
        ------
        StoreError
            NO_STORE, STORE_DAMAGED or STORE_FORMAT.
        """
        states = self._list().states
        if not states:
            return super().read_state()
        version = max(states)
        where = f"{self.name}/_log/{_name_state(version)}"
        found = unseal_entry(where, version, self._read(_name_state(version)))
        return LogState(version, found["previous"], found["history"])

    def write_state(self, version: int, seal: str, history: dict[str, Any]) -> None:
        """Write the state after a version, and remove old states and entries.

        Those before the previous state are removed if they are older than ``GRACE_S`` seconds. Younger ones
        are kept, because a writer that pauses could write an entry again that was removed meanwhile.
        """
        before = sorted(one for one in self._list().states if one < version)
        text = seal_entry(version, seal, {"history": history})
        self._folder.write(_name_state(version), text.encode(), is_durable=True)
        now = time.time()
        # They are removed in their order, so that ``find_last`` finds no gap after an entry that exists.
        for name, (changed_ns, _) in sorted(self._folder.list_files().items()):
            found = _NAME.fullmatch(name)
            is_old = found and before and 0 < int(found[2]) < before[-1]
            if is_old and now - changed_ns / 1e9 >= GRACE_S:
                with suppress(FileNotFoundError):  # Another process has removed it.
                    self._folder.remove(name)

    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        """Write the text of an entry unless its version exists; return whether it was written.

        Raises
        ------
        QueryError
            NO_ATOMIC_COMMIT or MISSING_PACKAGE.
        StoreError
            STORE_UNREACHABLE.
        """
        self._folder.make()
        return write_once(self._root, self._folder, _name(version), text.encode())

    def find_note(self) -> object:
        return self._read(NOTE)

    def write_note(self, text: str) -> None:
        # Two writers at a time may disturb each other on HDFS. Then the note stays older, or is left out.
        with suppress(OSError):
            self._folder.write(NOTE, text.encode(), is_durable=True)

    def _read(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist."""
        with self._reach():
            try:
                return self._folder.read(name)
            except FileNotFoundError:
                return None

    @contextmanager
    def _reach(self) -> Iterator[None]:
        """Raise an error of the store if the folder does not answer."""
        try:
            yield
        except OSError as error:
            raise make_unreachable(f"the log of {self.name}", error) from error

    def _list(self) -> _Listing:
        begun_s = time.monotonic()
        with self._reach():
            found = [_NAME.fullmatch(name) for name in self._folder.list_files()]
        versions, states = (
            frozenset(int(one[2]) for one in found if one and bool(one[1]) == is_state)
            for is_state in (False, True)
        )
        now_s = time.monotonic()
        listing = _Listing(versions, states, now_s + max(LIST_S, (now_s - begun_s) / LIST_SHARE))
        _LISTED[self._root] = listing
        return listing

    def _refuse_gap(self, listing: _Listing) -> None:
        """Raise if an entry is gone that no state contains. A listing may lack an entry that is new."""
        needed = {*range(listing.covered, listing.newest + 1)} | ({0} if listing.newest >= 0 else set())
        for version in sorted(needed - listing.versions):
            # Another process may have written a state meanwhile, and removed what the state contains.
            if not self.has(version) and (version == 0 or self._list().covered <= version):
                why = f"it is gone, and entry {listing.newest} is there"
                raise make_damaged(self.locate(version), why)


def _name_state(version: int) -> str:
    return f"state-{version:020}.json"


def _name(version: int) -> str:
    return f"{version:020}.json"
