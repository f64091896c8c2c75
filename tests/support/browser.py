"""A real Chromium without a screen, driven by playwright; tests are skipped where one of them is missing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from thetastream.app.demo.picture import find_browser


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium, which the environment variable CHROMIUM may name."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the page is tested by playwright: pip install playwright"
    )
    path = find_browser()
    if path is None:
        pytest.skip("the page is tested in Chromium: apt-get install chromium, or set CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        # Chromium refuses to run as root inside its sandbox.
        browser = driver.chromium.launch(executable_path=path, chromium_sandbox=os.getuid() != 0)
        yield browser
        browser.close()
