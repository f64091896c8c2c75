"""Subgroups of the units of one side (ContRand, BiStream section 3.2.2).

The m units of a side form d subgroups. Unit g + d * k is the k-th unit of subgroup g. The place of a tuple
names its subgroup, and its hash names the unit inside.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.models.base import Hashes, Places, split

Routing: TypeAlias = Literal["auto", "random", "hash", "range"]
"""What names the subgroup of a tuple."""
ROUTINGS = get_args(Routing)


def check_routing(routing: str, subgroups: tuple[int, int]) -> None:
    """Raise BAD_ROUTING if a routing is unknown or contradicts the numbers of subgroups."""
    if routing not in ROUTINGS:
        raise QueryError("BAD_ROUTING", f"routing must be one of {', '.join(ROUTINGS)}, not {routing!r}")
    if routing != "auto" and (routing == "random") != (max(subgroups) == 1):
        raise QueryError(
            "BAD_ROUTING",
            f"routing {routing!r} and {subgroups!r} subgroups contradict each other: "
            "one subgroup is random routing, several are routing by content",
        )


def describe_routing(routing: str) -> str:
    """Describe what names the subgroup of a tuple."""
    return {"hash": "hash of the equality keys", "range": "range of a band's keys"}.get(routing, "content")


def count_units(units: int, groups: int) -> Int64s:
    """Count the units of each subgroup.

    >>> count_units(5, 2).tolist()
    [3, 2]
    """
    return (units - np.arange(groups) + groups - 1) // groups


def split_by_unit(units: int, groups: int, hashes: Hashes) -> Iterator[tuple[int, Int64s | None]]:
    """Yield (unit, rows that belong to it); None stands for all rows.

    >>> places = np.array([4, 5, 7])
    >>> hashes = Hashes(lambda: np.array([0, 0, 1]), lambda: Places(places, places, places))
    >>> [(unit, rows.tolist()) for unit, rows in split_by_unit(4, 2, hashes)]
    [(0, [0]), (1, [1]), (3, [2])]
    """
    if units == 1:
        yield 0, None
        return
    group = 0 if groups == 1 else hashes.places.own % groups
    inside: Int64s | int = 0
    if units > groups:
        inside = hashes.tuples % count_units(units, groups)[group]
    yield from split(np.asarray(group + groups * inside), units)


def find_touched(places: Places, groups: int) -> Iterator[tuple[int, Int64s]]:
    """Yield (subgroup, rows whose partners may be in it). Places are assigned to subgroups round robin.

    A tuple that can have no partner goes to one subgroup too, so that it is counted.

    >>> stretch = Places(np.array([5, 6]), np.array([4, 6]), np.array([5, 6]))
    >>> [(group, rows.tolist()) for group, rows in find_touched(stretch, 3)]
    [(0, [1]), (1, [0]), (2, [0])]
    """
    if places.low is places.high:
        yield from split(places.low % groups, groups)
        return
    # A tuple touches the numbers from ``first`` to ``end`` - 1, and those from ``groups`` on stand for the
    # subgroups from 0 on. One instruction compares many numbers of few bits.
    first = places.low % groups
    end = first + np.clip(places.high - places.low, 0, groups - 1) + 1
    narrow = np.min_scalar_type(2 * groups)
    first, end = first.astype(narrow), end.astype(narrow)
    for group in range(groups):
        rows = np.flatnonzero((first <= group) & (group < end) | (group + groups < end))
        if len(rows):
            yield group, rows
