"""Statistics: measures them from a query, or checks those that the user gives."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.joins.measured_statistics import are_one_pipeline, measure_rates, measure_statistics
from thetastream.lowering.statistics import Statistics
from thetastream.spark.observe.metrics import metrics


def statistics(query: Any, join: str | None = None) -> Statistics:
    """Measure the streams of a join, while its query runs or afterwards.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        The query that ``writeStream...start()`` returned.
    join : str, optional
        The name of the join, as in the field ``join`` of ``th.metrics``. It is needed if the query has
        several joins. The joins of a pipeline are one join of all its streams, and need no name.

    Returns
    -------
    Statistics
        Figures of the epochs that Spark remembers. Pass them as ``th.plan(..., statistics=)`` for the same
        left and right streams. For three streams or more, they are the rates by alias, from which the join
        order follows.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if no epoch has brought a tuple. SEVERAL_JOINS if ``join`` names no join of the
        query.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan(streams, on, within, statistics=th.statistics(query)).explain())  # doctest: +SKIP
    """
    epochs = metrics(query)
    joins = list(dict.fromkeys(epoch["join"] for epoch in epochs))
    reports = [
        report if isinstance(report, dict) else json.loads(report.json) for report in query.recentProgress
    ]
    if join is None and len(joins) > 1 and are_one_pipeline(epochs):
        return measure_rates(epochs, reports)
    if join not in joins and (join is not None or len(joins) > 1):
        raise QueryError(
            "SEVERAL_JOINS",
            f"join ({join!r}) must be one of the query's: {', '.join(joins)}, as th.metrics names them",
        )
    mine = [epoch for epoch in epochs if join in (None, epoch["join"])]
    return measure_statistics(mine, reports)


def read_statistics(
    given: Statistics | None, aliases: Iterable[str], problems: list[ThetastreamError]
) -> Statistics | None:
    """Return ``statistics=``, and add an error if it names other streams."""
    if given is None:
        return None
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
    problems += [
        QueryError(
            "UNKNOWN_ALIAS",
            f"statistics name the results {name!r}, which must be two aliases or more of {', '.join(known)}, "
            "with commas between them",
        )
        for name in sorted(given.results_per_second or {})
        if not replace(given, results_per_second={name: 0}).results_of(known)
    ]
    return given
