"""Reads what a join can have of the user's request if some or all of its inputs are tables."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.spans import Within
from thetastream.families.options import OF_ORDER, GivenOptions
from thetastream.models.base import AUTO, Model
from thetastream.models.replicated import Replicated, count_lookup_partitions

SPARK = "spark"
"""The value of ``model=`` that keeps Spark's own join of a stream with tables, or of two batch DataFrames."""
OF_ONE_STREAM = frozenset({"columns", "event_time", "result_time", "mailbox", "cache_folder", "table_cache"})
"""The options of the lookup of one stream in tables. All others are for units that join streams."""


class TableFit(NamedTuple):
    """What the user asks for, without what tables cannot have."""

    within: Within
    model: Model | str | None
    given: GivenOptions
    tables: frozenset[str] = frozenset()
    """The inputs that are tables beside streams."""
    lookup_partitions: int | None = None
    """In how many partitions tuples are looked up in tables; None for the number that costs decide."""
    keeps_spark_join: bool = False


def fit_to_tables(
    aliases: Sequence[str],
    tables: Sequence[str],
    within: Within,
    model: Model | Replicated | str | None,
    given: GivenOptions,
) -> tuple[TableFit, list[ThetastreamError]]:
    """Leave out what a join cannot have because of its tables, and list what the user gave of it.

    ``tables`` are the inputs that are no streams. Without streams, they are joined as batches.
    """
    problems: list[ThetastreamError] = []
    if not tables and "table_cache" in given.of_user:
        what = "table_cache bounds the copies of tables, and no input is a batch DataFrame"
        problems.append(QueryError("BAD_VALUE", f"{what}; leave it out"))
    if not tables and isinstance(model, Replicated):
        what = "th.Replicated() looks tuples up in a table, and no input is a batch DataFrame"
        problems.append(QueryError("MIXED_INPUTS", f"{what}; leave model out"))
    lookup_partitions = None
    if isinstance(model, Replicated) or len(tables) == len(aliases) - 1:
        lookup_partitions = count_lookup_partitions(model)
    if isinstance(model, Replicated) or lookup_partitions is not None:
        model = None
    if 0 < len(tables) < len(aliases):
        asked, found = _fit_streams_with_tables(aliases, tables, within, model, given)
        asked = asked._replace(
            tables=frozenset(tables), lookup_partitions=lookup_partitions, keeps_spark_join=model == SPARK
        )
        return asked, [*problems, *found]
    if model == SPARK and len(aliases) == len(tables) == 2:
        return TableFit(within, None, given, keeps_spark_join=True), problems
    return TableFit(within, model, given, lookup_partitions=lookup_partitions), problems


def _fit_streams_with_tables(
    aliases: Sequence[str],
    tables: Sequence[str],
    within: Within,
    model: Model | str | None,
    given: GivenOptions,
) -> tuple[TableFit, list[ThetastreamError]]:
    """Leave out what a join of streams with tables cannot have, and list what the user gave of it.

    A table has no window, because it is whole in every epoch, and no state. A single stream joins no other.
    """
    streams, names = [alias for alias in aliases if alias not in tables], ", ".join(tables)
    problems: list[ThetastreamError] = []
    unordered = [name for name in OF_ORDER if name in given.of_user and given.values.get(name)]
    if unordered:
        what = f"results have no order behind the join with {names}"
        problems.append(QueryError("ORDER", f"{what}; leave {' and '.join(unordered)} out"))
    if len(streams) == 1:
        asked = {"within": within, "model": model, **given.values}
        unfit = [
            name
            for name, value in asked.items()
            if name not in {*OF_ONE_STREAM, *OF_ORDER, *given.of_session} and value not in (None, AUTO, SPARK)
        ]
        if unfit:
            what = f"{', '.join(unfit)} needs two streams, but only {streams[0]} is one"
            why = f"{names}: tables have no window and no state"
            problems.append(QueryError("MIXED_INPUTS", f"{what} ({why}); leave it out"))
        kept = given.without(given.values.keys() - OF_ONE_STREAM)
        return TableFit(None, None, kept), problems
    if isinstance(within, Mapping):
        known = {alias.casefold() for alias in tables}
        named = [alias for alias in within if str(alias).casefold() in known]
        if named:
            what = f"within names {', '.join(named)}, which is a table: it is whole in every epoch"
            problems.append(QueryError("MIXED_INPUTS", f"{what}; name streams only"))
        within = {alias: window for alias, window in within.items() if alias not in named}
    return TableFit(within, None if model == SPARK else model, given.without(OF_ORDER)), problems
