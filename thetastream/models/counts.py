"""Reads the sizes of models, which are positive integers."""

from typing import TypeGuard


def is_positive(value: object) -> TypeGuard[int]:
    """Whether a value is a positive integer.

    >>> is_positive(2), is_positive(True), is_positive((2, 2))
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_positive_pair(value: object) -> tuple[int, int] | None:
    """Read a positive integer, which stands for a pair of equal numbers, or a pair; None for anything else.

    >>> read_positive_pair(2), read_positive_pair([1, 3]), read_positive_pair(0)
    ((2, 2), (1, 3), None)
    """
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(map(is_positive, pair)):
        return None
    return pair[0], pair[1]
