"""Builds the service, which shows stores, running queries and a page about them over HTTP.

    GET  /                                    the page, which loads nothing from other hosts
    GET  /health
    GET  /queries                             the running queries and their last epochs, from files of metrics
    GET  /controls                            the plans of running joins
    POST /controls/{name}                     one request to change a running join
    GET  /stores                              the stores: columns, time, keys
    GET  /stores/{name}/snapshots             the snapshots
    GET  /stores/{name}/snapshots/{number}    the rows of one snapshot
    POST /stores/{name}/query                 one SELECT over a pinned snapshot
    GET  /stores/{name}/subscribe             each snapshot once, as server-sent events

Rows are JSON, or an Arrow IPC stream if the header ``Accept`` names its media type.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.version import VERSION
from thetastream.results.store import Store
from thetastream.results.subscription import refuse_future, refuse_gap
from thetastream.service.access import Door, Grant, get_client, get_grant, make_grant
from thetastream.service.bodies import (
    ALL,
    EVENTS,
    LARGEST_NUMBER,
    PROBLEMS,
    ROWS,
    STATUS,
    After,
    HealthBody,
    Number,
    QueryBody,
    ResponseMemory,
    SnapshotBody,
    StoreList,
    answer_plainly,
    describe_snapshot,
    describe_store,
    write_message,
)
from thetastream.service.controls import add_control_routes
from thetastream.service.events import Feed, SubscriberLimits, Subscription, produce_events
from thetastream.service.guard import Guard, refuse_token
from thetastream.service.limits import Limits
from thetastream.service.questions import Questions
from thetastream.service.running import KEPT_EPOCHS, MetricsFile, RunningQuery, describe_query
from thetastream.service.statement_worker import JSON

RETRY_AFTER_S = "2"
"""The time after which a client that was refused because of others may ask again, in seconds."""
DESCRIBED = "a request must be one that /openapi.json describes"

FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    # The browser asks each time whether a file has changed, so that it shows the page of a new version.
    "Cache-Control": "no-cache",
}

NO_CONTROLS: Mapping[str, str] = {}
"""The controls of a service that changes no query."""
SHOWN_EPOCHS = 120
"""The number of epochs of each join in an answer, unless a request names another."""


def build_app(
    stores: Mapping[str, Store],
    *,
    metrics: Sequence[Path] = (),
    controls: Mapping[str, str] = NO_CONTROLS,
    token: str | None = None,
    tokens: Sequence[Grant] = (),
    audit: Path | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """Build the service as an ASGI application.

    Parameters
    ----------
    stores : mapping of str to Store
        The stores by the names under which clients see them.
    metrics : sequence of Path
        Files that ``th.export_metrics(json_lines=)`` writes. Clients see the queries of these files.
    controls : mapping of str to str
        The checkpoints of queries whose units clients may change, by the names under which clients see them.
        They need a token with the right ``control``.
    token : str, optional
        The text that clients must send, who may then do everything. Without any token, the service answers
        only requests to localhost.
    tokens : sequence of Grant, optional
        More tokens, each with its rights, as ``thetastream.service.read_tokens`` reads them.
    audit : Path, optional
        A file that gets one line of JSON for each question, subscription and look at the queries.
    limits : Limits, optional
        The limits of questions and subscriptions.

    Returns
    -------
    fastapi.FastAPI
        If there are stores, ``app.state.prepare()`` starts a process for statements ahead of the first one,
        and returns when it is ready.

    Examples
    --------
    >>> from thetastream.stores import ParquetStore
    >>> app = build_app({"pairs": ParquetStore("out/pairs")}, token="secret")

    Raises
    ------
    QueryError
        TOKEN if no client can send the token, or BAD_VALUE if the limits have no meaning.
    """
    if token is not None:
        refuse_token(token, "the service")
    # The documentation pages of FastAPI are off, because they load scripts from another host.
    app = FastAPI(title="Thetastream", version=VERSION, docs_url=None, redoc_url=None)
    known = [*([] if token is None else [make_grant(token)]), *tokens]
    app.add_middleware(Guard, known=known)
    door = Door(audit)

    @app.exception_handler(ThetastreamError)
    def refuse(request: Request, error: ThetastreamError) -> Response:
        status = STATUS.get(error.condition, 400)
        later = {"Retry-After": RETRY_AFTER_S} if status in (429, 503) else None
        return _write_problem(status, error.condition, write_message(error), later)

    @app.exception_handler(RequestValidationError)
    def refuse_values(request: Request, error: RequestValidationError) -> Response:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        if request.method == "POST" and JSON not in request.headers.get("content-type", ""):
            found = [f"its body must be JSON, sent with the header Content-Type: {JSON}"]
        return _write_problem(422, "BAD_VALUE", f"{DESCRIBED}: {'; '.join(found)}")

    @app.exception_handler(HTTPException)
    def refuse_request(request: Request, error: HTTPException) -> Response:
        # The header ``Allow`` of such an error names the methods that the path has.
        return _write_problem(error.status_code, "BAD_VALUE", f"{DESCRIBED}: {error.detail}", error.headers)

    @app.get("/health")
    async def check_health() -> HealthBody:
        return HealthBody(ok=True)

    limits = limits or Limits()
    memory = ResponseMemory(limits.question_bytes)
    add_query_routes(app, door, metrics, memory)
    add_control_routes(app, door, controls)
    add_store_routes(app, door, stores, limits, memory)
    add_page(app)
    return app


def _write_problem(
    status: int, condition: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse({"condition": condition, "message": message}, status, headers)


def add_query_routes(app: FastAPI, door: Door, metrics: Sequence[Path], memory: ResponseMemory) -> None:
    """Add the route of the queries whose metrics are in these files. ``memory`` bounds its answers."""
    files = [MetricsFile(path) for path in metrics]

    @app.get("/queries", response_model=list[RunningQuery], responses=PROBLEMS)
    def list_queries(
        request: Request,
        epochs: Annotated[int, Query(ge=1, le=KEPT_EPOCHS)] = SHOWN_EPOCHS,
    ) -> Response:
        door.admit(request, "watch")
        found = [
            describe_query(name, state, lines, epochs)
            for file in files
            for name, (state, lines) in file.read().items()
        ]
        return answer_plainly(found, memory, get_client(request))


def add_store_routes(
    app: FastAPI, door: Door, stores: Mapping[str, Store], limits: Limits, memory: ResponseMemory
) -> None:
    """Add the routes of these stores. ``memory`` bounds lists of snapshots."""
    seats = SubscriberLimits(limits.subscribers, limits.subscribers_per_client)
    feeds = {name: Feed(store) for name, store in stores.items()}
    questions = Questions(stores, limits)
    if stores:
        app.state.prepare = questions.prepare

    @app.get("/stores", responses=PROBLEMS)
    def list_stores(request: Request) -> StoreList:
        grant = get_grant(request)
        seen = {name: describe_store(store) for name, store in stores.items() if grant.sees(name)}
        return StoreList(version=app.version, stores=seen)

    @app.get("/stores/{name}/snapshots", response_model=list[SnapshotBody], responses=PROBLEMS)
    def list_snapshots(request: Request, name: str, after: After = 0) -> Response:
        door.admit(request, "ask", name)
        found = [describe_snapshot(one) for one in questions.find_store(name).snapshots(after)]
        return answer_plainly(found, memory, get_client(request))

    @app.get("/stores/{name}/snapshots/{number}", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def read_snapshot(
        request: Request,
        name: str,
        number: Number,
        first: Annotated[int | None, Query(ge=1, le=LARGEST_NUMBER)] = None,
        accept: Annotated[str, Header()] = JSON,
    ) -> Response:
        door.admit(request, "ask", name, snapshot=number)
        store = questions.find_store(name)
        return await questions.answer(request, partial(store.open_snapshot, number), ALL, accept, first)

    @app.post("/stores/{name}/query", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def query(
        request: Request, name: str, body: QueryBody, accept: Annotated[str, Header()] = JSON
    ) -> Response:
        door.admit(request, "ask", name, **body.model_dump(exclude_unset=True))
        store = questions.find_store(name)
        asked = body.snapshot, body.since, body.until, body.key
        open_rows = partial(store.open, *asked, most_bytes=questions.most_bytes)
        return await questions.answer(request, open_rows, body.sql, accept)

    @app.get("/stores/{name}/subscribe", response_class=Response, responses={**PROBLEMS, **EVENTS})
    async def subscribe(
        request: Request,
        name: str,
        since: Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)] = None,
        sql: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        door.admit(request, "subscribe", name, since=since, sql=sql)
        store = questions.find_store(name)
        feed = feeds[name]
        seen = _read_event_id(last_event_id) if last_event_id else since
        first = await feed.list_after(seen)
        if first:
            refuse_gap(seen, first[0])
        else:
            await asyncio.to_thread(refuse_future, store, seen)
        client = get_client(request)
        give_back = seats.take(client)
        try:
            if sql is not None:
                # If the statement cannot run, the request is refused before the first event.
                await questions.check(request, store, sql)
        except BaseException:
            give_back()
            raise
        events = produce_events(store, feed, seen, first, sql, client, questions)
        return Subscription(events, give_back)


def _read_event_id(text: str) -> int:
    # Python refuses to read a number of thousands of digits.
    is_short = len(text) <= len(str(LARGEST_NUMBER))
    if not (is_short and text.isascii() and text.isdigit() and int(text) <= LARGEST_NUMBER):
        raise QueryError("BAD_VALUE", f"Last-Event-ID must be the number of a snapshot, not {text!r}")
    return int(text)


def add_page(app: FastAPI) -> None:
    """Add the routes of the page and of its files."""

    @app.get("/", include_in_schema=False)
    def show_page() -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers=HEADERS)

    app.mount("/page", PageFiles(directory=FOLDER))


class PageFiles(StaticFiles):
    """The route of the files that the page loads."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """Answer with a file and the headers of the page."""
        answer = super().file_response(*arguments, **options)
        answer.headers.update(HEADERS)
        return answer
