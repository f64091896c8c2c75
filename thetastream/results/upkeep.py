"""Decides which staged rows can be removed: those that no commit can name and no reader needs any more."""

import time

from thetastream.results.staged import read_part_name
from thetastream.results.store import LoggedStore


class Sweeping:
    """One sweep of a store. Rows that were forgotten or merged stay for ``grace_s`` seconds."""

    def __init__(self, store: LoggedStore, grace_s: float) -> None:
        # The epochs are read first. Rows that are staged for a later epoch stay, because a commit may name
        # them in the meantime.
        self._epochs = store.list_last_epochs()
        history = store.read_history()
        self._named = {one.name for one in history.list_staged()}
        self._dropped = history.dropped
        self._until_s = time.time() - grace_s

    def is_removable(self, name: str, merged_s: float | None = None) -> bool:
        """Whether a name can be removed. ``merged_s`` is the time at which a merged file was written."""
        if name in self._named:
            return False
        if name in self._dropped:
            return self._dropped[name] / 1e6 <= self._until_s
        if merged_s is not None:
            return merged_s <= self._until_s
        origin = read_part_name(name)
        return origin is not None and origin[1] <= self._epochs.get(origin[0], -1)
