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

Serves the page, which consists of files of HTML, CSS and JavaScript for the browser of a user.

The page loads nothing from other hosts. A header tells the browser to refuse what another host sends.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from thetastream.core.errors import ThetastreamError
from thetastream.results.store import Store
from thetastream.service.bodies import STATUS, HealthBody, write_message
from thetastream.service.guard import Guard, refuse_token
from thetastream.service.limits import Limits
from thetastream.service.routes import add_query_routes, add_store_routes
from thetastream.service.statement_worker import JSON

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


FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    # The browser asks each time whether a file has changed, so that it shows the page of a new version.
    "Cache-Control": "no-cache",
}


class PageFiles(StaticFiles):
    """The route of the files that the page loads."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """Answer with a file and the headers of the page."""
        answer = super().file_response(*arguments, **options)
        answer.headers.update(HEADERS)
        return answer


def add_page(app: FastAPI) -> None:
    """Add the routes of the page and of its files."""

    @app.get("/", include_in_schema=False)
    def show_page() -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers=HEADERS)

    app.mount("/page", PageFiles(directory=FOLDER))
