"""Describes a checkpoint, for a person or as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from thetastream.core.folder import hide_secrets
from thetastream.core.identity import Identity
from thetastream.job.checkpoint import Checkpoint, CheckpointedJoin, MailboxPlace

_STREAM, _TIME, _SETTING = "stream ", "the event time of ", "spark."


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
    yield "watermark", "none yet" if found.watermark_ms is None else _spell(found.watermark_ms)
    if found.partitions is not None:
        yield "partitions", str(found.partitions)
    yield "sources", f"{found.n_sources}, and {len(found.joins)} of them for the joins"
    yield "state", f"{found.state_bytes / 1e6:,.1f} MB in {found.state_files} files"


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
        elif not name.startswith(_TIME):
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
    part = identity.get(_TIME + stream)
    return None if part is None else part.words


def _spell(millis: int) -> str:
    """Write an instant.

    >>> _spell(1_500)
    '1970-01-01T00:00:01.500+00:00'
    """
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
