"""Views that wait in a unit's state, committed with it.

They lie beside the segments, under a name no segment has. Spark calls the unit as soon as the watermark
moves, and an epoch that brings no tuples lets the views out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.aggregate import Fold, view_of
from thetastream.aggregate.lazy import is_followed
from thetastream.condition import Condition
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.unit import Matches
from thetastream.spark.segments import PartMap, read_block, remove_block, write_block

_NAME = "held"
_HEADER = (_NAME, -1)


@dataclass(frozen=True)
class Held:
    """Views that wait."""

    since_ms: int
    """Watermark of the epoch that made the first of them."""
    rows: tuple[pa.RecordBatch, ...] = ()


def updates(
    fold: Fold,
    condition: Condition,
    inbox: Inbox,
    matches: Iterator[Matches],
    watermark_us: int | None,
    parts: PartMap,
) -> Iterator[list[pa.Array]]:
    """What leaves a unit in an epoch that brings it tuples: the view of all that waited, or nothing yet.

    Parameters
    ----------
    fold, condition, inbox, matches, watermark_us
        Of the epoch.
    parts : MapState
        Of the unit.
    """
    assert fold.lazy is not None
    now_ms = 0 if watermark_us is None else watermark_us // 1000
    # 1. What waits, and this epoch's view.
    held = take(parts) or Held(now_ms)
    view = view_of(fold, matches)
    for batch in held.rows:
        view.merge(batch)
    rows = tuple(view.rows())
    # 2. Out with it, unless it may wait.
    is_due = now_ms - held.since_ms >= fold.lazy.every_ms
    if rows and not is_due and is_followed(fold.lazy, condition, inbox, now_ms):
        put(parts, Held(held.since_ms, rows))
    else:
        for batch in rows:
            yield batch.columns


def take(parts: PartMap) -> Held | None:
    """What waits, taken out of the state."""
    found = parts.getValue(_HEADER)
    if found is None:
        return None
    header = json.loads(found[0])
    parts.removeKey(_HEADER)
    names = [f"{_NAME}-{n}" for n in range(len(header["rows"]))]
    rows = tuple(read_block(parts, name, n) for name, n in zip(names, header["rows"], strict=True))
    for name in names:
        remove_block(parts, name)
    return Held(header["since_ms"], rows)


def put(parts: PartMap, held: Held) -> None:
    """Let views wait."""
    for n, batch in enumerate(held.rows):
        write_block(parts, f"{_NAME}-{n}", batch)
    n_rows = [batch.num_rows for batch in held.rows]
    header = {"since_ms": held.since_ms, "rows": n_rows}
    parts.updateValue(_HEADER, (json.dumps(header).encode(),))
