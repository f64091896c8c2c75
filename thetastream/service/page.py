"""Serves the page, which consists of files of HTML, CSS and JavaScript for the browser of a user.

The page loads nothing from other hosts. A header tells the browser to refuse what another host sends.
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
