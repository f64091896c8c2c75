"""Serves the demo's join and its results, in a process of its own."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thetastream.core.listening import open_port

HOST = "127.0.0.1"
PACKAGES = ("fastapi", "uvicorn")
"""Packages of the ``serve`` extra, which the service needs."""


def refuse_port(port: int) -> None:
    """Raise if the service cannot run or cannot listen at the port, before anything starts.

    Raises
    ------
    ModuleNotFoundError
        If a package of the service is missing.
    QueryError
        SERVICE_PORT.
    """
    for package in PACKAGES:
        importlib.import_module(package)
    open_port(HOST, port).close()


@contextmanager
def serve_results(
    store: Path, metrics: Path, port: int, output: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``thetastream serve``, and end it when the block ends.

    Its output goes to the terminal, or to ``output``, a file descriptor or ``subprocess.DEVNULL``.
    """
    command = [sys.executable, "-m", "thetastream.cli", "serve", str(store), "--metrics", str(metrics)]
    command = [*command, "--host", HOST, "--port", str(port)]
    service = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 (this program)
    try:
        yield service
    finally:
        service.terminate()
        service.wait()
