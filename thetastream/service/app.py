"""Builds the service, which shows stores, running queries and a page about them over HTTP.

    GET  /                                    the page
    GET  /health
    GET  /queries                             the running queries and their last epochs
    GET  /stores                              the stores: columns, time, keys
    GET  /stores/{name}/snapshots             the snapshots
    GET  /stores/{name}/snapshots/{number}    the rows of one snapshot
    POST /stores/{name}/query                 one SELECT over a pinned snapshot
    GET  /stores/{name}/subscribe             each snapshot once, as server-sent events

Rows are JSON, or an Arrow IPC stream if the header ``Accept`` names its media type.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from thetastream.errors import ThetastreamError
from thetastream.service.bodies import STATUS, HealthBody
from thetastream.service.guard import Guard, refuse_token
from thetastream.service.limits import Limits
from thetastream.service.page import add_page
from thetastream.service.problems import write_message
from thetastream.service.query_routes import add_query_routes
from thetastream.service.store_routes import add_store_routes
from thetastream.stores.answer_encoding import JSON
from thetastream.stores.base import Store

RETRY_AFTER_S = "2"
"""The time after which a client that was refused because of others may ask again, in seconds."""
DESCRIBED = "a request must be one that /openapi.json describes"


def build_app(
    stores: Mapping[str, Store],
    *,
    metrics: Sequence[Path] = (),
    token: str | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """Build the service as an ASGI application.

    Parameters
    ----------
    stores : mapping of str to Store
        The stores by the names under which clients see them.
    metrics : sequence of Path
        Files that ``th.export_metrics(json_lines=)`` writes. Clients see the queries of these files.
    token : str, optional
        The text that clients must send. Without a token, the service answers only requests to localhost.
    limits : Limits, optional
        The limits of questions and subscriptions.

    Returns
    -------
    fastapi.FastAPI

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
    app = FastAPI(title="Thetastream", version=version("thetastream"), docs_url=None, redoc_url=None)
    app.add_middleware(Guard, token=token)

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

    add_query_routes(app, metrics)
    add_store_routes(app, stores, limits or Limits())
    add_page(app)
    return app


def _write_problem(
    status: int, condition: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse({"condition": condition, "message": message}, status, headers)
