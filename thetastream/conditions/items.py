"""Reads items of a select list that name one column, all columns of a stream, or the stream itself."""

from typing import NamedTuple

from thetastream.conditions.tokens import Token, tokenize
from thetastream.core.errors import QueryError


class NamedItem(NamedTuple):
    """An item of a select list that computes nothing."""

    head: str
    """The first name: an alias, or a column without its alias."""
    field: str | None
    """The name after the dot. It is ``*`` for all columns, and None without a dot."""
    name: str | None
    """The name that the item gives to its column, if it gives one."""


def read_named_item(text: str) -> NamedItem | None:
    """Read an item of a select list; None if it is more than names.

    >>> read_named_item("a.`x y` AS z")
    NamedItem(head='a', field='x y', name='z')
    >>> read_named_item("a.*"), read_named_item("a.x + 1")
    (NamedItem(head='a', field='*', name=None), None)
    """
    try:
        head, *rest = tokenize(text).tokens or (None,)
    except QueryError:
        return None  # Spark says what is wrong with it.
    if head is None or not _is_name(head):
        return None
    field = None
    if len(rest) > 1 and rest[0].text == "." and (rest[1].text == "*" or _is_name(rest[1])):
        field, rest = rest[1].name, rest[2:]
    if len(rest) > 1 and rest[0].keyword == "AS":
        rest = rest[1:]
    if len(rest) > 1 or not all(map(_is_name, rest)):
        return None
    return NamedItem(head.name, field, rest[0].name if rest else None)


def _is_name(token: Token) -> bool:
    return token.text.isidentifier() or token.text[0] == "`"
