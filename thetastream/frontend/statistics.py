"""Statistics and models as the user gives them: read off a query, or checked."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from thetastream.errors import QueryError, ThetastreamError
from thetastream.models import REGISTRY
from thetastream.models.base import Model
from thetastream.plan.measured import measured
from thetastream.plan.statistics import Statistics
from thetastream.spark.metrics import metrics

AUTO = "auto"
MOST_UNITS = 4096


def statistics(query: Any, join: str | None = None) -> Statistics:
    """What a join's streams are like, measured while it runs or after it.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        What ``writeStream...start()`` returned.
    join : str, optional
        Which join, as ``join`` in ``th.metrics`` names it; needed if the query has several.

    Returns
    -------
    Statistics
        Of the epochs Spark remembers, for ``th.plan(..., statistics=)`` of the same streams, left and right.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if no epoch has brought a tuple, SEVERAL_JOINS if ``join`` does not name one.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan(streams, on, within, statistics=th.statistics(query)).explain())  # doctest: +SKIP
    """
    epochs = metrics(query)
    joins = list(dict.fromkeys(epoch["join"] for epoch in epochs))
    if join not in joins and (join is not None or len(joins) > 1):
        raise QueryError(
            "SEVERAL_JOINS",
            f"join ({join!r}) must be one of the query's: {', '.join(joins)}, as th.metrics names them",
        )
    mine = [epoch for epoch in epochs if join in (None, epoch["join"])]
    reports = [
        report if isinstance(report, dict) else json.loads(report.json) for report in query.recentProgress
    ]
    return measured(mine, reports)


def read_statistics(
    given: object, aliases: Iterable[str], problems: list[ThetastreamError]
) -> Statistics | None:
    """What ``statistics=`` says, if it can be read and says it of these streams."""
    if given is None:
        return None
    if isinstance(given, Statistics):
        known = list(aliases)
        named = {
            alias
            for figures in (given.tuples_per_second, given.bytes_per_tuple)
            if isinstance(figures, Mapping)
            for alias in figures
        }
        problems += [
            QueryError("UNKNOWN_ALIAS", f"statistics name {alias!r}, which is not one of {', '.join(known)}")
            for alias in sorted(named)
            if alias.casefold() not in map(str.casefold, known)
        ]
        return given
    problems.append(
        QueryError("STATISTICS", f"statistics must be th.Statistics or th.statistics(query), not {given!r}")
    )
    return None


def read_model(given: Any, problems: list[ThetastreamError]) -> Model | None:
    """The model that ``model=`` names; None: one is to be chosen."""
    if given is None or given == AUTO:
        return None
    if isinstance(given, str) or not hasattr(given, "route"):
        problems.append(
            QueryError(
                "UNKNOWN_MODEL",
                f'model must be "auto" or one of {", ".join(kind.__name__ for kind in REGISTRY.values())} '
                f"with its units, not {given!r}",
            )
        )
        return None
    model: Model = given
    if model.n_units > MOST_UNITS:
        problems.append(
            QueryError(
                "BAD_UNITS", f"{model!r} has {model.n_units} units, and at most {MOST_UNITS} are spread"
            )
        )
        return None
    return model
