"""Relaxed adjustable punctuation, RAP (SplitJoin, ATC 2016, section 5).

A punctuation follows every ``interval`` arrivals. It promises that no result of an earlier arrival follows
it. Between two punctuations, results come in any order. So an interval of 1 gives outer order, and longer
intervals give less order.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.errors import QueryError

MOST_ARRIVALS = 1 << 48
Asked: TypeAlias = str | int | None
"""The setting ``order``: None, ``"outer"``, ``"strict"``, or the punctuation interval."""


@dataclass(frozen=True)
class Order:
    """The order of results."""

    interval: int = 1
    """Number of arrivals between two punctuations."""
    is_strict: bool = False
    """Whether the results of one arriving tuple are ordered by the age of the stored tuples."""
    is_punctuated: bool = False
    """Whether punctuations are rows of the output."""

    def list_punctuations(self, first: int, end: int) -> Int64s:
        """Return the last arrivals of the intervals that end in [first, end).

        >>> Order(interval=10).list_punctuations(5, 40).tolist()
        [9, 19, 29, 39]
        """
        return np.arange(first // self.interval + 1, end // self.interval + 1) * self.interval - 1

    def __str__(self) -> str:
        if self.is_strict:
            return "by arrival, then by age of the stored tuple"
        if self.interval == 1:
            return "by arrival"
        return f"by arrival, any order inside {self.interval} arrivals"


def read_order(asked: Asked, punctuations: object) -> Order | None:
    """Check the settings ``order`` and ``punctuations``, and return the order of results or None.

    Raises
    ------
    QueryError
        BAD_ORDER if one of the settings is not valid.

    Examples
    --------
    >>> read_order("outer", False)
    Order(interval=1, is_strict=False, is_punctuated=False)
    """
    is_punctuated = str(punctuations).lower() == "true"
    if not is_punctuated and str(punctuations).lower() not in ("false", "none"):
        raise QueryError("BAD_ORDER", f"punctuations must be true or false, not {punctuations!r}")
    if asked is None:
        if is_punctuated:
            raise QueryError(
                "BAD_ORDER", 'punctuations need an order of results; add order="outer" or an interval'
            )
        return None
    if asked in ("outer", "strict"):
        return Order(is_strict=asked == "strict", is_punctuated=is_punctuated)
    interval = int(asked) if isinstance(asked, str) and asked.isdecimal() else asked
    if isinstance(interval, bool) or not isinstance(interval, int) or not 1 <= interval <= MOST_ARRIVALS:
        raise QueryError(
            "BAD_ORDER",
            f'order must be "outer", "strict" or a punctuation interval of 1 to {MOST_ARRIVALS} arrivals, '
            f"not {asked!r}",
        )
    return Order(interval, is_punctuated=is_punctuated)
