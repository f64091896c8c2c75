"""Serves the demo's join and its results, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve_results(
    store: Path, metrics: Path, port: int, output: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``thetastream serve``, and end it when the block ends.

    Its output goes to the terminal, or to ``output``, a file descriptor or ``subprocess.DEVNULL``.
    """
    command = [sys.executable, "-m", "thetastream.cli", "serve", str(store), "--metrics", str(metrics)]
    command = [*command, "--port", str(port)]
    service = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 (this program)
    try:
        yield service
    finally:
        service.terminate()
        service.wait()
