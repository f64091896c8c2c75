"""Reads the rows of the exchange: tuples and messages go into the inbox of a unit, other rows tell it news.

rows of a unit -> tuples, messages, reports of the shedder, list of join tasks -> inbox
               -> announcement of the mailbox, notice of a change -> ControlRows
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from thetastream.core.blocks import unpack
from thetastream.core.columns import (
    ANNOUNCEMENT,
    BLOCK,
    EMPTY,
    FORK,
    HEADER,
    KIND,
    LATEST_TIME,
    MEASURE,
    MESSAGE,
    NOTICE,
    ORIGIN,
    PLAN,
    RUNNING_TASKS,
    SHED,
    STREAM,
    UNIT,
)
from thetastream.core.identity import Identity, decode_identity
from thetastream.engine.inbox import Inbox, Message, ShedReport
from thetastream.runtime.control.notices import Notice
from thetastream.runtime.mailbox.announcement import Announcement

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (KIND, STREAM, ORIGIN, HEADER, BLOCK)
"""The columns of a row that ``take_in`` reads."""


class ControlRows(NamedTuple):
    """What rows that are not for the engine tell a unit."""

    announced: Announcement | None = None
    """What the mailbox announces."""
    notice: Notice | None = None
    """The change of the control plan that is about this unit."""
    forked_from: Identity | None = None
    """The query that has stored the tuples of this one; None if this query has stored them."""
    latest_us: Mapping[int, int] = MappingProxyType({})
    """The latest event time that routers report for each stream, in microseconds."""
    asks_load: bool = False
    """Whether the unit should report its load."""
    followed: Set[int] = frozenset()
    """The versions of the control plan by which tuples were routed."""
    next_plan: int | None = None
    """The version of the control plan that holds from the next epoch on; None if the plan stays the same."""


def take_in(inbox: Inbox, found: Iterable[Sequence[Any]]) -> ControlRows:
    """Put all rows of an epoch into a unit's inbox; return what the other rows tell.

    Parameters
    ----------
    inbox : Inbox
    found : iterable of sequences
        All rows of the unit, because only together can they be sorted. A row has the values of the columns
        ``COLUMNS``. Its block is bytes or an Arrow buffer.
    """
    announced: Announcement | None = None
    notice: Notice | None = None
    forked_from: Identity | None = None
    latest_us: dict[int, int] = {}
    asks_load = False
    followed: set[int] = set()
    next_plan: int | None = None
    messages: list[tuple[int, str, pa.RecordBatch | None, int]] = []
    for kind, stream, origin, header, block in found:
        size = len(block)
        if kind == EMPTY:
            continue
        if kind == ANNOUNCEMENT:
            if header:  # Routers and senders also announce the epoch, and tell nothing.
                announced = Announcement.read(header)
        elif kind == SHED:
            inbox.shed.append(ShedReport(*json.loads(header)))
        elif kind == LATEST_TIME:
            latest_us[int(stream)] = max(int(header), latest_us.get(int(stream), int(header)))
        elif kind == MEASURE:
            asks_load = True
        elif kind == NOTICE:
            notice = Notice.read(header)
        elif kind == PLAN:
            next_plan = int(header)
        elif kind == RUNNING_TASKS:
            inbox.tasks = json.loads(header)
        elif kind == FORK:
            forked_from = decode_identity(json.loads(header))
        elif kind == MESSAGE:
            messages.append((int(origin), header, unpack(block) if size else None, size))
        else:
            followed.add(int(header or 0))
            inbox.add(int(stream), int(kind), int(origin), unpack(block), size)
    # The upper half of the origin is the number of the sender, the lower half numbers its messages.
    for origin, header, carried, size in sorted(messages, key=lambda message: message[0]):
        inbox.deliver(Message(header, carried, sender=origin >> 32), size)
    return ControlRows(announced, notice, forked_from, latest_us, asks_load, followed, next_plan)


def list_rows(frames: "Iterable[pd.DataFrame]") -> Iterator[Sequence[Any]]:
    """Yield the rows that Spark gives a stateful processor, frame by frame, as ``take_in`` reads them."""
    for frame in frames:
        yield from zip(*(frame[name] for name in COLUMNS), strict=True)


def fill_inboxes(batches: Iterator[pa.RecordBatch]) -> dict[int, Inbox]:
    """Fill one inbox per unit from the rows of batch DataFrames: grouping key of the unit -> inbox."""
    inboxes: dict[int, Inbox] = {}
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (UNIT, *COLUMNS[:-1])]
        blocks = (block.as_buffer() for block in batch.column(BLOCK))
        # Batch rows are tuples only, and an inbox sorts its tuples, so rows may come one by one.
        for key, *row in zip(*columns, blocks, strict=True):
            take_in(inboxes.setdefault(key, Inbox()), [row])
    return inboxes
