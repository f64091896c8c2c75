"""Reads which columns of each input the results show (``columns=``), and which have to travel for that.

columns= -> shown columns of each alias -> the DataFrame of results has no other fields
                     + the columns that the condition reads -> sent to units, stored, and written by them
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetastream.conditions import Predicate, tokenize
from thetastream.conditions.names import find_names
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, suggest_or_list
from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.joins.ask.condition import Conjunct, On, list_predicate_columns
from thetastream.lowering.domains import quote
from thetastream.spark.session.configure import choose_name_key

Shown = Mapping[str, Collection[str]]
"""The columns that results show of each alias. Of an alias without an entry, they show all."""
ALL: Shown = {}


def read_shown(
    given: Mapping[str, Sequence[str]] | None, frames: Mapping[str, DataFrame], how: How
) -> tuple[Shown, list[QueryError]]:
    """Read the option ``columns``, and return an error for each name that no input or no result has."""
    if given is None:
        return {}, []
    name_key = choose_name_key(next(iter(frames.values())).sparkSession)
    aliases = {alias.casefold(): alias for alias in _list_shown_aliases(frames, how)}
    shown: dict[str, set[str]] = {}
    problems = []
    for asked, names in given.items():
        alias = aliases.get(asked.casefold())
        if alias is None:
            what = f"columns names {asked!r}, which is no alias of the results"
            problems.append(
                QueryError("UNKNOWN_ALIAS", f"{what}{suggest_or_list(asked, [*aliases.values()])}")
            )
            continue
        known = {name_key(name): name for name in frames[alias].columns if name != CHANGE_TYPE}
        for name in names:
            if name_key(name) not in known:
                what = f"columns names {name!r}, which is no column of {alias}"
                problems.append(
                    QueryError("UNKNOWN_COLUMN", f"{what}{suggest_or_list(name, [*known.values()])}")
                )
        shown[alias] = {known[key] for key in map(name_key, names) if key in known}
    return shown, problems


def _list_shown_aliases(frames: Mapping[str, DataFrame], how: How) -> list[str]:
    """List the inputs whose columns results have. Only a join of two inputs leaves one out."""
    return [alias for n, alias in enumerate(frames) if len(frames) > 2 or Side(n) in how.shown]


def list_needed(shown: Shown, on: On, how: How, aliases: Sequence[str]) -> dict[str, set[str] | None]:
    """List the columns that have to travel, in lower case, by alias; None stands for all columns.

    Of an input that results do not have, these are the columns that Python predicates read. Keys of SQL
    conditions are sent anyway.
    """
    needed: dict[str, set[str] | None] = {}
    ranking = [] if how.nearest is None else [tokenize(how.nearest.by)]
    for alias, names in shown.items():
        ranked, asked = find_names(ranking, alias), find_names_in(on, alias)
        if ranked is None or asked is None:
            needed[alias] = None
        else:
            needed[alias] = {*map(str.casefold, names), *ranked, *asked}
    hidden = [aliases[side] for side in Side if side not in how.shown and side < len(aliases)]
    return needed | {alias: list_predicate_columns(on, alias) for alias in hidden}


def narrow(results: DataFrame, shown: Shown) -> DataFrame:
    """Leave the other fields out of the structs of results. The struct of a padded row stays NULL."""
    columns = []
    for field in results.schema:
        names = shown.get(field.name)
        column = F.col(quote(field.name))
        if names is not None and isinstance(field.dataType, StructType):
            left_out = [quote(name) for name in field.dataType.names if name not in names]
            if left_out:
                column = column.dropFields(*left_out).alias(field.name, metadata=field.metadata)
        columns.append(column)
    return results.select(*columns)


def find_names_in(on: On, alias: str) -> set[str] | None:
    """Find all names in a condition that may be columns, in lower case; None if it reads the whole stream."""
    parts = [on] if isinstance(on, Conjunct) or not isinstance(on, Sequence) else list(on)
    if any(isinstance(part, Column) for part in parts):
        return None  # A Column does not say which names it reads.
    names = find_names([tokenize(part) for part in parts if isinstance(part, str)], alias)
    read = [part.columns for part in parts if isinstance(part, Predicate)]
    called = {name.casefold() for columns in read for _, names in columns for name in names}
    return None if names is None else names | called
