"""Reads ``how=``: whether a join answers in pairs, or once for each tuple of a preserved stream."""

from typing import TypeAlias

from thetastream.core.how import HOWS, How, Nearest, find_nearest
from thetastream.errors import QueryError, ThetastreamError

GivenHow: TypeAlias = str | Nearest
"""What a user passes as ``how=``."""
_OTHER_NAMES = {
    "cross": "inner",
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "leftsemi": "semi",
    "leftanti": "anti",
}
"""The other names that Spark's batch joins accept, without underscores and blanks."""


def read_how(given: GivenHow) -> How:
    """Return the kind of join that ``how=`` names, as Spark's batch joins name them.

    >>> read_how("left_outer").name
    'left'

    Raises
    ------
    QueryError
        HOW if there is no such kind.
    """
    if isinstance(given, Nearest):
        return find_nearest(given)
    folded = given.casefold().replace("_", "").replace(" ", "") if isinstance(given, str) else ""
    how = HOWS.get(_OTHER_NAMES.get(folded, folded))
    if how is None:
        raise QueryError(
            "HOW", f"how must be one of {', '.join(HOWS)} or th.Nearest(k, by=...), not {given!r}"
        )
    return how


def refuse_how(how: How, what: str, hint: str, problems: list[ThetastreamError]) -> None:
    """Add an error if the join is not an inner join, because ``what`` has pairs only."""
    if not how.is_inner:
        problems.append(QueryError("HOW", f"{what} has inner joins only, not how={how.name!r}; {hint}"))
