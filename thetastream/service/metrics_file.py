"""Reads a file of metrics while queries add lines to it.

``th.export_metrics(spark, json_lines=...)`` writes the file: a line for each epoch of a join, and a line for
each query that has ended. The service keeps the last epochs of each join in memory.
"""

import json
import socket
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from thetastream.core.errors import QueryError
from thetastream.runtime.observe.epoch_lines import is_written

KEPT_EPOCHS = 300
"""The number of epochs of each join that stay in memory."""
LARGEST_READ = 16 << 20
"""The service reads only so many bytes at the end of a longer file."""
State = Literal["running", "ended", "failed", "lost"]
Entry = dict[str, Any]


@dataclass
class QueryLines:
    """The lines of a file about one query."""

    host: str = ""
    ended: str | None = None
    error: str | None = None
    """The error with which the query has ended; None if it was stopped."""
    joins: dict[str, deque[Entry]] = field(default_factory=dict)
    """The last epochs of each join, in order."""

    def add(self, entry: Entry) -> None:
        """Add one line."""
        self.host = str(entry.get("host", ""))
        self.ended, self.error = entry.get("ended"), entry.get("error")
        if self.ended is not None:
            return
        epochs = self.joins.setdefault(str(entry["join"]), deque(maxlen=KEPT_EPOCHS))
        # A query that was stopped while an epoch ran reports this epoch again.
        while epochs and epochs[-1]["epoch"] >= entry["epoch"]:
            epochs.pop()
        epochs.append(entry)

    def copy(self) -> "QueryLines":
        """Return a copy that later lines do not change."""
        return replace(self, joins={join: epochs.copy() for join, epochs in self.joins.items()})

    def find_state(self, is_file_written: bool) -> State:
        """Find out whether the query runs, has ended, has failed or is lost.

        A query is lost if its program has ended without a line about the end. Only programs on this machine
        are checked. A query on another machine runs until a line says that it has ended.
        """
        if self.ended is not None:
            return "ended" if self.error is None else "failed"
        return "running" if is_file_written or self.host != socket.gethostname() else "lost"


class MetricsFile:
    """One file of metrics. Its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._inode = self._offset = 0
        self._queries: dict[str, QueryLines] = {}

    def read(self) -> dict[str, tuple[State, QueryLines]]:
        """Read the new lines of the file; return each query of the file by its name, with its state.

        Raises
        ------
        QueryError
            NO_METRICS if the file cannot be read.
        """
        with self._lock:
            try:
                is_file_written = is_written(self._path)
                self._read_new()
            except OSError as error:
                raise QueryError("NO_METRICS", f"the file of metrics cannot be read: {error}") from error
            return {
                name: (lines.find_state(is_file_written), lines.copy())
                for name, lines in self._queries.items()
            }

    def _read_new(self) -> None:
        known = self._path.stat()
        if known.st_ino != self._inode or known.st_size < self._offset:
            # The path names another file now, because somebody has moved or cut the file that was read.
            self._inode, self._offset = known.st_ino, max(0, known.st_size - LARGEST_READ)
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        # The last line may not be complete yet. Then the next call reads it.
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            self._queries.setdefault(str(entry["query"]), QueryLines()).add(entry)
        except (ValueError, LookupError, TypeError):
            # This is a part of a line: reading began inside it, or the disk was full when it was written.
            return
