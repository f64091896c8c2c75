"""The routes of stores: their snapshots, questions to them, and subscriptions."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response

from thetastream.errors import QueryError
from thetastream.service.bodies import (
    ALL,
    EVENTS,
    LARGEST_NUMBER,
    PROBLEMS,
    ROWS,
    After,
    Number,
    QueryBody,
    SnapshotBody,
    StoreList,
    describe_snapshot,
    describe_store,
)
from thetastream.service.encoding import ARROW, JSON, encode_table
from thetastream.service.events import Seats, Subscription
from thetastream.service.feed import Feed
from thetastream.service.limits import Limits
from thetastream.stores.base import Store
from thetastream.stores.question import ask
from thetastream.stores.subscription import refuse_future, refuse_gap


def add_store_routes(app: FastAPI, stores: Mapping[str, Store], limits: Limits) -> None:
    """Add the routes of these stores."""
    seats = Seats(limits.subscribers, limits.subscribers_per_client)
    feeds = {name: Feed(store) for name, store in stores.items()}
    turns = asyncio.Semaphore(limits.questions)

    def find(name: str) -> Store:
        if name not in stores:
            known = ", ".join(stores)
            raise QueryError("UNKNOWN_STORE", f"{name!r} is no store of this service, which has {known}")
        return stores[name]

    async def answer(open_rows: Callable[[], Any], sql: str, accept: str) -> Response:
        media_type = ARROW if ARROW in accept else JSON

        def run() -> bytes:
            found = ask(open_rows(), sql, limits.memory, max_rows=limits.rows, max_s=limits.seconds)
            return encode_table(found, media_type)

        async with turns:
            return Response(await asyncio.to_thread(run), media_type=media_type)

    @app.get("/stores", responses=PROBLEMS)
    def list_stores() -> StoreList:
        return StoreList(
            version=app.version, stores={name: describe_store(store) for name, store in stores.items()}
        )

    @app.get("/stores/{name}/snapshots", responses=PROBLEMS)
    def list_snapshots(name: str, after: After = 0) -> list[SnapshotBody]:
        return [describe_snapshot(one) for one in find(name).snapshots(after)]

    @app.get("/stores/{name}/snapshots/{number}", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def read_snapshot(
        name: str,
        number: Number,
        first: Annotated[int | None, Query(ge=1, le=LARGEST_NUMBER)] = None,
        accept: Annotated[str, Header()] = JSON,
    ) -> Response:
        store = find(name)
        sql = ALL if first is None else f"{ALL} LIMIT {first}"
        return await answer(lambda: store.read_snapshot(number), sql, accept)

    @app.post("/stores/{name}/query", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def query(name: str, body: QueryBody, accept: Annotated[str, Header()] = JSON) -> Response:
        store = find(name)
        return await answer(
            lambda: store.open(body.snapshot, body.since, body.until, body.key), body.sql, accept
        )

    @app.get("/stores/{name}/subscribe", response_class=Response, responses={**PROBLEMS, **EVENTS})
    async def subscribe(
        request: Request,
        name: str,
        since: Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)] = None,
        sql: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        store = find(name)
        feed = feeds[name]
        seen = _read_event_id(last_event_id) if last_event_id else since
        first = await feed.list_after(seen)
        if first:
            refuse_gap(seen, first[0])
        else:
            await asyncio.to_thread(refuse_future, store, seen)
        if sql is not None:
            # A statement that cannot run is refused before the first event.
            await asyncio.to_thread(ask, store.description.schema.empty_table(), sql, limits.memory)
        client = request.client.host if request.client else ""
        return Subscription(store, feed, seen, first, sql, limits, seats.take(client))


def _read_event_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_NUMBER):
        raise QueryError("BAD_VALUE", f"Last-Event-ID must be the number of a snapshot, not {text!r}")
    return int(text)
