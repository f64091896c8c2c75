"""``th.aggregate`` groups and aggregates the results of a join, without a SQL statement."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack, cast

from pyspark.sql import DataFrame

from thetastream.conditions import tokenize
from thetastream.conditions.clauses import SelectClauses, check_expression
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.core.spans import Within
from thetastream.families.options import GroupOptions, takes
from thetastream.joins.ask.condition import On
from thetastream.joins.ask.streams import read_frames
from thetastream.lowering.domains import quote
from thetastream.models.base import Model, ModelName
from thetastream.statements.join_results import evaluate_select, plan_select
from thetastream.statements.join_select import JoinSelect

if TYPE_CHECKING:
    from thetastream.joins.ask.streams import Input


@takes(GroupOptions)
def aggregate(
    streams: "Mapping[str, Input]",
    on: On,
    within: Within = None,
    group_by: str | Sequence[str] = (),
    aggs: Mapping[str, str] | None = None,
    having: str | None = None,
    model: Model | ModelName | None = None,
    **options: Unpack[GroupOptions],
) -> DataFrame:
    """Aggregate the results of a join by groups, while they are found.

    Each unit folds its matches of an epoch into a local view, and Spark's aggregation merges the views. This
    works for ``count``, ``sum``, ``avg``, ``min``, ``max``, ``stddev`` and ``variance`` under all their
    names, and for ``approx_count_distinct`` (with the extra ``sketches``), with FILTER, over expressions of
    one stream each, and over sums, products and comparisons of such expressions. Of three streams and more,
    the units of the last join fold. For any other aggregate of Spark, pairs leave the units one by one.
    ``th.sql`` with ``EXPLAIN`` says which of the two happens.

    Parameters
    ----------
    streams, on, within, model
        As in ``thetastream.join``.
    group_by : str or sequence of str
        SQL expressions over the aliases. ``window(result_time, '1 minute')`` is an event-time window of the
        result time, the latest event time of the joined tuples. Without expressions there is one group.
    aggs : mapping of name to str
        Result columns and their SQL aggregates, as in ``{"n": "count(*)", "mean": "avg(b.x)"}``.
    having : str, optional
        A SQL condition over groups and aggregates.
    **options
        As in ``thetastream.sql``.

    Returns
    -------
    DataFrame
        It has one row per group, with the groups first and then the aggregates. Over streams it updates with
        every trigger, or less often with ``every``. Write it in output mode ``update`` (one row per group
        that changed, and the latest row counts) or ``complete``, or in ``append`` if it groups by a window of
        ``result_time``. If rows of a stream may be deleted (``thetastream.changes``), only ``count``, ``sum``
        and ``avg`` are possible. Over streams, the last column ``_change_type`` then says ``delete`` for a
        group whose last result is gone.

    Raises
    ------
    QueryError
        The query is wrong, as in ``thetastream.join``, or Spark refuses an expression.

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
    frames = read_frames(streams)
    groups = [group_by] if isinstance(group_by, str) else group_by
    named = {} if aggs is None else aggs
    if not isinstance(groups, Sequence) or not isinstance(named, Mapping):
        what = 'group_by must be expressions and aggs map names to aggregates, as in {"n": "count(*)"}'
        raise QueryError("AGGREGATES", f"{what}, not {group_by!r} and {aggs!r}")
    problems: list[ThetastreamError] = []
    for text in (*groups, *named.values(), *([] if having is None else [having])):
        try:
            _check_text(text)
        except QueryError as problem:
            problems.append(problem)
    if not groups and not named:
        problems.append(
            QueryError("AGGREGATES", 'aggs must name an aggregate at least, as in {"n": "count(*)"}')
        )
    raise_problems(problems)
    # The newline closes a comment with which a text may end.
    keys = [f"{text}\n" for text in groups]
    items = [f"{text}\n AS {quote(str(name))}" for name, text in named.items()]
    clauses = SelectClauses(
        tokenize(", ".join([*keys, *items])),
        tokenize(", ".join(keys)) if groups else None,
        None if having is None else tokenize(having),
    )
    given = dict(options)
    every = cast(str | timedelta | None, given.pop("every", None))
    join_select = JoinSelect(clauses, frames, on, within, model, given, every)
    spark = next(iter(frames.values())).sparkSession
    return evaluate_select(spark, join_select, plan_select(join_select)).rows


def _check_text(text: object) -> None:
    """Raise SYNTAX unless ``text`` is one SQL expression."""
    if not isinstance(text, str):
        raise QueryError("SYNTAX", f"groups and aggregates must be SQL expressions, not {text!r}")
    phrase = tokenize(text)
    if len(phrase.split_at_commas()) > 1 or not phrase:
        raise QueryError("SYNTAX", f"each group and aggregate must be one SQL expression, not {text!r}")
    check_expression(phrase)
