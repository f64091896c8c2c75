"""The page: files of HTML, CSS and JavaScript that the browser of a user runs.

They load nothing from other hosts, and the browser is told to refuse anything else.
"""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A browser asks whether a file has changed, so that a new version of the service shows its own page.
    "Cache-Control": "no-cache",
}


class PageFiles(StaticFiles):
    """The files that the page loads."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """Answer with a file and the headers of the page."""
        answer = super().file_response(*arguments, **options)
        answer.headers.update(HEADERS)
        return answer


def add_page(app: FastAPI) -> None:
    """Add the page and its files."""

    @app.get("/", include_in_schema=False)
    def show_page() -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers=HEADERS)

    app.mount("/page", PageFiles(directory=FOLDER))
