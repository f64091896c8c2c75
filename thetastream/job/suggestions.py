"""Hints for names that do not exist: a known name that is almost the same."""

import difflib
from collections.abc import Collection


def suggest(name: str, known: Collection[str]) -> str:
    """Write a hint with the known name that is nearest to a name. It is empty if none is near.

    >>> suggest("prise", ["id", "price"]), suggest("ts", ["id", "price"])
    ("; did you mean 'price'?", '')
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def suggest_or_list(name: str, known: Collection[str]) -> str:
    """Write a hint with the nearest known name, or with all known names if none is near.

    >>> suggest_or_list("ts", ["id", "price"])
    '; there are id, price'
    """
    return suggest(name, known) or f"; there are {', '.join(known)}"
