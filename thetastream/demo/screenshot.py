"""Takes a picture of the page of the demo. Chromium runs without a screen for this."""

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from thetastream.core.listening import open_port
from thetastream.demo.serving import HOST, PACKAGES, serve_results

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = "1100,1500"
"""Width and height of the picture, in pixels."""
START_S = 30.0
"""The service must listen after this time."""
LOAD_S = 8.0
"""The browser lets the scripts of the page run for this time before it takes the picture."""
STOP_S = 60.0
"""The browser is stopped after this time."""


def take_screenshot(store: Path, metrics: Path, target: Path) -> bool:
    """Write a PNG file of the page of a store and of a query; return whether it was written.

    It is not written if this machine has no Chromium or lacks the packages of the ``serve`` extra.
    """
    browser = find_browser()
    if browser is None or not all(map(importlib.util.find_spec, PACKAGES)):
        return False
    port = _find_free_port()
    # Chromium refuses to run as root inside its sandbox.
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    options = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}"]
    wait = f"--virtual-time-budget={LOAD_S * 1000:.0f}"
    command = [browser, *options, *sandbox, wait, f"--screenshot={target.resolve()}"]
    target.unlink(missing_ok=True)
    with serve_results(store, metrics, port, subprocess.DEVNULL), suppress(subprocess.TimeoutExpired):
        _wait_for(port)
        subprocess.run(  # noqa: S603 (the browser of this machine)
            [*command, f"http://{HOST}:{port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=STOP_S,
            check=False,
        )
    return target.exists()


def find_browser() -> str | None:
    """Find Chromium by the environment variable CHROMIUM or by its name; return None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def _find_free_port() -> int:
    with open_port(HOST, 0) as probe:
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    """Wait until something listens at the port."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.1)
