"""Reads a file of metrics while queries add lines to it.

``th.export_metrics(spark, json_lines=...)`` writes the file: a line for each epoch of a join, and a line for
each query that has ended. The service keeps the last epochs of each join in memory.
"""

import json
import socket
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from thetastream.errors import QueryError
from thetastream.spark.metric_lines import is_written

KEPT_EPOCHS = 300
LARGEST_READ = 16 << 20
"""A file that is longer is read from its end only."""
State = Literal["running", "ended", "failed", "lost"]
Entry = dict[str, Any]


@dataclass
class QueryLines:
    """What a file says about one query."""

    host: str = ""
    ended: str | None = None
    error: str | None = None
    """Why the query has ended; None if it was stopped."""
    joins: dict[str, deque[Entry]] = field(default_factory=dict)
    """The last epochs of each join, oldest first."""

    def add(self, entry: Entry) -> None:
        """Take one line."""
        self.host = str(entry.get("host", ""))
        self.ended, self.error = entry.get("ended"), entry.get("error")
        if self.ended is not None:
            return
        epochs = self.joins.setdefault(str(entry["join"]), deque(maxlen=KEPT_EPOCHS))
        # A query that was stopped while an epoch ran reports this epoch again.
        while epochs and epochs[-1]["epoch"] >= entry["epoch"]:
            epochs.pop()
        epochs.append(entry)

    def find_state(self, is_file_written: bool) -> State:
        """Whether the query runs, has ended, has failed, or is lost: its program could not say that it ended.

        Only a program on this machine can be seen. Of a query elsewhere, only its own lines are known.
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
        """Read what is new in the file; return each query of the file by its name, with its state.

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
            return {name: (lines.find_state(is_file_written), lines) for name, lines in self._queries.items()}

    def _read_new(self) -> None:
        known = self._path.stat()
        if known.st_ino != self._inode or known.st_size < self._offset:
            # Another file has taken the place of the one that was read.
            self._inode, self._offset = known.st_ino, max(0, known.st_size - LARGEST_READ)
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        # A line that is being written is read next time.
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            self._queries.setdefault(str(entry["query"]), QueryLines()).add(entry)
        except (ValueError, LookupError, TypeError):
            # The first line of a long file is a part of one, and a full disk leaves parts of lines.
            return
