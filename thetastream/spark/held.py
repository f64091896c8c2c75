"""Views that wait in a unit's state, committed with it.

They lie beside the segments, under a name no segment has. An event-time timer goes off as soon as the
watermark moves; in an epoch that brings the unit nothing it lets the views out.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.aggregate import Fold, view_of
from thetastream.aggregate.lazy import is_followed
from thetastream.condition import Condition
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.unit import Matches
from thetastream.spark.segments import PART_BYTES, PartMap

_NAME = "held"
_HEADER = (_NAME, -1)


@dataclass(frozen=True)
class Held:
    """Views that wait."""

    since_ms: int
    """Watermark of the epoch that made the first of them."""
    timer_ms: int
    rows: tuple[pa.RecordBatch, ...] = ()


def updates(
    fold: Fold,
    condition: Condition,
    inbox: Inbox,
    matches: Iterator[Matches],
    watermark_us: int | None,
    parts: PartMap,
    handle: Any,
) -> Iterator[list[pa.Array]]:
    """What leaves a unit in an epoch that brings it tuples: the view of all that waited, or nothing yet.

    Parameters
    ----------
    fold, condition, inbox, matches, watermark_us
        Of the epoch.
    parts : MapState
        Of the unit.
    handle : StatefulProcessorHandle
        For timers.
    """
    assert fold.lazy is not None
    now_ms = 0 if watermark_us is None else watermark_us // 1000
    # 1. What waits, and this epoch's view.
    held = take(parts) or Held(now_ms, 0)
    if held.timer_ms:
        handle.deleteTimer(held.timer_ms)
    view = view_of(fold, matches)
    for batch in held.rows:
        view.merge(batch)
    rows = tuple(view.rows())
    # 2. Out with it, unless it may wait.
    is_due = now_ms - held.since_ms >= fold.lazy.every_ms
    if rows and not is_due and is_followed(fold.lazy, condition, inbox, now_ms):
        put(parts, Held(held.since_ms, now_ms + 1, rows))
        handle.registerTimer(now_ms + 1)
    else:
        for batch in rows:
            yield batch.columns


def take(parts: PartMap) -> Held | None:
    """What waits, taken out of the state."""
    found = parts.getValue(_HEADER)
    if found is None:
        return None
    header = json.loads(found[0])
    keys = [(_NAME, part) for part in range(header["parts"])]
    data = b"".join(value[0] for value in map(parts.getValue, keys) if value is not None)
    for key in (_HEADER, *keys):
        parts.removeKey(key)
    with pa.ipc.open_stream(data) as reader:
        return Held(header["since_ms"], header["timer_ms"], tuple(reader))


def put(parts: PartMap, held: Held) -> None:
    """Let views wait."""
    data = _to_ipc(held.rows)
    pieces = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    for part, piece in enumerate(pieces):
        parts.updateValue((_NAME, part), (piece,))
    header = {"since_ms": held.since_ms, "timer_ms": held.timer_ms, "parts": len(pieces)}
    parts.updateValue(_HEADER, (json.dumps(header).encode(),))


def _to_ipc(rows: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows[0].schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
