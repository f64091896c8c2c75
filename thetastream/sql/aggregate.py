"""th.aggregate: groups over a join, without SQL around them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from thetastream.errors import QueryError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On
from thetastream.frontend.streams import check_streams
from thetastream.models.base import Model
from thetastream.plan.domains import quoted
from thetastream.predicate import parse
from thetastream.sql.answer import answer, plan_join
from thetastream.sql.grammar import parse_statement
from thetastream.sql.question import Question
from thetastream.windows import Within


def aggregate(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within = None,
    group_by: str | Sequence[str] = (),
    aggs: Mapping[str, str] | None = None,
    having: str | None = None,
    every: str | timedelta | None = None,
    model: Model | str | None = None,
    **settings: Any,
) -> DataFrame:
    """Aggregate over a join, group by group, as its results come.

    Each unit folds its matches of an epoch into a local view, Spark's aggregation merges the views. So it
    goes for ``count``, ``sum``, ``avg``, ``min``, ``max``, ``stddev`` and ``variance`` in all their names,
    and ``approx_count_distinct`` (with the extra ``sketches``), with FILTER, over expressions of one stream
    each; for any other aggregate of Spark pairs leave the units one by one. ``th.sql`` with ``EXPLAIN``
    says which.

    Parameters
    ----------
    streams, on, within, model, **settings
        As for ``thetastream.join``.
    group_by : str or sequence of str
        SQL expressions over the aliases; ``window(result_time, '1 minute')`` is an event-time window of the
        result time, the latest event time of the joined tuples. None makes one group of all.
    aggs : mapping of name to str
        Result column to SQL aggregate, as in ``{"n": "count(*)", "mean": "avg(b.x)"}``.
    having : str, optional
        SQL condition over groups and aggregates.
    every : str or timedelta, optional
        Lazy updates, of streams: views wait in their units until the watermark has moved by this much, as in
        "30 seconds", or the streams pause. For what units fold, and not for windows of ``result_time``.

    Returns
    -------
    DataFrame
        One row per group: the groups, then the aggregates. Of streams it updates: write it in output mode
        ``update`` (a row per group that changed; the latest one counts) or ``complete``, or ``append`` if
        it groups by a window of ``result_time``. It updates with every trigger, or less often: ``every``.

    Raises
    ------
    QueryError
        As ``thetastream.join``, and for expressions that Spark refuses.

    Examples
    --------
    >>> import thetastream as th
    >>> th.aggregate(
    ...     {"a": trades, "b": quotes},
    ...     on="a.price BETWEEN b.bid AND b.ask",
    ...     within="5 minutes",
    ...     group_by=["a.symbol"],
    ...     aggs={"n": "count(*)", "volume": "sum(a.qty)"},
    ... )  # doctest: +SKIP

    Online aggregation, local views and their merger follow BiStream (SIGMOD 2015), section 3.4.2.
    """
    check_streams(streams)
    groups = [group_by] if isinstance(group_by, str) else group_by
    named = {} if aggs is None else aggs
    if not isinstance(groups, Sequence) or not isinstance(named, Mapping):
        what = 'group_by must be expressions and aggs map names to aggregates, as in {"n": "count(*)"}'
        raise QueryError("AGGREGATES", f"{what}, not {group_by!r} and {aggs!r}")
    problems: list[ThetastreamError] = []
    for text in (*groups, *named.values(), *([] if having is None else [having])):
        try:
            if not isinstance(text, str):
                raise QueryError("SYNTAX", f"groups and aggregates must be SQL expressions, not {text!r}")
            if not text.strip() or len(parse(text).at_commas()) > 1:
                raise QueryError(
                    "SYNTAX", f"each group and aggregate must be one SQL expression, not {text!r}"
                )
        except QueryError as problem:
            problems.append(problem)
    if not groups and not named:
        problems.append(
            QueryError("AGGREGATES", 'aggs must name an aggregate at least, as in {"n": "count(*)"}')
        )
    raise_problems(problems)
    # A newline ends a comment that a text may end with.
    keys = [f"{text}\n" for text in groups]
    items = [f"{text}\n AS {quoted(str(name))}" for name, text in named.items()]
    query = f"SELECT ONLINE {', '.join([*keys, *items])}\nFROM {', '.join(map(quoted, streams))}"
    if groups:
        query += f"\nGROUP BY {', '.join(keys)}"
    if having is not None:
        query += f"\nHAVING {having}"
    statement = parse_statement(query)
    if statement.within is not None:
        raise QueryError("SYNTAX", f"WITHIN stands in an expression; it is an argument, within=: {query!r}")
    question = Question(statement, streams, on, within, model, settings, every)
    return answer(next(iter(streams.values())).sparkSession, question, plan_join(question))
