"""Writes hints for names that do not exist."""

import difflib
from collections.abc import Collection


def suggest(name: str, known: Collection[str]) -> str:
    """Write a hint with the known name that is most similar. The hint is empty if no name is similar.

    >>> suggest("prise", ["id", "price"]), suggest("ts", ["id", "price"])
    ("; did you mean 'price'?", '')
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def suggest_or_list(name: str, known: Collection[str]) -> str:
    """Write a hint with the known name that is most similar, or with all known names if none is similar.

    >>> suggest_or_list("ts", ["id", "price"])
    '; there are id, price'
    """
    return suggest(name, known) or f"; there are {', '.join(known)}"
