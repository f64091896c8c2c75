"""The service: questions to stores, and subscriptions, over HTTP.

    GET  /                                    the stores: columns, time, keys
    GET  /health
    GET  /stores/{name}/snapshots             the snapshots
    GET  /stores/{name}/snapshots/{number}    the rows of one snapshot
    POST /stores/{name}/query                 one SELECT over a pinned snapshot
    GET  /stores/{name}/subscribe             each snapshot once, as server-sent events

Rows are JSON, or an Arrow IPC stream if the header ``Accept`` names its media type.
"""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from thetastream.errors import QueryError, ThetastreamError
from thetastream.service.encoding import ARROW, JSON, encode_table
from thetastream.service.events import Seats, Subscription, describe_snapshot
from thetastream.service.feed import Feed
from thetastream.service.guard import Guard
from thetastream.service.limits import Limits
from thetastream.stores.base import Store
from thetastream.stores.question import RESULTS, ask
from thetastream.stores.subscription import refuse_gap

STATUS = {
    "NO_STORE": 404,
    "UNKNOWN_STORE": 404,
    "UNKNOWN_SNAPSHOT": 404,
    "SNAPSHOT_GONE": 410,
    "TOO_MANY_ROWS": 413,
    "TOO_MANY_SUBSCRIBERS": 429,
    "TOO_SLOW": 408,
}
"""The status of an answer by the condition of the error. Other errors of a question are 400."""

Value = str | int | float | bool | None
ALL = f"SELECT * FROM {RESULTS}"
LARGEST_NUMBER = (1 << 63) - 1
ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The rows.",
        "content": {
            JSON: {"schema": {"type": "array"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {"text/event-stream": {}}}
}


class Problem(BaseModel):
    """Why a request was refused."""

    condition: str
    message: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in sorted({400, 401, 403, *STATUS.values()})
}


class QueryBody(BaseModel):
    """One question to a store."""

    model_config = ConfigDict(extra="forbid")

    sql: str = ALL
    snapshot: int | str | None = None
    since: str | None = None
    until: str | None = None
    key: dict[str, Value | tuple[Value, Value]] = {}


def build_app(
    stores: Mapping[str, Store], *, token: str | None = None, limits: Limits | None = None
) -> FastAPI:
    """Build the service as an ASGI application.

    Parameters
    ----------
    stores : mapping of str to Store
        The stores by the names under which clients see them.
    token : str, optional
        What clients must know. Without it, only requests to localhost are answered.
    limits : Limits, optional

    Returns
    -------
    fastapi.FastAPI

    Examples
    --------
    >>> from thetastream.stores import ParquetStore
    >>> app = build_app({"pairs": ParquetStore("out/pairs")}, token="secret")
    """
    limits = limits or Limits()
    seats = Seats(limits.subscribers, limits.subscribers_per_client)
    feeds = {name: Feed(store) for name, store in stores.items()}
    turns = asyncio.Semaphore(limits.questions)
    # The pages of FastAPI load scripts from another host.
    app = FastAPI(title="Thetastream", version=version("thetastream"), docs_url=None, redoc_url=None)
    app.add_middleware(Guard, token=token)

    @app.exception_handler(ThetastreamError)
    def refuse(request: Request, error: ThetastreamError) -> Response:
        known = {"condition": error.condition, "message": error.message}
        return JSONResponse(known, STATUS.get(error.condition, 400))

    def find(name: str) -> Store:
        if name not in stores:
            known = ", ".join(stores)
            raise QueryError("UNKNOWN_STORE", f"{name!r} is no store of this service, which has {known}")
        return stores[name]

    async def answer(rows: Any, sql: str, accept: str) -> Response:
        media_type = ARROW if ARROW in accept else JSON

        def run() -> bytes:
            opened = rows()
            found = ask(opened, sql, limits.memory, max_rows=limits.rows, max_s=limits.seconds)
            return encode_table(found, media_type)

        async with turns:
            return Response(await asyncio.to_thread(run), media_type=media_type)

    @app.get("/health")
    async def check_health() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/", responses=PROBLEMS)
    def list_stores() -> dict[str, Any]:
        return {"version": app.version, "stores": {name: _describe(store) for name, store in stores.items()}}

    @app.get("/stores/{name}/snapshots", responses=PROBLEMS)
    def list_snapshots(
        name: str, after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0
    ) -> list[dict[str, Any]]:
        return [describe_snapshot(one) for one in find(name).snapshots(after)]

    @app.get("/stores/{name}/snapshots/{number}", response_class=Response, responses={**PROBLEMS, **ROWS})
    async def read_snapshot(
        name: str,
        number: Annotated[int, Path(ge=1, le=LARGEST_NUMBER)],
        accept: Annotated[str, Header()] = JSON,
    ) -> Response:
        store = find(name)
        return await answer(lambda: store.read_snapshot(number), ALL, accept)

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
        seen = _read_event_id(last_event_id) if last_event_id else since
        first = await asyncio.to_thread(store.snapshots, seen or 0)
        if first:
            refuse_gap(seen, first[0])
        if sql is not None:
            # A statement that cannot run is refused before the first event.
            await asyncio.to_thread(ask, store.description.schema.empty_table(), sql, limits.memory)
        client = request.client.host if request.client else ""
        return Subscription(store, feeds[name], seen, sql, limits, seats.take(client))

    return app


def _describe(store: Store) -> dict[str, Any]:
    held = store.description
    columns = {one.name: str(one.type) for one in held.schema}
    return {"kind": store.kind, "columns": columns, "time": held.time, "keys": list(held.keys)}


def _read_event_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_NUMBER):
        raise QueryError("BAD_VALUE", f"Last-Event-ID must be the number of a snapshot, not {text!r}")
    return int(text)
