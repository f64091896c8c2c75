"""Finds expressions over changes that may have two values for one row.

A delete names the row of its insert, with equal values. An expression over changes is evaluated for both,
often at different times. So its value must depend on the row alone.
"""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from thetastream.conditions import Phrase, make_error_at
from thetastream.conditions.refused import find_subqueries, find_varying
from thetastream.core.errors import QueryError
from thetastream.joins.ask.catalyst import escape_braces
from thetastream.joins.ask.refusals import unlogged
from thetastream.lowering.domains import quote

HINT = "write the rows into a store, and compute it where they are read"


def refuse_varying(
    frame: DataFrame, phrases: Sequence[Phrase], what: str, hint: str = HINT, alias: str | None = None
) -> None:
    """Refuse expressions over ``frame`` whose value depends on more than the row.

    ``phrases`` are expressions or select lists that Spark accepts. ``what`` says why the value must not vary,
    and ``alias`` is the name by which they may call the frame.

    Raises
    ------
    QueryError
        NON_DETERMINISTIC, TIME_DEPENDENT, or CHANGES_TABLE for a subquery, whose table is read anew in each
        epoch.
    """
    for phrase in phrases:
        for token, condition in find_varying(phrase):
            raise _make_error(phrase, token.start, token.text, condition, what, hint)
        for n in find_subqueries(phrase):
            message = f"{what}, and a subquery is computed anew in each epoch"
            raise make_error_at(phrase.source, phrase.tokens[n].start, f"{message}; {hint}", "CHANGES_TABLE")
    items = [
        item
        for phrase in phrases
        for item in phrase.split_at_commas()
        if item and item.tokens[-1].kind != "STAR"
    ]
    if not items or _ask(frame, items, alias) is None:
        return
    for item in items:
        if (_ask(frame, [item], alias) or "").startswith(_RANDOM):
            raise _make_error(item, item.tokens[0].start, item.text, "NON_DETERMINISTIC", what, hint)


def _make_error(phrase: Phrase, start: int, text: str, condition: str, what: str, hint: str) -> QueryError:
    message = f"{what}, and {text!r} may have another value for the same row"
    return make_error_at(phrase.source, start, f"{message}; {hint}", condition)


def _ask(frame: DataFrame, items: Sequence[Phrase], alias: str | None) -> str | None:
    """Return the name of Catalyst's error in a join with these items in its condition; None without one.

    Catalyst refuses non-deterministic expressions there, and other ones too, such as aggregates.
    """
    listed = ", ".join(escape_braces(item.text) for item in items)
    named = "" if alias is None else f" AS {quote(alias)}"
    query = f"SELECT 1 FROM {{frame}}{named} JOIN (SELECT 1) ON isnull(struct({listed}))"
    try:
        with unlogged():
            _ = frame.sparkSession.sql(query, frame=frame).schema
    except Exception as error:
        # Expressions that belong elsewhere, as window(), may also end with an internal error of Spark.
        return (error.getCondition() if isinstance(error, AnalysisException) else None) or ""
    return None


_RANDOM = ("INVALID_NON_DETERMINISTIC_EXPRESSIONS", "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION")
"""Catalyst's errors for non-deterministic expressions, such as a function of the user."""
