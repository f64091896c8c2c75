"""Metrics as lines of JSON in a file, one line for each epoch of a join.

The program that writes the file holds a lock on it. The operating system releases the lock when the program
ends, however it ends. So a reader on the same machine knows whether anybody still writes.
"""

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class MetricLines:
    """A file of metrics that this program writes. Several programs may write the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._host = socket.gethostname()
        self._file = self._open()

    def write(self, query: str, entry: Mapping[str, Any]) -> None:
        """Add a line about a query, in one step."""
        if self._file.closed or not self._is_in_place():
            # Somebody has moved the file away, to keep it small.
            self._file.close()
            self._file = self._open()
        self._file.write(json.dumps({"query": query, "host": self._host, **entry}).encode() + b"\n")

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    def _open(self) -> IO[bytes]:
        file = self._path.open("ab", buffering=0)
        fcntl.flock(file, fcntl.LOCK_SH)
        return file

    def _is_in_place(self) -> bool:
        return self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))


def is_written(path: Path) -> bool:
    """Whether a program on this machine writes a file of metrics."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
