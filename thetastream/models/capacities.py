"""Units of different strength: which of them store which tuples.

    share(u) = capacity(u) / sum of the capacities of its group

The turns of a group are a list of its units in which each stands as often as its share says, and its places
are spread evenly. The tuple with the number n goes to the unit at place n mod (length of the list), so equal
tuples, whose numbers follow each other (``thetastream.engine.spreading``), are shared in proportion too.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite

import numpy as np

from thetastream.core.arguments import is_number
from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s

TURNS = 64
"""The number of turns for each unit. A share is exact to half a turn."""


def read_capacities(given: object, n_units: int) -> tuple[float, ...] | None:
    """Read the capacities of all units; None if they are equally strong.

    >>> read_capacities([1, 2.5], 2), read_capacities((3, 3), 2)
    ((1, 2.5), None)

    Raises
    ------
    QueryError
        BAD_CAPACITIES if there is not one positive number for each unit.
    """
    if given is None:
        return None
    found = tuple(given) if isinstance(given, tuple | list) else ()
    if len(found) != n_units or not all(map(_is_strength, found)):
        raise QueryError(
            "BAD_CAPACITIES",
            f"capacities must have a positive number for each of the {n_units} units, as in "
            f"{(1,) * n_units}, not {given!r:.200}",
        )
    return None if len(set(found)) == 1 else found


def _is_strength(value: object) -> bool:
    return is_number(value) and isfinite(value) and value > 0


@lru_cache(maxsize=1 << 10)
def share_turns(capacities: Sequence[float]) -> Int64s:
    """List the units of a group in turns, each as often as its capacity says, and at least once.

    >>> np.bincount(share_turns((3.0, 1.0))).tolist(), share_turns((3.0, 1.0))[:8].tolist()
    ([96, 32], [0, 0, 1, 0, 0, 0, 1, 0])
    """
    shares = np.array(capacities, dtype=np.float64)
    shares /= shares.max()  # The sum of very large numbers could overflow.
    exact = TURNS * len(shares) * shares / shares.sum()
    # Round down, and give the turns that are left to the units with the largest rests.
    counts = np.maximum(1, exact.astype(np.int64))
    rest = max(0, TURNS * len(shares) - int(counts.sum()))
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    units = np.repeat(np.arange(len(shares)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    places = (np.arange(len(units)) - first + 0.5) / counts[units]
    turns: Int64s = units[np.argsort(places, kind="stable")]
    return turns
