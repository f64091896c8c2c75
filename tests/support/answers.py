"""The expected answers of outer, semi and anti joins, by a nested loop with the watermark known.

A tuple is an answer alone, or together with one partner. NULL stands for the partner of a tuple without one.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.oracle import Row

Answer = tuple[Any, Any]
"""The ids of the left and of the right tuple. None stands for a tuple that is not part of the result."""


def answers(
    how: str, matches: Callable[[Row, Row], bool], left: Sequence[Row], right: Sequence[Row]
) -> Counter[Answer]:
    """Compute the bag of answers to timely rows. The field ``id`` identifies a row."""
    pairs = [(a["id"], b["id"]) for a in left for b in right if matches(a, b)]
    matched = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    alone = (
        [(row["id"], None) for row in left if row["id"] not in matched[0]],
        [(None, row["id"]) for row in right if row["id"] not in matched[1]],
    )
    return Counter(
        {
            "inner": pairs,
            "left": [*pairs, *alone[0]],
            "right": [*pairs, *alone[1]],
            "full": [*pairs, *alone[0], *alone[1]],
            "semi": [(a["id"], None) for a in left if a["id"] in matched[0]],
            "anti": alone[0],
        }[how]
    )


def nearest(
    k: int,
    rank: Callable[[Row, Row], float | None],
    keeps_unmatched: bool,
    matches: Callable[[Row, Row], bool],
    left: Sequence[Row],
    right: Sequence[Row],
) -> Counter[Answer]:
    """Compute the bag of the partners with rank at most k of each left row; NaN comes last, then NULL."""
    found: Counter[Answer] = Counter()
    for a in left:
        partners = [(_sort_key(rank(a, b)), b["id"]) for b in right if matches(a, b)]
        for value, b in partners:
            if sum(other < value for other, _ in partners) < k:
                found[a["id"], b] += 1
        if keeps_unmatched and not partners:
            found[a["id"], None] += 1
    return found


def _sort_key(value: float | None) -> tuple[int, float]:
    if value is None:
        return 2, 0.0
    return (1, 0.0) if math.isnan(value) else (0, value)
