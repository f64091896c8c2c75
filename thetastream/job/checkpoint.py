"""Reads a checkpoint without Spark: the logs of its epochs, and the offsets of the sources of joins.

    metadata           the id of the query
    offsets, commits   the logs of its epochs (``thetastream.spark.checkpoint_log``)
    state              the state store of Spark

Each join has one source of its own. The offset of this source contains the identity of the join, and the
place of its mailbox if it has one.
"""

import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder, hide_secrets, split_path
from thetastream.core.identity import Identity
from thetastream.errors import ThetastreamError
from thetastream.spark.checkpoint_log import find_last_epoch, read_epoch
from thetastream.spark.state.identity_source import read_written


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
        raise ThetastreamError("NO_CHECKPOINT", f"{what}; reading it failed: {error}") from None
    return Checkpoint(
        path=path,
        query=query,
        begun=begun,
        committed=committed,
        # Spark writes 0 as long as there is no watermark.
        watermark_ms=commit.get("nextBatchWatermarkMs") or log.get("batchWatermarkMs") or None,
        began_ms=log.get("batchTimestampMs"),
        changed_ms=max(times_ns, default=0) // 1_000_000,
        partitions=_find_partitions(log),
        state_files=files,
        state_bytes=nbytes,
        n_sources=len(lines),
        joins=joins,
    )


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
