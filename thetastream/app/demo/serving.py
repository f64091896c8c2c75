"""Serves the join of the demo and its results, in a separate process."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thetastream.core.listening import open_port
from thetastream.core.search_path import list_program_folders, write_search_path

HOST = "127.0.0.1"
PACKAGES = ("fastapi", "uvicorn")
"""The packages of the ``serve`` extra that the service imports."""


def refuse_port(port: int) -> None:
    """Raise an error if the service cannot run, or cannot listen at the port.

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
    """Run ``thetastream serve`` until the block ends.

    Its output goes to ``output``, a file descriptor or ``subprocess.DEVNULL``; by default to the terminal.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "thetastream.app.cli",
        "serve",
        str(store),
        "--metrics",
        str(metrics),
    ]
    command = [*command, "--host", HOST, "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": write_search_path(list_program_folders())}
    service = subprocess.Popen(command, stdout=output, stderr=output, env=environment)  # noqa: S603 (this program)
    try:
        yield service
    finally:
        service.terminate()
        service.wait()
