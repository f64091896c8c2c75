"""Checks arguments that many public functions take: paths, texts, spans of time."""

import os
from typing import Any, TypeGuard

from thetastream.core.errors import QueryError

_LONGEST = 60
"""The longest text of a value in a message, in characters."""


def describe_given(value: object) -> str:
    """Write a value for a message: a short one as Python writes it, and any other one by its type.

    >>> describe_given("often"), describe_given(None), describe_given(list(range(100)))
    ("'often'", 'None', 'a list')
    """
    text = repr(value)
    if len(text) <= _LONGEST and "\n" not in text and not text.startswith("<"):
        return text
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    owner = "" if package in ("builtins", "__main__") else f" of {package}"
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}{owner}"


def hint_unit(value: object) -> str:
    """Write what to give in place of a number where a span of time is due; empty for any other value.

    >>> hint_unit(60), hint_unit("0.5"), hint_unit("often")
    ('; a number has no unit, so write "60 seconds"', '; a number has no unit, so write "0.5 seconds"', '')
    """
    text = str(value).strip() if isinstance(value, int | float | str) else ""
    is_number = not isinstance(value, bool) and text.replace(".", "", 1).isdecimal()
    return f'; a number has no unit, so write "{text} seconds"' if is_number else ""


def read_path(value: Any, name: str, condition: str = "BAD_VALUE", kind: str = "a folder") -> str:
    """Return a path or URI as a text. ``name`` is what the user calls the argument, and ``kind`` what it is.

    Raises
    ------
    QueryError
        ``condition``, if the value is no path.
    """
    if not isinstance(value, str | os.PathLike) or not str(value):
        what = f"{name} must be {kind} as a path or URI"
        raise QueryError(condition, f"{what}, not {describe_given(value)}")
    return str(value)


def refuse_non_text(value: object, name: str, example: str) -> None:
    """Raise BAD_VALUE unless a value is a text that is not empty, such as ``example``."""
    if not isinstance(value, str) or not value:
        raise QueryError("BAD_VALUE", f"{name} must be a text, as in {example}, not {describe_given(value)}")


def refuse_non_number(
    value: object, name: str, least: float = 0, *, condition: str = "BAD_VALUE", is_above: bool = False
) -> None:
    """Raise ``condition`` unless a value is a number of at least ``least``, or above it with ``is_above``.

    >>> refuse_non_number(3.5, "grace_s")
    """
    if not is_number(value) or not (value > least if is_above else value >= least):
        what = f"{name} must be a number {'above' if is_above else 'of at least'} {least:g}"
        raise QueryError(condition, f"{what}, not {describe_given(value)}")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number. Booleans are none.

    >>> is_number(3.5), is_number(True), is_number("3")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse_non_integer(value: object, name: str, least: int, *, condition: str = "BAD_VALUE") -> None:
    """Raise ``condition`` unless a value is an integer of at least ``least``.

    >>> refuse_non_integer(3, "partitions", 1)
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        what = f"{name} must be an integer of at least {least}, not {describe_given(value)}"
        raise QueryError(condition, what)
