"""The order of arrival, worked out by each unit alone (SplitJoin, ATC 2016, sections 3 and 4).

Epochs in sequence; inside an epoch both streams are replayed by time stamp, of equal ones the left stream
first, then as the source has them. For a tuple t

    sequence(t)   tuples of its own stream before t
    seen(t)       tuples of the other stream before t
    arrival(t) = sequence(t) + seen(t)

A count window of n tuples of S is then an interval of numbers: r, arriving, meets the stored s with
seen(r) - n <= sequence(s) < seen(r).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from thetastream.condition import TIME, Bound, Condition, Dimension, Domain, Key
from thetastream.keys import Int64s
from thetastream.types import Side

SEQUENCE, SEEN, ARRIVAL = "n", "m", "o"
"""Block columns that a unit adds to the tuples it numbers."""


class Numbers(NamedTuple):
    """Of the tuples of one stream in an epoch, in order of arrival."""

    order: Int64s
    """Their positions in the block."""
    sequence: Int64s
    seen: Int64s


def number(times: tuple[Int64s, Int64s], arrived: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Replay an epoch.

    Parameters
    ----------
    times : two arrays of int64
        Time stamps of the left and of the right stream's tuples, as the source has them.
    arrived : two ints
        How many tuples of each stream came in earlier epochs.

    Examples
    --------
    >>> left, right = number((np.array([20, 10]), np.array([10, 30])), (100, 0))
    >>> left.order.tolist(), left.sequence.tolist(), left.seen.tolist()
    ([1, 0], [100, 101], [0, 1])
    >>> right.order.tolist(), right.sequence.tolist(), right.seen.tolist()
    ([0, 1], [0, 1], [101, 102])
    """
    orders = [np.argsort(mine, kind="stable") for mine in times]
    ordered = [mine[order] for mine, order in zip(times, orders, strict=True)]
    # Of equal time stamps the left tuple comes first: before a right one, not after it.
    seen = (
        np.searchsorted(ordered[Side.RIGHT], ordered[Side.LEFT], side="left"),
        np.searchsorted(ordered[Side.LEFT], ordered[Side.RIGHT], side="right"),
    )
    left, right = (
        Numbers(
            orders[side],
            arrived[side] + np.arange(len(orders[side])),
            arrived[side.other] + seen[side],
        )
        for side in Side
    )
    return left, right


def counted(condition: Condition, counts: Sequence[int]) -> tuple[Condition, Condition]:
    """The condition with count windows, for probes of stored left and of stored right tuples.

    Sequence numbers take the place of event times; the other stream's are one key more of each side.
    """
    sides = tuple(
        replace(side, time=Key(SEQUENCE, Domain.INT), keys=(*side.keys, Key(SEEN, Domain.INT)))
        for side in condition.sides
    )
    left, right = (
        replace(
            condition,
            sides=(sides[0], sides[1]),
            window=Dimension(
                stored, TIME, Bound(_seen(condition, stored.other), -counts[stored]),
                Bound(_seen(condition, stored.other), -1),
                f"the last {counts[stored]} of {sides[stored].alias}",
            ),
        )
        for stored in Side
    )  # fmt: skip
    return left, right


def _seen(condition: Condition, side: Side) -> int:
    return len(condition.sides[side].keys)
