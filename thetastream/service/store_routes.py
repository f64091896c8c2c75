"""The routes of stores: their snapshots, questions to them, and subscriptions."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated

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
from thetastream.service.events import Seats, Subscription
from thetastream.service.feed import Feed
from thetastream.service.limits import Limits
from thetastream.service.questions import Questions
from thetastream.stores.answer_encoding import JSON
from thetastream.stores.base import Store
from thetastream.stores.subscription import refuse_future, refuse_gap


def add_store_routes(app: FastAPI, stores: Mapping[str, Store], limits: Limits) -> None:
    """Add the routes of these stores."""
    seats = Seats(limits.subscribers, limits.subscribers_per_client)
    feeds = {name: Feed(store) for name, store in stores.items()}
    questions = Questions(stores, limits)

    @app.get("/stores", responses=PROBLEMS)
    def list_stores() -> StoreList:
        return StoreList(
            version=app.version, stores={name: describe_store(store) for name, store in stores.items()}
        )

    @app.get("/stores/{name}/snapshots", responses=PROBLEMS)
    def list_snapshots(name: str, after: After = 0) -> list[SnapshotBody]:
        return [describe_snapshot(one) for one in questions.find_store(name).snapshots(after)]

    @app.get("/stores/{name}/snapshots/{number}", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def read_snapshot(
        request: Request,
        name: str,
        number: Number,
        first: Annotated[int | None, Query(ge=1, le=LARGEST_NUMBER)] = None,
        accept: Annotated[str, Header()] = JSON,
    ) -> Response:
        store = questions.find_store(name)
        return await questions.answer(request, partial(store.open_snapshot, number), ALL, accept, first)

    @app.post("/stores/{name}/query", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def query(
        request: Request, name: str, body: QueryBody, accept: Annotated[str, Header()] = JSON
    ) -> Response:
        store = questions.find_store(name)
        open_rows = partial(store.open, body.snapshot, body.since, body.until, body.key)
        return await questions.answer(request, open_rows, body.sql, accept)

    @app.get("/stores/{name}/subscribe", response_class=Response, responses={**PROBLEMS, **EVENTS})
    async def subscribe(
        request: Request,
        name: str,
        since: Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)] = None,
        sql: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        store = questions.find_store(name)
        feed = feeds[name]
        seen = _read_event_id(last_event_id) if last_event_id else since
        first = await feed.list_after(seen)
        if first:
            refuse_gap(seen, first[0])
        else:
            await asyncio.to_thread(refuse_future, store, seen)
        client = request.client.host if request.client else ""
        give_back = seats.take(client)
        try:
            if sql is not None:
                # If the statement cannot run, the request is refused before the first event.
                await questions.check(store, sql, client)
        except BaseException:
            give_back()
            raise
        return Subscription(store, feed, seen, first, sql, client, questions, give_back)


def _read_event_id(text: str) -> int:
    # Python refuses to read a number of thousands of digits.
    is_short = len(text) <= len(str(LARGEST_NUMBER))
    if not (is_short and text.isascii() and text.isdigit() and int(text) <= LARGEST_NUMBER):
        raise QueryError("BAD_VALUE", f"Last-Event-ID must be the number of a snapshot, not {text!r}")
    return int(text)
