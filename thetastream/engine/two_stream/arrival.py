"""The order of arrival, which each unit computes by itself (SplitJoin, ATC 2016, sections 3 and 4).

Epochs follow each other. Inside an epoch, the tuples of both streams are sorted by time stamp. Among equal
time stamps, left tuples come before right tuples, and tuples of one stream keep the order of their source.
For a tuple t

    sequence(t)   tuples of its own stream before t
    seen(t)       tuples of the other stream before t
    arrival(t) = sequence(t) + seen(t)

Then a count window of n tuples of S is an interval of numbers: an arriving r meets the stored s with
seen(r) - n <= sequence(s) < seen(r).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from thetastream.core.columns import SEEN, SEQUENCE
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side


class Numbers(NamedTuple):
    """The numbers of the tuples of one stream in an epoch, in order of arrival."""

    order: Int64s
    """The positions of the tuples in the block."""
    sequence: Int64s
    """For each tuple, the number of tuples of its own stream that arrived before it."""
    seen: Int64s
    """For each tuple, the number of tuples of the other stream that arrived before it."""


def number_arrivals(times: tuple[Int64s, Int64s], arrived: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Number the tuples of an epoch in the order of arrival.

    Parameters
    ----------
    times : two arrays of int64
        Time stamps of the left and of the right tuples, in the order of their source.
    arrived : two ints
        The number of tuples of each stream in earlier epochs.

    Examples
    --------
    >>> left, right = number_arrivals((np.array([20, 10]), np.array([10, 30])), (100, 0))
    >>> left.order.tolist(), left.sequence.tolist(), left.seen.tolist()
    ([1, 0], [100, 101], [0, 1])
    >>> right.order.tolist(), right.sequence.tolist(), right.seen.tolist()
    ([0, 1], [0, 1], [101, 102])
    """
    orders = [np.argsort(mine, kind="stable") for mine in times]
    ordered = [mine[order] for mine, order in zip(times, orders, strict=True)]
    # Among equal time stamps, left tuples arrive before right tuples.
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


def apply_count_windows(condition: Condition, counts: Sequence[int]) -> tuple[Condition, Condition]:
    """Add count windows to a condition; return one condition for stored left and one for stored right tuples.

    Sequence numbers replace event times. Each side gets one more key, the column ``m``: the number of tuples
    of the other stream that arrived before the tuple.
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
                stored, TIME, Bound(_find_seen_key(condition, stored.other), -counts[stored]),
                Bound(_find_seen_key(condition, stored.other), -1),
                f"the last {counts[stored]} of {sides[stored].alias}",
            ),
        )
        for stored in Side
    )  # fmt: skip
    return left, right


def _find_seen_key(condition: Condition, side: Side) -> int:
    return len(condition.sides[side].keys)
