"""Reads what Spark reports about the sources of an epoch: the rows that they brought, and those that wait.

A query with joins also has sources of our own. They bring messages between units, notices to them, and the
times of idle streams. None of these are tuples.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from posixpath import normpath
from typing import Any, NamedTuple

from thetastream.runtime.control.newest_offset import read_offsets

_OURS = ({"query", "writer"}, {"time_us", "run"})
"""Fields of the offsets of our own sources."""
_WAITING = {
    "numFilesOutstanding": "files",
    "numBytesOutstanding": "bytes",
    "estimatedTotalBytesBehindLatest": "bytes",
}
"""Metrics of sources that say how much they have not read yet, and what they count."""
_FILES = re.compile(r"FileStreamSource\[(.*)\]")


def read_reports(query: Any) -> Iterator[dict[str, Any]]:
    """Read the reports about the epochs of a query that Spark still remembers, oldest first."""
    for progress in query.recentProgress:
        yield progress if isinstance(progress, dict) else json.loads(progress.json)


class Input(NamedTuple):
    """What the sources of the user brought in an epoch."""

    rows: int
    files: int
    """The files that Arrow read. Spark does not count their rows."""


def count_input(report: Mapping[str, Any], by_arrow: Collection[str] = ()) -> Input:
    """Count what the sources of the user brought in an epoch.

    ``by_arrow`` has the paths of the sources whose files Arrow reads.

    >>> ours, theirs = '{"query": {}, "writer": {}}', '{"logOffset": 3}'
    >>> sources = [{"endOffset": ours, "numInputRows": 4}, {"endOffset": theirs, "numInputRows": 5}]
    >>> files = {"endOffset": theirs, "numInputRows": 2, "description": "FileStreamSource[file:/in/a]"}
    >>> count_input({"numInputRows": 9, "sources": [*sources, files]}, ["/in/a"])
    Input(rows=5, files=2)
    """
    paths = {_write_path(path) for path in by_arrow}
    rows = files = 0
    for source in report["sources"]:
        if _is_ours(source):
            continue
        if _read_path(source.get("description", "")) in paths:
            files += source["numInputRows"]
        else:
            rows += source["numInputRows"]
    return Input(rows, files)


def _read_path(description: str) -> str | None:
    """Read the path of Spark's source of files in its description."""
    found = _FILES.fullmatch(description)
    return None if found is None else _write_path(found[1])


def _write_path(path: str) -> str:
    """Write a path as Spark does, but a local one without its scheme.

    >>> {_write_path(path) for path in ("/in/a", "file:/in/a", "file:///in/b/..//a/")}
    {'/in/a'}
    >>> _write_path("s3a://bucket//a/")
    's3a://bucket/a'
    """
    scheme, mark, rest = path.partition("://")
    if mark and scheme != "file":
        return f"{scheme}://{normpath(rest)}"
    return normpath(f"/{(rest if mark else path.removeprefix('file:')).lstrip('/')}")


def _is_ours(source: Mapping[str, Any]) -> bool:
    """Whether a source of a report belongs to a join: it keeps an identity, or the time of an idle stream."""
    return any(fields <= offset.keys() for offset in read_offsets({"sources": [source]}) for fields in _OURS)


def sum_backlog(report: Mapping[str, Any]) -> dict[str, int]:
    """Sum what the sources had not read yet when the epoch was planned, by what they count.

    Kafka counts offsets, and bytes if it can estimate them. Delta counts files and bytes. Sources of files
    and the rate source do not tell it, and the result is empty if no source does.

    >>> kafka = {"endOffset": {"bids": {"0": 5, "1": 7}}, "latestOffset": {"bids": {"0": 9, "1": 7}}}
    >>> delta = {"endOffset": {"index": 3}, "metrics": {"numFilesOutstanding": "2"}}
    >>> sum_backlog({"sources": [kafka, delta, {"endOffset": "7", "latestOffset": None}]})
    {'offsets': 4, 'files': 2}
    """
    found: dict[str, int] = {}
    for source in report.get("sources", ()):
        end, latest = (_read_partitions(source.get(name)) for name in ("endOffset", "latestOffset"))
        told = (source.get("metrics") or {}).items()
        counts = [(_WAITING[name], _read_count(text)) for name, text in told if name in _WAITING]
        if end and latest:
            counts.append(("offsets", sum(n - end[part] for part, n in latest.items() if part in end)))
        for what, n in counts:
            found[what] = found.get(what, 0) + n
    return found


def _read_count(text: Any) -> int:
    """Read a number that a source wrote. An export of metrics must not end because a source writes none.

    >>> _read_count("12.0"), _read_count("NaN"), _read_count(None)
    (12, 0, 0)
    """
    with suppress(TypeError, ValueError, OverflowError):
        return int(float(text))
    return 0


def _read_partitions(offset: Any) -> dict[tuple[str, str], int]:
    """Read the offset of each partition of each topic, as Kafka's source writes them; otherwise nothing."""
    if isinstance(offset, str) and offset.startswith("{"):
        offset = json.loads(offset)
    if not isinstance(offset, dict) or not all(isinstance(parts, dict) for parts in offset.values()):
        return {}
    found = {(topic, part): n for topic, parts in offset.items() for part, n in parts.items()}
    return found if all(isinstance(n, int) for n in found.values()) else {}
