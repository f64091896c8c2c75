"""Finds out whether the units of a join can write the columns that a user selected, without Spark.

They can if each selected item is a column of a stream, a whole stream, ``result_time`` or the type of the
change; items may be renamed. Catalyst must evaluate any other item, so then rows leave the units.
"""

from collections.abc import Sequence
from typing import NoReturn

from thetastream.conditions.clauses import read_named_item
from thetastream.core.arguments import describe_given
from thetastream.core.columns import (
    CHANGE_TYPE,
    BlockColumn,
    ChangeType,
    ColumnSource,
    LatestTime,
    TupleColumn,
)
from thetastream.core.errors import QueryError
from thetastream.joins.ask.shown import ALL, Shown
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import Carried, SidePlan
from thetastream.lowering.query import RESULT_TIME
from thetastream.runtime.flow import Emitted, NotStaged


def refuse_other_select(select: object) -> None:
    """Raise BAD_VALUE unless ``select`` is a list of texts."""
    is_list = isinstance(select, Sequence) and not isinstance(select, str | bytes)
    if not is_list or not all(isinstance(text, str) for text in select):  # type: ignore[attr-defined]
        what = 'select must be a list of texts, as in ["a.id"]'
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(select)}")


def find_sources(
    emitted: Emitted | str, select: Sequence[str] | None, shown: Shown = ALL
) -> tuple[ColumnSource, ...]:
    """Find how each selected column follows from the blocks of the units.

    Parameters
    ----------
    emitted : Emitted or str
        What the units emit, or why they cannot write it themselves.
    select : sequence of str, optional
        The items that the user selected. None stands for all columns of the join.
    shown : mapping of alias to collection of str
        The columns that results show of each alias. Of an alias without an entry, they show all.

    Raises
    ------
    NotStaged
        If Spark must compute one of them. The text says why.
    """
    if isinstance(emitted, str):
        raise NotStaged(emitted)
    if select is None:
        whole: list[ColumnSource] = [_find_tuple(side, shown) for side in emitted.sides]
        whole += [_find_time(emitted)] if emitted.times else []
        return (*whole, ChangeType()) if emitted.has_deletes else tuple(whole)
    return tuple(source for item in select for source in _read_item(emitted, item, shown))


def _read_item(emitted: Emitted, item: str, shown: Shown) -> list[ColumnSource]:
    found = read_named_item(item)
    if found is None:
        _refuse(f"{item!r} is no name of a column, so Spark computes it")
    head, field, alias = found
    sides = [side for side in emitted.sides if side.alias.casefold() == head.casefold()]
    if not sides:
        if head.casefold() == RESULT_TIME and field is None and emitted.times:
            return [_find_time(emitted)]
        if head.casefold() == CHANGE_TYPE and field is None and emitted.has_deletes:
            return [ChangeType()]
        _refuse(f"{item!r} is no column of a stream by its alias")
    if field is None:
        return [_find_tuple(sides[0], shown)]
    if field == "*" and alias is None:
        return list(_find_tuple(sides[0], shown).fields)
    columns = [one for one in _list_shown(sides[0], shown) if one.field.casefold() == field.casefold()]
    if len(columns) != 1:
        _refuse(f"{item!r} is no column of a stream")
    return [_find_column(columns[0])]


def _list_shown(side: SidePlan, shown: Shown) -> list[Carried]:
    names = shown.get(side.alias)
    return [carried for carried in side.carried if names is None or carried.field in names]


def _find_tuple(side: SidePlan, shown: Shown) -> TupleColumn:
    return TupleColumn(tuple(map(_find_column, _list_shown(side, shown))))


def _find_column(carried: Carried) -> BlockColumn:
    is_kept = carried.from_block == quote(carried.block_column)
    if not (is_kept or carried.type == "timestamp"):
        _refuse(f"Spark restores {carried.field!r}, which has type {carried.type}")
    return BlockColumn(carried.block_column)


def _find_time(emitted: Emitted) -> LatestTime:
    columns = [
        next(carried for carried in side.carried if carried.field == emitted.times[side.alias])
        for side in emitted.sides
    ]
    if len({column.type for column in columns}) > 1:
        _refuse("event times of two types are compared by Spark")
    return LatestTime(tuple(_find_column(column) for column in columns))


def _refuse(why: str) -> NoReturn:
    raise NotStaged(why)
