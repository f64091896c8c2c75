"""The measured work of a worker on the handshake chain, from which the size of its blocks follows."""

from collections.abc import Sequence

from thetastream.engine.counters import Counters
from thetastream.engine.handshake.block_size import BlockCost
from thetastream.models.base import AUTO

FIRST_BLOCK = 512
"""The block size, in tuples, until a worker has measured its work."""
KEEP = 0.95
"""The weight of earlier epochs in the measured means."""


def choose_block(asked: int | str, measured: Sequence[float]) -> int:
    """Choose the size of a block in tuples: what the user asked for, or the best by what is measured.

    ``measured`` has the arguments of ``BlockCost``, or nothing before the first measurement.
    """
    if asked != AUTO:
        return int(asked)
    return BlockCost(*measured).find_best() if measured else FIRST_BLOCK


def average_work(
    before: Sequence[float],
    counters: Counters,
    load: int,
    n_forwarded: int,
    arrived_bytes: int,
    n_workers: int,
) -> list[float]:
    """Average the arguments of ``BlockCost`` over epochs; an epoch without measurements changes nothing.

    Parameters
    ----------
    before : sequence of float
        The averages before this epoch; empty before the first measurement.
    counters : Counters
        The counters of this epoch.
    load : int
        The number of tuples that the worker stores.
    n_forwarded : int
        The number of tuples that it forwarded in blocks.
    arrived_bytes : int
        The bytes of the tuples that arrived.
    n_workers : int
        The number of workers of the chain.
    """
    if not (counters.probed and load and counters.received and (before or counters.candidates)):
        return list(before)
    now = [
        float(n_forwarded),
        float(counters.probed),
        min(1.0, counters.candidates / counters.probed / load),
        arrived_bytes / counters.received,
        float(load),
    ]
    # Blocks may be rare, so a worker at first assumes that it forwards as many tuples as the end of a
    # balanced chain.
    before = before or [counters.received * (n_workers - 1) / n_workers, *now[1:]]
    return [KEEP * old + (1 - KEEP) * new for old, new in zip(before, now, strict=True)]
