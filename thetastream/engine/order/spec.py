"""Relaxed adjustable punctuation, RAP (SplitJoin, ATC 2016, section 5).

A punctuation follows every ``interval`` arrivals. It promises that no result of an earlier arrival follows
it. Between two punctuations, results come in any order. So an interval of 1 gives outer order, and longer
intervals give less order. Inner precision orders the results of one arrival too: those with older stored
tuples come first, in any order inside ``inner`` stored tuples.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s

MOST_ARRIVALS = 1 << 48
INNER = "inner "
"""The beginning of a setting with an inner precision, as in ``inner 64``."""
OrderOption: TypeAlias = str | int | None
"""The setting ``order``: None, ``"outer"``, ``"strict"``, ``"inner n"``, or the punctuation interval."""


@dataclass(frozen=True)
class Order:
    """The order of results."""

    interval: int = 1
    """Number of arrivals between two punctuations."""
    inner: int | None = None
    """Inner precision: the results of one arrival are ordered by the arrival of the stored tuple, in any
    order inside so many arrivals. None leaves the results of one arrival in any order; 1 is strict order."""
    is_punctuated: bool = False
    """Whether punctuations are rows of the output."""

    def list_punctuations(self, first: int, end: int) -> Int64s:
        """Return the last arrivals of the intervals that end in [first, end).

        >>> Order(interval=10).list_punctuations(5, 40).tolist()
        [9, 19, 29, 39]
        """
        return np.arange(first // self.interval + 1, end // self.interval + 1) * self.interval - 1

    def __str__(self) -> str:
        if self.inner is not None:
            inside = "" if self.inner == 1 else f", any order inside {self.inner} stored arrivals"
            return f"by arrival, then by age of the stored tuple{inside}"
        if self.interval == 1:
            return "by arrival"
        return f"by arrival, any order inside {self.interval} arrivals"


def read_order(asked: OrderOption, is_punctuated: bool) -> Order | None:
    """Check the options ``order`` and ``punctuations``, and return the order of results or None.

    Raises
    ------
    QueryError
        BAD_ORDER if an option is not valid.

    Examples
    --------
    >>> read_order("outer", False)
    Order(interval=1, inner=None, is_punctuated=False)
    >>> read_order("inner 64", False).inner
    64
    """
    if asked is None:
        if is_punctuated:
            raise QueryError(
                "BAD_ORDER", 'punctuations need an order of results; add order="outer" or an interval'
            )
        return None
    if asked in ("outer", "strict"):
        return Order(inner=1 if asked == "strict" else None, is_punctuated=is_punctuated)
    is_inner = isinstance(asked, str) and asked.startswith(INNER)
    given = asked.removeprefix(INNER) if isinstance(asked, str) else asked
    interval = int(given) if isinstance(given, str) and given.isdecimal() else given
    if isinstance(interval, bool) or not isinstance(interval, int) or not 1 <= interval <= MOST_ARRIVALS:
        raise QueryError(
            "BAD_ORDER",
            f'order must be "outer", "strict", "inner n" or a punctuation interval n, with n from 1 to '
            f"{MOST_ARRIVALS} arrivals, not {asked!r}",
        )
    if is_inner:
        return Order(inner=interval, is_punctuated=is_punctuated)
    return Order(interval, is_punctuated=is_punctuated)
