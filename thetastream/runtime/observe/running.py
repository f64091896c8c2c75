"""Marks the queries that this process runs, so that nobody cleans up after a query that is still running.

    <temporary folder>/thetastream-running-<user>/<id of the query>    locked as long as the query runs

The operating system releases the lock when the process ends, however it ends. The marks are seen on the
machine of the driver only.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import IO

from thetastream.core.errors import SessionError
from thetastream.core.private_folder import make_private
from thetastream.runtime.observe.epoch_lines import is_locked

RELEASE_S = 5.0
"""The program of a query removes its mark within this time after the end of the query, in seconds."""


def choose_marks_folder() -> Path:
    """Choose the folder of the marks of this user."""
    return Path(tempfile.gettempdir()) / f"thetastream-running-{os.getuid()}"


class RunningMarks:
    """The marks that this process holds, by the id of the run."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Path, IO[str]]] = {}

    def mark(self, query: str, run: str) -> None:
        """Mark a query as running. A folder that cannot be used is no reason to stop the query."""
        with contextlib.suppress(OSError, SessionError):
            folder = choose_marks_folder()
            make_private(folder)
            path = folder / query
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._held[run] = path, file

    def release(self, run: str) -> None:
        """Take back the mark of a run that has ended."""
        path, file = self._held.pop(run, (None, None))
        if path is not None and file is not None:
            file.close()
            if not is_marked(path.name):
                path.unlink(missing_ok=True)


def is_marked(query: str) -> bool:
    """Whether a process on this machine runs a query."""
    with contextlib.suppress(FileNotFoundError):
        return is_locked(choose_marks_folder() / query)
    return False


def is_running(query: str) -> bool:
    """Whether a query runs on this machine.

    A query that has ended may still have its mark for a moment, so this function waits before it says yes.
    """
    until_s = time.monotonic() + RELEASE_S
    while is_marked(query):
        if time.monotonic() >= until_s:
            return True
        time.sleep(0.1)
    return False
