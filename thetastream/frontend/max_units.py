"""Reads ``max_units``, with which the units of a join may change while it runs."""

from typing import Any

from thetastream.errors import QueryError, ThetastreamError
from thetastream.frontend.model import MOST_UNITS
from thetastream.models.base import Model


def read_max_units(given: Any, model: Model | None, problems: list[ThetastreamError]) -> int | None:
    """Read the largest number of units that a join may have at once; None if its units do not change."""
    if given is None:
        return None
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    least = 1 if model is None else model.n_units
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MOST_UNITS:
        units = "" if model is None else f", because {model!r} has {least} unit(s)"
        problems.append(
            QueryError("MAX_UNITS", f"max_units must be from {least} to {MOST_UNITS}{units}, not {given!r}")
        )
        return None
    return number


def refuse_max_units(given: Any, what: str, problems: list[ThetastreamError]) -> None:
    """Add an error if the user gives ``max_units`` for units that cannot change."""
    if given is not None:
        problems.append(
            QueryError("CANNOT_SCALE", f"{what} cannot scale while it runs; leave max_units out ({given!r})")
        )
