"""Refuses a comparison of text with a number where it could end the query.

Spark converts each text to a number while the query runs. The first text that is not a number ends the query.
Without ``spark.sql.ansi.enabled``, such a text counts as NULL, and the comparison may run.
"""

from collections.abc import Iterator, Sequence

from thetastream.errors import Mark, QueryError
from thetastream.plan.domains import find_family
from thetastream.predicate import Phrase, find_comparisons
from thetastream.predicate.names import find_references
from thetastream.spark.catalyst import Catalyst


def find_mixed_comparisons(
    conjunct: Phrase, catalyst: Catalyst, aliases: Sequence[str]
) -> Iterator[QueryError]:
    """Yield an error for each comparison of text with a number in a conjunct, which Catalyst accepts.

    A text without columns, as in ``a.price > '5'``, is a constant, which Spark reads only once.
    """
    for comparison in find_comparisons(conjunct):
        sides = [(phrase, _find_type(phrase, catalyst, aliases)) for phrase in (comparison.f, comparison.g)]
        for (text, text_type), (number, number_type) in (sides, reversed(sides)):
            if (
                text_type.startswith("string")
                and find_family(number_type) == "numeric"
                and find_references(text, aliases)
            ):
                yield _make_error(conjunct, text, number, number_type)


def _find_type(phrase: Phrase, catalyst: Catalyst, aliases: Sequence[str]) -> str:
    named = find_references(phrase, aliases) or aliases[:1]
    return catalyst.type_of(phrase.text, named) or ""


def _make_error(conjunct: Phrase, text: Phrase, number: Phrase, number_type: str) -> QueryError:
    start = text.tokens[0].start - conjunct.tokens[0].start
    return QueryError(
        "TYPE_MISMATCH",
        f"{text.text!r} is text and {number.text!r} is a number, in {conjunct.text!r}; cast one side: "
        f"try_cast({text.text} AS {number_type.upper()}) is NULL for a text that is no number, and "
        f"CAST({number.text} AS STRING) compares as text",
        Mark(conjunct.text, start, start + len(text.text)),
    )
