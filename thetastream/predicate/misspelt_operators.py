"""Finds misspelt operators, which Spark reports as an error of the grammar somewhere else."""

import difflib

from thetastream.errors import Mark, QueryError
from thetastream.predicate.tokens import OPERAND_ENDS, Phrase

_OPERATORS = ("BETWEEN", "AND", "OR", "NOT", "LIKE", "ILIKE", "RLIKE", "IN", "IS", "DIV")


def find_misspelt(phrase: Phrase) -> QueryError | None:
    """Find a misspelt operator: a word between two operands that is almost an operator.

    >>> from thetastream.predicate.tokens import parse
    >>> print(find_misspelt(parse("a.x BETWEN b.lo AND b.hi")))
    [SYNTAX] 'BETWEN' is no operator; did you mean BETWEEN?
    >>> find_misspelt(parse("a.ts > b.ts - INTERVAL 1 DAY")) is None
    True
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens[:-1]):
        if (
            not n
            or token.kind != "VAR"
            or tokens[n - 1].kind not in OPERAND_ENDS
            or token.keyword in _OPERATORS
        ):
            continue
        following = tokens[n + 1]
        near = difflib.get_close_matches(token.keyword, _OPERATORS, 1, 0.7)
        if near and (following.kind in ("VAR", "IDENTIFIER", "NUMBER", "STRING", "L_PAREN")):
            start = token.start - tokens[0].start
            mark = Mark(phrase.text, start, start + len(token.text))
            return QueryError("SYNTAX", f"{token.text!r} is no operator; did you mean {near[0]}?", mark)
    return None
