"""Sends each snapshot of a store to its subscribers once and in order, as server-sent events.

The id of an event is the number of the snapshot. A browser that reconnects sends the id back as
``Last-Event-ID``, and the next event is the next snapshot. The browser may reconnect to another service of
the same store. A slow reader delays only its own events, because the service reads the next snapshot after it
has sent the last event.

*Feed.* A store is read once for all its subscribers. A feed asks the store for new snapshots while
subscribers wait for them. It keeps the last snapshots and the last answers in memory, so that each snapshot
is read once, however many subscribers there are.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from starlette.responses import StreamingResponse

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.results.snapshots import Snapshot
from thetastream.results.store import Store
from thetastream.results.subscription import (
    list_later,
    open_rows,
    refuse_future,
    refuse_gap,
    refuse_other_snapshot,
)
from thetastream.service.bodies import PIECE_BYTES, Encoded, describe_snapshot, write_message
from thetastream.service.questions import Questions
from thetastream.service.statement_worker import encode_json

SILENCE_S = 10.0
"""If there is no new snapshot for this time, an event ``progress`` shows that the connection is alive."""
KEPT_EVENTS = 4
"""The number of events that stay in memory."""
LARGEST_KEPT = 8 << 20
"""The bytes of the largest answer that stays in memory."""
KEPT_SNAPSHOTS = 1000
"""The number of snapshots, without their rows, that stay in memory."""
POLL_S = 0.2
"""A feed asks the store for new snapshots after this time, in seconds."""


class SubscriberLimits:
    """Limits the number of subscribers of the service and of each client."""

    def __init__(self, total: int, per_client: int) -> None:
        self._total = total
        self._per_client = per_client
        self._taken: Counter[str] = Counter()

    def take(self, client: str) -> Callable[[], None]:
        """Take a seat and return the function that gives it back.

        Raises
        ------
        QueryError
            TOO_MANY_SUBSCRIBERS.
        """
        if self._taken.total() >= self._total:
            raise QueryError("TOO_MANY_SUBSCRIBERS", f"the service has {self._total} subscribers: try later")
        if self._taken[client] >= self._per_client:
            what = f"{client} has {self._per_client} subscriptions, and may have no more"
            raise QueryError("TOO_MANY_SUBSCRIBERS", what)
        self._taken[client] += 1

        def give_back() -> None:
            self._taken[client] -= 1
            self._taken += Counter()

        return give_back


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


class Subscription(StreamingResponse):
    """The answer to one subscriber. It gives its seat back when the connection ends, also after an error."""

    def __init__(self, events: AsyncIterator[bytes], give_back: Callable[[], None]) -> None:
        self._give_back = give_back
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send events until the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


async def produce_events(
    store: Store,
    feed: Feed,
    seen: int | None,
    first: list[Snapshot],
    sql: str | None,
    client: str,
    questions: Questions,
) -> AsyncIterator[bytes]:
    """Yield the events of the snapshots after ``seen``. ``first`` are those that exist already."""
    found, last = first, None
    try:
        while True:
            for snapshot in found:
                refuse_gap(seen, snapshot)
                rows = partial(open_rows, store, snapshot)
                try:
                    if sql is None:
                        answer = await feed.encode(snapshot, partial(questions.encode_event, rows))
                    else:
                        answer = await questions.ask(rows, sql, client)
                    for piece in _write_snapshot(snapshot, answer):
                        yield piece
                    del answer
                except QueryError as error:
                    if error.condition == "SNAPSHOT_GONE":
                        raise
                    yield _write_refusal(snapshot, error)
                seen, last = snapshot.number, snapshot
            found = await feed.wait(seen, SILENCE_S, last)
            if not found:
                yield _write_event("progress", encode_json({"seen": seen}))
    except ThetastreamError as error:
        yield _write_event(
            "error", encode_json({"condition": error.condition, "message": write_message(error)})
        )


def _write_snapshot(snapshot: Snapshot, rows: Encoded) -> Iterator[bytes]:
    """Write the event of a snapshot in pieces, so that a connection holds no second copy of it."""
    known = encode_json(describe_snapshot(snapshot).model_dump())
    yield f"id: {snapshot.number}\nevent: snapshot\ndata: ".encode() + known[:-1] + b',"results":'
    whole = memoryview(rows.content)
    for start in range(0, len(whole), PIECE_BYTES):
        yield bytes(whole[start : start + PIECE_BYTES])
    yield b"}\n\n"


def _write_refusal(snapshot: Snapshot, error: QueryError) -> bytes:
    """Write the event of a snapshot without its rows, so that the subscriber can ask for a part of it."""
    known: dict[str, Any] = describe_snapshot(snapshot).model_dump()
    known["error"] = {"condition": error.condition, "message": write_message(error)}
    return _write_event("snapshot", encode_json(known), snapshot.number)


def _write_event(event: str, data: bytes, number: int | None = None) -> bytes:
    named = f"id: {number}\n" if number is not None else ""
    return f"{named}event: {event}\ndata: ".encode() + data + b"\n\n"
