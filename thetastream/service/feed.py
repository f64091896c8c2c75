"""One look at a store for all its subscribers.

A feed asks the store for new snapshots while somebody waits for them, and wakes those who wait. It keeps the
last snapshots and the last events in memory, so that a thousand subscribers cost one read and not a thousand.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from thetastream.stores.base import Store
from thetastream.stores.snapshots import Snapshot

KEPT_EVENTS = 4
KEPT_SNAPSHOTS = 1000
POLL_S = 0.2
"""The time between two looks at the store, in seconds."""


class Feed:
    """The snapshots of one store, for any number of subscribers of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: list[Snapshot] = []
        self._look: asyncio.Task[None] | None = None
        self._events: OrderedDict[int, asyncio.Task[bytes]] = OrderedDict()

    async def list_after(self, seen: int | None) -> list[Snapshot]:
        """List the snapshots after ``seen`` that the store has now, in order.

        If ``seen`` is None, the first snapshot that is kept comes first. The one that follows ``seen`` may be
        missing, because it is not kept any more.
        """
        found = await asyncio.to_thread(self._store.snapshots, seen or 0)
        self._remember(found)
        return found

    async def wait(self, seen: int | None, patience_s: float) -> list[Snapshot]:
        """List the snapshots after ``seen``; wait if there is none, and return none if the time is over."""
        deadline = asyncio.get_running_loop().time() + patience_s
        found = await self._list_known(seen)
        while not found:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_once())
            # A subscriber that leaves must not end the look of the others.
            await asyncio.wait([self._look], timeout=left)
            if self._look.done():
                self._look.result()
            found = await self._list_known(seen)
        return found

    async def _list_known(self, seen: int | None) -> list[Snapshot]:
        """List the snapshots after ``seen`` from memory; ask the store if memory begins behind them."""
        known = self._snapshots
        if known and (seen or 0) + 1 < known[0].number:
            return await self.list_after(seen)
        return [one for one in known if one.number > (seen or 0)]

    async def _look_once(self) -> None:
        await asyncio.sleep(POLL_S)
        last = self._snapshots[-1].number if self._snapshots else 0
        self._remember(await asyncio.to_thread(self._store.snapshots, last))

    def _remember(self, found: list[Snapshot]) -> None:
        last = self._snapshots[-1].number if self._snapshots else 0
        new = [one for one in found if one.number > last]
        self._snapshots = [*self._snapshots, *new][-KEPT_SNAPSHOTS:]

    async def encode(self, snapshot: Snapshot, encode: Callable[[], bytes]) -> bytes:
        """Return the event of a snapshot; compute it if no other subscriber has asked for it lately."""
        event = self._events.get(snapshot.number)
        if event is None:
            event = asyncio.create_task(asyncio.to_thread(encode))
            self._events[snapshot.number] = event
            while len(self._events) > KEPT_EVENTS:
                self._events.popitem(last=False)
        try:
            return await asyncio.shield(event)
        except Exception:
            # The next subscriber tries again.
            self._events.pop(snapshot.number, None)
            raise
