"""Reads a checkpoint without Spark: the logs of its epochs, and the offsets of the sources of joins.

    metadata           the id of the query
    offsets, commits   the logs of its epochs (``thetastream.runtime.checkpoint_files``)
    state              the state store of Spark

Each join has one source of its own. The offset of this source contains the identity of the join, and the
place of its mailbox if it has one. A job locks its checkpoint, so that a second job cannot use it.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from thetastream.app.job.spec import is_local
from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import ThetastreamError
from thetastream.core.folder import Folder, split_path
from thetastream.core.identity import Identity
from thetastream.engine.clock import END_US
from thetastream.lowering.identity import EVENT_TIME
from thetastream.runtime.checkpoint_files import find_damages, find_last_epoch, read_epoch
from thetastream.spark.sources.identity import read_written

_STREAM, _SETTING = "stream ", "spark."
LOCK = ".thetastream.lock"


@dataclass(frozen=True)
class MailboxPlace:
    """The mailbox of a join, and the messages that the last epoch reads."""

    root: str | None
    """The folder of mailboxes, None if an earlier version wrote the checkpoint."""
    name: str
    epoch: int
    """The epoch whose messages are read; -1 if there are none."""
    units: tuple[int, ...]
    """The units that sent the messages."""


@dataclass(frozen=True)
class ControlPlace:
    """The control folder of a join whose units may change."""

    root: str
    name: str
    join: str
    """The digest of the join."""
    version: int
    """The number of changes so far."""


@dataclass(frozen=True)
class CheckpointedJoin:
    """One join of the query, as the last offsets describe it."""

    identity: Identity
    written_by: str | None
    """The version of Thetastream that wrote the checkpoint; None if an early version wrote it."""
    state_format: int | None
    mailbox: MailboxPlace | None
    control: ControlPlace | None = None


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says about its query."""

    path: str
    query: str
    """Spark's id of the query."""
    begun: int
    """The last epoch that has begun; -1 if there is none."""
    committed: int
    """The last epoch that is committed; -1 if there is none."""
    watermark_ms: int | None
    """The watermark of the next epoch, in milliseconds since 1970; None if there is none yet."""
    began_ms: int | None
    """When the last epoch began, in milliseconds since 1970."""
    changed_ms: int
    """The last change of the logs, in milliseconds since 1970."""
    partitions: int | None
    state_files: int
    state_bytes: int
    n_sources: int
    """The number of sources of the query, with the sources of joins."""
    joins: tuple[CheckpointedJoin, ...]
    damages: tuple[str, ...] = ()
    """The files of its logs that are damaged, each with what is wrong with it."""


def read_checkpoint(path: str) -> Checkpoint:
    """Read a checkpoint: a path, or a URI that Arrow opens.

    Raises
    ------
    ThetastreamError
        NO_CHECKPOINT if the folder is not the checkpoint of a streaming query, or cannot be read.
    """
    try:
        folder = Folder(*split_path(path))
        offsets, commits = folder.list_files("offsets"), folder.list_files("commits")
        begun, committed = find_last_epoch(offsets), find_last_epoch(commits)
        query = json.loads(folder.read("metadata"))["id"]
        log, lines = read_epoch(folder, "offsets", begun) if begun >= 0 else ({}, [])
        commit = read_epoch(folder, "commits", committed)[0] if committed >= 0 else {}
        times_ns = [time_ns for found in (offsets, commits) for time_ns, _ in found.values()]
        files, nbytes = folder.measure("state")
        joins = tuple(_read_join(line) for line in lines if "query" in line)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{hide_secrets(path)} must be the checkpoint of a streaming query"
        why = "; ".join(_find_damages(path)) or str(error)
        raise ThetastreamError("NO_CHECKPOINT", f"{what}; reading it failed: {why}") from None
    return Checkpoint(
        path=path,
        query=query,
        begun=begun,
        committed=committed,
        # Spark writes 0 as long as there is no watermark.
        watermark_ms=max(commit.get("nextBatchWatermarkMs", 0), log.get("batchWatermarkMs", 0)) or None,
        began_ms=log.get("batchTimestampMs"),
        changed_ms=max(times_ns, default=0) // 1_000_000,
        partitions=_find_partitions(log),
        state_files=files,
        state_bytes=nbytes,
        n_sources=len(lines),
        joins=joins,
        damages=tuple(_find_damages(path)),
    )


def _find_damages(path: str) -> list[str]:
    """Find the damages of a checkpoint, as far as its files can be read at all."""
    with suppress(OSError, pa.ArrowException):
        return find_damages(Folder(*split_path(path)))
    return []


def read_partitions(path: str, epoch: int) -> int | None:
    """Read the number of shuffle partitions of an epoch; None if the checkpoint does not say it."""
    try:
        return _find_partitions(read_epoch(Folder(*split_path(path)), "offsets", epoch)[0])
    except (OSError, pa.ArrowException, ValueError) as error:
        what = f"epoch {epoch} of {hide_secrets(path)} must have its offsets"
        raise ThetastreamError("NO_CHECKPOINT", f"{what}; reading them failed: {error}") from None


def _find_partitions(log: dict[str, Any]) -> int | None:
    partitions = log.get("conf", {}).get("spark.sql.shuffle.partitions")
    return None if partitions is None else int(partitions)


def _read_join(offset: dict[str, Any]) -> CheckpointedJoin:
    writer, mailbox = offset.get("writer", {}), None
    if "mailbox" in offset:
        # The name becomes a part of a path, so it must not have folders of its own.
        name = PurePosixPath(offset["mailbox"]).name
        mailbox = MailboxPlace(offset.get("root"), name, int(offset["epoch"]), tuple(offset["units"]))
    control, found = None, offset.get("control")
    if found is not None:
        name, join = PurePosixPath(found["name"]).name, PurePosixPath(found["join"]).name
        control = ControlPlace(found["root"], name, join, int(found["plan"]["version"]))
    return CheckpointedJoin(
        read_written(offset["query"]), writer.get("thetastream"), writer.get("state"), mailbox, control
    )


def describe_checkpoint(found: Checkpoint) -> str:
    """Describe a checkpoint as lines, each with a name and a value."""
    lines = [("checkpoint", hide_secrets(found.path)), ("query", found.query), *_describe_epochs(found)]
    n = len(found.joins)
    if not n:
        lines.append(("joins", "none of Thetastream"))
    for number, join in enumerate(found.joins, 1):
        lines += [("", ""), ("join", f"{number} of {n}"), *_describe_join(join)]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in lines)


def encode_checkpoint(found: Checkpoint) -> dict[str, Any]:
    """Convert a checkpoint to plain values for JSON. The parts of a join are texts as the user wrote them."""
    joins = [
        {
            "written_by": join.written_by,
            "state_format": join.state_format,
            "parts": {name: part.words for name, part in join.identity.items()},
            "mailbox": None if join.mailbox is None else asdict(join.mailbox),
            "control": None if join.control is None else asdict(join.control),
        }
        for join in found.joins
    ]
    return {**vars(found), "path": hide_secrets(found.path), "joins": joins}


def _describe_epochs(found: Checkpoint) -> Iterator[tuple[str, str]]:
    if found.begun < 0:
        yield "epochs", "none"
        return
    last = f"epoch {found.committed} is committed" if found.committed >= 0 else "no epoch is committed"
    again = f", and epoch {found.begun} runs again at the next start" if found.begun > found.committed else ""
    yield "epochs", last + again
    if found.began_ms is not None:
        yield "began", f"the last epoch, at {_spell(found.began_ms)}"
    yield "changed", _spell(found.changed_ms)
    has_ended = found.watermark_ms is not None and found.watermark_ms >= END_US // 1000
    watermark = "none yet" if found.watermark_ms is None else _spell(found.watermark_ms)
    yield "watermark", "the end of the input, so every row is decided" if has_ended else watermark
    if found.partitions is not None:
        yield "partitions", str(found.partitions)
    yield "sources", f"{found.n_sources}, and {len(found.joins)} of them for the joins"
    yield "state", f"{found.state_bytes / 1e6:,.1f} MB in {found.state_files} files"
    for damage in found.damages:
        yield "damaged", damage


def _describe_join(join: CheckpointedJoin) -> Iterator[tuple[str, str]]:
    yield "written by", f"Thetastream {join.written_by}" if join.written_by else "an earlier version"
    if join.state_format is not None:
        yield "state format", str(join.state_format)
    identity, settings = join.identity, []
    for name, part in identity.items():
        if name.startswith(_STREAM):
            time = _find_event_time(identity, name.removeprefix(_STREAM))
            yield name, part.words + (f"; event time {time}" if time else "")
        elif name.startswith(_SETTING):
            settings.append(f"{name} = {part.words}")
        elif not name.startswith(EVENT_TIME):
            yield name.removeprefix("the "), part.words
    for setting in settings:
        yield "setting", setting
    if join.mailbox is not None:
        yield "mailbox", _describe_mailbox(join.mailbox)
    if join.control is not None:
        changes = f"{join.control.version} change(s) of the units; `thetastream status` shows them"
        yield "control", changes


def _describe_mailbox(mailbox: MailboxPlace) -> str:
    place = mailbox.name if mailbox.root is None else f"{mailbox.root.rstrip('/')}/{mailbox.name}"
    if mailbox.epoch < 0:
        return f"{place}, no messages"
    return f"{place}, messages of {len(mailbox.units)} units of epoch {mailbox.epoch}"


def _find_event_time(identity: Identity, stream: str) -> str | None:
    part = identity.get(EVENT_TIME + stream)
    return None if part is None else part.words


def _spell(millis: int) -> str:
    """Write an instant.

    >>> _spell(1_500)
    '1970-01-01T00:00:01.500+00:00'
    """
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


@contextmanager
def lock(checkpoint: str) -> Iterator[str]:
    """Lock a checkpoint until the block ends, and yield the path of the log of the job.

    Without the lock, a second query on the checkpoint would stop the first query without an error.

    Raises
    ------
    ThetastreamError
        CHECKPOINT_IN_USE, with the number of the process that holds the lock.
    """
    if not is_local(checkpoint):
        yield os.devnull
        return
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ThetastreamError(
                "CHECKPOINT_IN_USE",
                f"{checkpoint} belongs to a running job, process {file.read().strip() or 'unknown'}; "
                "stop it, or give this job a checkpoint of its own",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield f"{checkpoint.rstrip('/')}.log"
