"""Checks ``max_units``, with which the units of a join may change while it runs."""

from thetastream.errors import QueryError, ThetastreamError
from thetastream.frontend.options import MOST_UNITS
from thetastream.models.base import Model


def check_max_units(number: int | None, model: Model | None, problems: list[ThetastreamError]) -> None:
    """Add an error if a join may have fewer units at once than its model has."""
    if number is not None and model is not None and number < model.n_units:
        what = (
            f"max_units must be from {model.n_units} to {MOST_UNITS}, because {model!r} has {model.n_units}"
        )
        problems.append(QueryError("MAX_UNITS", f"{what} unit(s), not {number!r}"))


def refuse_max_units(given: int | None, what: str, problems: list[ThetastreamError]) -> None:
    """Add an error if the user gives ``max_units`` for units that cannot change."""
    if given is not None:
        problems.append(
            QueryError("CANNOT_SCALE", f"{what} cannot scale while it runs; leave max_units out ({given!r})")
        )
