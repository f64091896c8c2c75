"""Reads sizes in bytes as people write them: ``1.5 GB``, ``64 MiB``, ``800 kB``, or a number of bytes."""

import re
from fractions import Fraction

_SIZES = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_nbytes(given: object) -> int | None:
    """Read a positive number of bytes. Return None if this is something else.

    Examples
    --------
    >>> [parse_nbytes(given) for given in ("1.5 GB", "64MiB", 1000, "1000")]
    [1500000000, 67108864, 1000, 1000]
    >>> [parse_nbytes(given) for given in ("", "much", "-1 GB", "5 parsecs", 0, True, None)]
    [None, None, None, None, None, None, None]
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given if given > 0 else None
    found = _TEXT.fullmatch(given) if isinstance(given, str) else None
    size = None if found is None else _SIZES.get(found[2].lower())
    if found is None or size is None:
        return None
    return int(Fraction(found[1]) * size) or None
