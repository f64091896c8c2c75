"""Sends each snapshot of a store to its subscribers once and in order, as server-sent events.

The id of an event is the number of the snapshot. A browser that reconnects sends the id back as
``Last-Event-ID``, and the next event is the next snapshot. The browser may reconnect to another service of
the same store. A slow reader delays only its own events, because the service reads the next snapshot after it
has sent the last event.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from starlette.responses import StreamingResponse

from thetastream.errors import QueryError, ThetastreamError
from thetastream.service.answers import PIECE_BYTES, Encoded
from thetastream.service.bodies import describe_snapshot
from thetastream.service.feed import Feed
from thetastream.service.problems import write_message
from thetastream.service.questions import Questions
from thetastream.stores.answer_encoding import encode_json
from thetastream.stores.base import Store
from thetastream.stores.snapshots import Snapshot
from thetastream.stores.subscription import open_rows, refuse_gap

SILENCE_S = 10.0
"""If there is no new snapshot for this time, an event ``progress`` shows that the connection is alive."""


class Seats:
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


class Subscription(StreamingResponse):
    """The answer to one subscriber. It gives its seat back when the connection ends, also after an error."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        seen: int | None,
        first: list[Snapshot],
        sql: str | None,
        client: str,
        questions: Questions,
        give_back: Callable[[], None],
    ) -> None:
        self._give_back = give_back
        events = _produce(store, feed, seen, first, sql, client, questions)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send events until the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


async def _produce(
    store: Store,
    feed: Feed,
    seen: int | None,
    first: list[Snapshot],
    sql: str | None,
    client: str,
    questions: Questions,
) -> AsyncIterator[bytes]:
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
