"""Chooses the model of a running job again, from time to time, in the process of its query.

[rechoose]   every, factor
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.core.arguments import refuse_non_number
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.spans import read_positive_span
from thetastream.joins.plan import Plan, find_built, find_rechoosable


@dataclass(frozen=True)
class Rechoosing:
    """When the model of a running job is chosen again.

    Parameters
    ----------
    every : str
        The time between two comparisons of models.
    factor : float
        As in ``Plan.rechoose``: another model is asked for if the present one costs so many times as much.

    Raises
    ------
    QueryError
        BAD_VALUE if ``every`` is no positive span of time, or ``factor`` is less than 1.
    """

    every: str = "10 minutes"
    factor: float = 1.5

    def __post_init__(self) -> None:
        _ = self.every_s  # Reading it checks it.
        refuse_non_number(self.factor, "factor of [rechoose]", 1)

    @property
    def every_s(self) -> float:
        """The time between two comparisons, in seconds."""
        what = 'every of [rechoose] must be a span, as in "10 minutes"'
        return read_positive_span(self.every, what).total_seconds()


def make_unfit_error() -> QueryError:
    """Make the error of a job whose rows are not those of one join."""
    what = "[rechoose] needs a statement whose rows are those of one join of two streams"
    return QueryError(
        "CANNOT_SCALE", f"{what}, without groups, subqueries and names of columns; leave it out"
    )


def find_plan(results: DataFrame, asked: Rechoosing | None) -> Plan | None:
    """Find the plan of the join whose model is chosen again; None if a job does not ask for it.

    ``results`` are the rows that the job writes.

    Raises
    ------
    QueryError
        CANNOT_SCALE if the rows are not those of one join that may have another model.
    """
    if asked is None:
        return None
    built = find_built(results)
    if built is None:
        raise make_unfit_error()
    find_rechoosable(built.join)
    return Plan(built.join)


def rechoose_after_epochs(
    say: Callable[[dict[str, Any]], None],
    query: StreamingQuery,
    plan: Plan,
    asked: Rechoosing,
    tell: Callable[[str], None],
) -> Callable[[dict[str, Any]], None]:
    """Return a listener of epochs that says them, and chooses the model again when it is time.

    ``tell`` gets the model that is asked for, or why none could be chosen. The query goes on in both cases.
    """
    last = time.monotonic()

    def report(epoch: dict[str, Any]) -> None:
        nonlocal last
        say(epoch)
        if time.monotonic() - last < asked.every_s:
            return
        last = time.monotonic()
        try:
            model = plan.rechoose(query, asked.factor)
        except ThetastreamError as problem:
            tell(f"the model cannot be chosen again: {problem}")
        else:
            if model is not None:
                tell(f"{model!r} costs less by what the streams brought, and takes over")

    return report
