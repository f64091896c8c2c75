"""The expected answers of outer, semi and anti joins, by a nested loop with the watermark known.

A tuple is an answer alone, or together with one partner. NULL stands for the partner of a tuple without one.
"""

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
