"""A join request of the user, with the session's defaults for options that the user left out.

``how=`` says whether a join returns pairs, or an answer for each tuple of a preserved stream.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from thetastream.conditions import Predicate
from thetastream.conditions.statement import HowOption
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import HOWS, INNER, How, Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.core.spans import Within
from thetastream.families.options import GivenOptions, JoinOptions, Options, read_options
from thetastream.joins.ask.arrow_tables import read_tables
from thetastream.joins.ask.streams import check_streams
from thetastream.models.base import Model

Conjunct: TypeAlias = str | Predicate | Column
"""A SQL text, a Python predicate, or a Column of Spark."""
On: TypeAlias = Conjunct | Sequence[Conjunct]


@dataclass(frozen=True)
class JoinRequest:
    """A join as the user asked for it. Only its streams are checked."""

    streams: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    given: GivenOptions
    how: How = INNER
    columns: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """For each alias, the columns that results need, in lower case. Without an entry, all columns are
    needed."""
    bounds_watermark: bool = False
    """Whether the units of the last of several joins must know how far the watermark rises."""
    problems: tuple[ThetastreamError, ...] = ()
    """The errors of options that could not be read."""

    @property
    def options(self) -> Options:
        """The values of the options that the user or the session gave."""
        return self.given.values

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the streams."""
        return next(iter(self.streams.values())).sparkSession


def complete_request(
    streams: Mapping[str, Any],
    on: On,
    within: Within,
    model: Model | str | None,
    options: Mapping[str, Any],
    *,
    columns: Mapping[str, Collection[str] | None] | None = None,
    how: HowOption = INNER.name,
    door: type = JoinOptions,
) -> JoinRequest:
    """Check the streams, read the options and return the request. ``door`` declares the options.

    It raises what ``check_streams``, ``read_how`` and ``read_defaults`` raise.
    """
    streams = read_tables(streams)
    check_streams(streams)
    kind, needed = read_how(how), dict(columns or {})
    problems: list[ThetastreamError] = []
    given = read_options(options, next(iter(streams.values())).sparkSession.conf.getAll, door, problems)
    for side in Side:
        if side not in kind.shown and side < len(streams):
            alias = list(streams)[side]
            needed[alias] = _list_read(on, alias)
    return JoinRequest(streams, on, within, model, given, kind, needed, problems=tuple(problems))


def _list_read(on: On, alias: str) -> set[str]:
    """List the columns of a stream that Python predicates read. Keys of SQL conditions are sent anyway."""
    items = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    return {
        name.casefold()
        for item in items
        if isinstance(item, Predicate)
        for named, names in item.columns
        if named.casefold() == alias.casefold()
        for name in names
    }


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


def read_how(given: HowOption) -> How:
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
