"""Stored tuples that move to units of the newest generation, as messages.

    end of epoch e        the unit that leaves takes some tuples out of its store, and sends them
    start of epoch e + 1  a unit of the newest generation stores them, before any tuple of the epoch probes

Each probe of an epoch finds a tuple at the unit that stores it in this epoch. Spark's epoch barrier separates
the two moments, so a tuple that moves is never stored at both units or at none. State and messages belong to
one epoch, so an epoch that runs again sends the same tuples.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import concat
from thetastream.core.keys import Int64s
from thetastream.engine.inbox import Message, Peers
from thetastream.engine.routing import Router, take_blocks
from thetastream.engine.store.chained_index import ChainedIndex

MOVED_TUPLES = 1 << 16
MOVED_BYTES = 1 << 23
"""The largest number of tuples of each stream, and of their bytes in memory, that a unit sends in an epoch.
If more units send than receive, a unit sends a part of them, so a unit also receives about as many at most.
These limits bound the time that a change adds to an epoch."""
MOVED_SHARE = 4
LEAST_MOVED = 1 << 13
"""A unit that receives n tuples in an epoch sends n / ``MOVED_SHARE`` tuples of each stream at most, or
``LEAST_MOVED`` if it is more. So a change adds little to the time of an epoch with few tuples, too."""
MOVED = "moved"
"""The first value in the header of messages with moved tuples."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio."""


def send_tuples(
    index: ChainedIndex, stream: int, most_tuples: int, n_received: int, router: Router, peers: Peers
) -> tuple[int, list[Message]]:
    """Take tuples of one stream out of a store; return their number and the messages that move them.

    They are ``most_tuples`` at most, and fewer if the unit receives ``n_received`` tuples in this epoch.
    ``router`` is that of the newest generation.
    """
    slots, share = peers.generations[0][1], peers.share_of_sender
    n_tuples = _bound_tuples(most_tuples, n_received)
    payload = index.remove_part(round(n_tuples * share), round(MOVED_BYTES * share))
    if payload is None:
        return 0, []
    routes = router.find_store_routes(stream, payload, _scatter(payload.num_rows))
    header = json.dumps([MOVED, int(stream)])
    blocks = take_blocks(payload, routes)
    return payload.num_rows, [Message(header, block, slots[unit]) for unit, _, block in blocks]


def read_tuples(messages: Iterable[Message]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (stream, moved tuples) for each stream of which the messages have tuples."""
    headers = [(json.loads(one.header), one.block) for one in messages]
    moved = [(header[1], block) for header, block in headers if header[0] == MOVED]
    for stream, found in groupby(sorted(moved, key=itemgetter(0)), key=itemgetter(0)):
        yield stream, concat([block for _, block in found if block is not None])


def is_moved(message: Message) -> bool:
    """Whether a message has moved tuples."""
    kind: str = json.loads(message.header)[0]
    return kind == MOVED


def _bound_tuples(most_tuples: int, n_received: int) -> int:
    """Return how many tuples of a stream a unit may send in an epoch in which it receives ``n_received``.

    An epoch without tuples has time for the largest number.

    >>> [_bound_tuples(65536, n) for n in (0, 1, 50_000, 1_000_000)]
    [65536, 8192, 12500, 65536]
    """
    return min(most_tuples, max(LEAST_MOVED, n_received // MOVED_SHARE)) if n_received else most_tuples


def _scatter(n: int) -> Int64s:
    """Return n numbers that spread evenly, in place of the hashes of tuples, which are not stored.

    >>> np.bincount(_scatter(3000) % 3).tolist()
    [1012, 988, 1000]
    """
    mixed = np.arange(n, dtype=np.uint64) * np.uint64(_GOLDEN)
    return (mixed >> np.uint64(33)).astype(np.int64)
