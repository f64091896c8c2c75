"""Count windows of two streams, as conditions on the numbers of tuples (``thetastream.engine.arrival``).

A count window of n tuples of S is an interval of numbers: an arriving r meets the stored s with
seen(r) - n <= sequence(s) < seen(r).
"""

from collections.abc import Sequence
from dataclasses import replace

from thetastream.core.columns import SEEN, SEQUENCE
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key
from thetastream.core.sides import Side


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
