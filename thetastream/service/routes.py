"""The routes of stores: their snapshots, questions to them, and subscriptions.

The route of running queries. It reads the files of metrics that queries write, and asks no query.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request, Response

from thetastream.core.errors import QueryError
from thetastream.results.store import Store
from thetastream.results.subscription import refuse_future, refuse_gap
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
from thetastream.service.events import Feed, SubscriberLimits, Subscription
from thetastream.service.limits import Limits
from thetastream.service.metrics_file import KEPT_EPOCHS, MetricsFile
from thetastream.service.questions import Questions
from thetastream.service.running import RunningQuery, describe_query
from thetastream.service.statement_worker import JSON


def add_store_routes(app: FastAPI, stores: Mapping[str, Store], limits: Limits) -> None:
    """Add the routes of these stores."""
    seats = SubscriberLimits(limits.subscribers, limits.subscribers_per_client)
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


SHOWN_EPOCHS = 120
"""The number of epochs of each join in an answer, unless a request names another."""


def add_query_routes(app: FastAPI, metrics: Sequence[Path]) -> None:
    """Add the route of the queries whose metrics are in these files."""
    files = [MetricsFile(path) for path in metrics]

    @app.get("/queries", responses=PROBLEMS)
    def list_queries(
        epochs: Annotated[int, Query(ge=1, le=KEPT_EPOCHS)] = SHOWN_EPOCHS,
    ) -> list[RunningQuery]:
        return [
            describe_query(name, state, lines, epochs)
            for file in files
            for name, (state, lines) in file.read().items()
        ]
