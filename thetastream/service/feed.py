"""Reads a store once for all its subscribers.

A feed asks the store for new snapshots while subscribers wait for them. It keeps the last snapshots and the
last answers in memory, so that each snapshot is read once, however many subscribers there are.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from thetastream.errors import QueryError
from thetastream.service.answers import Encoded
from thetastream.stores.base import Store
from thetastream.stores.snapshots import Snapshot
from thetastream.stores.subscription import list_later, refuse_future, refuse_other_snapshot

KEPT_EVENTS = 4
"""The number of events that stay in memory."""
LARGEST_KEPT = 8 << 20
"""The bytes of the largest answer that stays in memory."""
KEPT_SNAPSHOTS = 1000
"""The number of snapshots, without their rows, that stay in memory."""
POLL_S = 0.2
"""A feed asks the store for new snapshots after this time, in seconds."""


class Feed:
    """The snapshots of one store, for any number of subscribers of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: list[Snapshot] = []
        """The last snapshots, whose numbers have no gap."""
        self._poll: asyncio.Task[None] | None = None
        self._events: OrderedDict[Snapshot, asyncio.Task[Encoded]] = OrderedDict()

    async def list_after(self, seen: int | None) -> list[Snapshot]:
        """List the snapshots after number ``seen`` that the store has now, in order.

        If ``seen`` is None, the list begins with the first snapshot that the store keeps. The store may have
        forgotten the snapshot that follows ``seen``. Then the list begins with a later one.
        """
        found = await asyncio.to_thread(self._store.snapshots, seen or 0)
        # If some are known already, only ``_ask_store`` adds others: it notices that the store was replaced.
        if not self._snapshots:
            self._remember(found)
        return found

    async def wait(self, seen: int | None, patience_s: float, last: Snapshot | None = None) -> list[Snapshot]:
        """Wait for snapshots after number ``seen``, and list them; list none if ``patience_s`` is over.

        ``last`` is the snapshot of this number if the subscriber has got it over this connection.

        Raises
        ------
        QueryError
            UNKNOWN_SNAPSHOT if the store was restored from a backup without the snapshot ``seen``, or has
            another one than ``last``.
        """
        deadline = asyncio.get_running_loop().time() + patience_s
        found = await self._list_known(seen, last)
        while not found:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            if self._poll is None or self._poll.done():
                self._poll = asyncio.create_task(self._ask_store())
            # A subscriber that leaves must not cancel the task for which others wait.
            await asyncio.wait([self._poll], timeout=left)
            if self._poll.done():
                self._poll.result()
            found = await self._list_known(seen, last)
        return found

    async def _list_known(self, seen: int | None, last: Snapshot | None) -> list[Snapshot]:
        """List the snapshots after ``seen`` from memory; ask the store if some of them are not in memory.

        Raises
        ------
        QueryError
            As in ``wait``.
        """
        known = self._snapshots
        if last is not None and known and 0 <= last.number - known[0].number < len(known):
            refuse_other_snapshot(last, known[last.number - known[0].number])
        if seen and (not known or known[-1].number < seen):
            await asyncio.to_thread(refuse_future, self._store, seen)
        if known and (seen or 0) + 1 < known[0].number:
            if last is not None:
                await asyncio.to_thread(list_later, self._store, seen, last)
            return await self.list_after(seen)
        return [one for one in known if one.number > (seen or 0)]

    async def _ask_store(self) -> None:
        """Ask the store for new snapshots after a pause. Forget what is known if the store was replaced."""
        await asyncio.sleep(POLL_S)
        last = self._snapshots[-1] if self._snapshots else None
        try:
            found = await asyncio.to_thread(list_later, self._store, last.number if last else None, last)
        except QueryError:
            self._snapshots = []
            found = await asyncio.to_thread(self._store.snapshots)
        self._remember(found)

    def _remember(self, found: list[Snapshot]) -> None:
        """Add the new ones of these snapshots. If they leave a gap, forget all snapshots before the gap."""
        last = self._snapshots[-1].number if self._snapshots else 0
        new = [one for one in found if one.number > last]
        known = [] if new and new[0].number > last + 1 else self._snapshots
        self._snapshots = [*known, *new][-KEPT_SNAPSHOTS:]

    async def encode(self, snapshot: Snapshot, encode: Callable[[], Encoded]) -> Encoded:
        """Return the rows of a snapshot from memory; compute them if they are not there."""
        event = self._events.get(snapshot)
        if event is None:
            event = asyncio.create_task(asyncio.to_thread(encode))
            self._events[snapshot] = event
            while len(self._events) > KEPT_EVENTS:
                self._events.popitem(last=False)
        try:
            answer = await asyncio.shield(event)
            if len(answer.content) > LARGEST_KEPT:
                # Subscribers that read it now share it, and it takes no memory later.
                self._events.pop(snapshot, None)
            return answer
        except Exception:
            # The next subscriber computes the event again.
            self._events.pop(snapshot, None)
            raise
