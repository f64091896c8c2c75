"""One line for each epoch of a join: in the log of running queries, and as JSON in a file of metrics.

The log goes through Python's ``logging``. The logger is ``thetastream``. Lines about epochs have the level
INFO, and findings of ``thetastream.runtime.observe.health`` have the level WARNING.

The program that writes a file of metrics holds a lock on it. The operating system releases the lock when the
program ends, however it ends. So a reader on the same machine knows whether anybody still writes.
"""

import fcntl
import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from thetastream.core.identity import KIND, UNITS

LOG = logging.getLogger("thetastream")
BUDGET = "THETASTREAM_STATE_BUDGET"
"""The environment variable with the bytes that the state of a join may take, as in ``8g``."""
LONGEST_LAG_S = 86_400
"""A larger lag is not shown, because event times that old come from a recording."""
MATCHES = "matches"
"""The name of the counter ``matched`` of an inner join, whose results it counts."""
PAIRS_FOUND = "pairs found"
"""The name of the counter ``matched`` of a join that is not inner, because its results are others."""
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def read_kind(entry: Mapping[str, Any]) -> str | None:
    """Read the kind of join of an entry of ``th.metrics``; None if it is inner, or not known.

    >>> read_kind({"plan": {"words": {"the condition": "a.x < b.x", "the kind of join": "left"}}})
    'left'
    """
    return read_words(entry).get(KIND)


def are_second_units(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of ``th.metrics`` is that of second units, which get the pairs of the first ones."""
    return UNITS in read_words(entry)


def name_matched(entry: Mapping[str, Any]) -> str:
    """Name the counter ``matched`` of an entry of ``th.metrics``, as the page of running queries does.

    >>> name_matched({"plan": {"words": {"the condition": "a.x < b.x"}}})
    'matches'
    >>> name_matched({"plan": {"words": {"the condition": "a.x < b.x", "the kind of join": "left"}}})
    'pairs found'
    """
    return MATCHES if read_kind(entry) is None and not are_second_units(entry) else PAIRS_FOUND


def read_words(entry: Mapping[str, Any]) -> Mapping[str, str]:
    """Read the words of the plan of an entry of ``th.metrics``; they are empty if it has none."""
    words: Mapping[str, str] = (entry.get("plan") or {}).get("words") or {}
    return words


def count_tuples(entry: Mapping[str, Any]) -> int:
    """Count the tuples of an epoch, late ones included. Those of a lookup in a table are looked up.

    >>> count_tuples({"streams": {"a": {"timely": 3, "late": 1}}, "probed": 9})
    4
    >>> count_tuples({"streams": {}, "tables": {"t": {"version": 1}}, "probed": 9})
    9
    """
    if "tables" in entry:
        return int(entry["probed"])
    return sum(int(stream["timely"] + stream["late"]) for stream in entry["streams"].values())


def describe_epoch(query: str, entry: Mapping[str, Any]) -> str:
    """Describe the epoch of a join in one line.

    Parameters
    ----------
    query : str
        The name of the query.
    entry : mapping
        The counters of the epoch, as ``th.metrics`` describes them.

    Examples
    --------
    >>> a, b = {"timely": 30, "late": 1, "lag_s": 2.5}, {"timely": 20, "late": 0, "lag_s": None}
    >>> entry = {"epoch": 7, "join": "ab12", "durations_ms": {"triggerExecution": 800}, "matched": 1234}
    >>> entry |= {"streams": {"a": a, "b": b}, "held": 50, "state_bytes": 2_000_000, "watermark": None}
    >>> describe_epoch("q", entry)[:60]
    'query q, join ab12, epoch 7: 0.80 s, a 30 + 1 late, 2.5 s be'
    """
    took_ms = entry["durations_ms"].get("triggerExecution")
    parts = [] if took_ms is None else [f"{took_ms / 1000:.2f} s"]
    for alias, stream in entry["streams"].items():
        part = f"{alias} {stream['timely']:,}" + (f" + {stream['late']:,} late" if stream["late"] else "")
        lag_s = stream.get("lag_s")
        if lag_s is not None and 0 <= lag_s < LONGEST_LAG_S:
            part += f", {lag_s:,.1f} s behind"
        parts.append(part)
    parts.append(f"{entry['matched']:,} {name_matched(entry)}")
    parts.append(f"{entry['held']:,} tuples in {entry['state_bytes'] / 1e6:,.1f} MB of state")
    if entry["watermark"] is not None:
        parts.append(f"watermark {entry['watermark']}")
    return f"query {query}, join {entry['join']}, epoch {entry['epoch']}: {', '.join(parts)}"


def read_budget() -> int | None:
    """Read the budget of the environment in bytes; None if there is none, or no size of bytes."""
    return parse_bytes(os.environ.get(BUDGET, ""))


def parse_bytes(text: str) -> int | None:
    """Read a number of bytes, as Spark writes it.

    >>> parse_bytes("8g"), parse_bytes("512 MB"), parse_bytes("a lot")
    (8589934592, 536870912, None)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    return None if found is None else int(found[1]) << _POWERS[found[2]]


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


def is_locked(path: Path) -> bool:
    """Whether a program on this machine holds a lock on a file, such as the one that writes it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
