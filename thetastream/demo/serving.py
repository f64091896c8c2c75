"""Serves the demo's join and its results, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve_results(store: Path, metrics: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``thetastream serve``, and end it when the block ends."""
    command = [sys.executable, "-m", "thetastream.cli", "serve", str(store), "--metrics", str(metrics)]
    service = subprocess.Popen([*command, "--port", str(port)])  # noqa: S603 (this program)
    try:
        yield service
    finally:
        service.terminate()
        service.wait()
