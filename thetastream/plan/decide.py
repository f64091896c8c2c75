"""Finds the reasons why a join cannot answer each tuple of its preserved streams."""

from thetastream.errors import QueryError
from thetastream.models.base import Model
from thetastream.plan.lower import Lowered
from thetastream.plan.query import Query, find_window_problems


def find_decision_problems(query: Query, lowered: Lowered) -> list[QueryError]:
    """Return errors if tuples of a preserved stream would never be decided."""
    physical, how = lowered.physical, query.how
    if how.is_inner or not how.waits:
        return []
    problems = []
    for side in how.preserved:
        alias = query.aliases[side]
        if physical.lifetimes_us[side] is None and query.streams[side].is_streaming:
            # Bounds that the condition may have are not read without the event times of both streams.
            unread = find_window_problems(
                query.streams, f"how={how.name!r}, to know when a tuple is decided,"
            )
            if unread:
                return unread
            problems.append(
                QueryError(
                    "UNDECIDED",
                    f"how={how.name!r} must know when a tuple of {alias!r} can find no more partners, but "
                    f'nothing bounds how long it waits; set within="...", or bound the event times in the '
                    "condition",
                )
            )
    return problems


def find_partners_problem(model: Model, lowered: Lowered) -> QueryError | None:
    """Return an error if a model does not show a preserved tuple all its partners at one unit, else None."""
    how = lowered.physical.how
    if all(map(model.sees_partners, how.preserved)):
        return None
    both = "th.Matrix(1, 1)"
    if lowered.physical.condition.equalities:
        both = 'th.Matrix(n, 1, subgroups=n, routing="hash")'
    fits = {"left": "th.Matrix(n, 1)", "right": "th.Matrix(1, n)", "full": both}
    return QueryError(
        "PARTNERS_APART",
        f"how={how.name!r} needs all partners of a tuple at one unit, and {model!r} finds them at several; "
        f"use {fits.get(how.name, fits['left'])}, or leave model out",
    )
