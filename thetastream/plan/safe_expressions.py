"""Finds expressions that never fail: they have a value, possibly NULL, for every tuple.

Expressions that units fold are computed for every tuple, even for tuples without a match. They must not raise
an error for a tuple without a match, because Spark's own query would not evaluate them for it. In ANSI mode,
a cast, a division, or a text that is not a number may raise an error. In any mode, user functions and some
other functions may raise an error. Sums, products and roundings that overflow their type are accepted.
"""

from collections.abc import Mapping
from itertools import pairwise

from thetastream.predicate import Phrase
from thetastream.predicate.tokens import Token

_TEXT_CALLS = {
    *("COALESCE", "IF", "NULLIF", "IFNULL", "NVL", "ISNULL", "ISNOTNULL", "GREATEST", "LEAST"),
    *("UPPER", "LOWER", "TRIM", "LENGTH", "CONCAT", "IN", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE"),
}
_CALLS = _TEXT_CALLS | {
    *("ISNAN", "ABS", "ROUND", "SQRT", "EXP", "LN", "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"),
    *("EXTRACT", "UNIX_MICROS"),
}
"""Words that may stand before a bracket in an expression that never fails."""
_DIVISIONS = {"SLASH", "MOD", "DIV"}
_CASTS = {"DCOLON", "L_BRACKET"}
_NUMERIC = {"NUMBER", "PLUS", "DASH", "STAR"}


def never_fails(phrase: Phrase, types: Mapping[tuple[str, str], str], is_ansi: bool) -> bool:
    """Whether an expression certainly has a value for every tuple.

    Parameters
    ----------
    phrase : Phrase
        The expression, with qualified columns.
    types : mapping of (alias, column) to Spark type
        The names in the form in which they are compared: lower case unless the session is case-sensitive.
    is_ansi : bool
        Whether casts and divisions may fail.

    Examples
    --------
    >>> from thetastream.predicate import parse
    >>> types = {("r", "x"): "double", ("r", "s"): "string"}
    >>> texts = ("r.x * 2 + r.x % 7", "1 / r.x", "upper(r.s)", "r.s > 5")
    >>> [never_fails(parse(text), types, is_ansi=True) for text in texts]
    [True, False, True, False]
    """
    tokens = phrase.tokens
    read = {
        types.get((alias.name, field.name)) or types.get((alias.name.casefold(), field.name.casefold()))
        for alias, field in zip(tokens, tokens[2:], strict=False)
        if field.kind == "FIELD"
    }
    holds_text = "string" in read
    calls = _TEXT_CALLS if holds_text else _CALLS
    refused = {*_CASTS, *(_NUMERIC if holds_text else ())} if is_ansi else set()
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if _is_word(token) and after is not None and after.text == "(":
            if token.kind == "IDENTIFIER" or token.keyword not in calls:
                return False
        elif token.kind in refused:
            return False
        elif is_ansi and token.kind in _DIVISIONS:
            is_number = after is not None and after.text.isdecimal()
            if after is None or not is_number or int(after.text) == 0:
                return False
    # If a text is combined with another type, Spark casts it to that type.
    return not (is_ansi and holds_text and len(read) > 1)


def has_plain_calls(phrase: Phrase) -> bool:
    """Whether a phrase calls only functions that give one value for each tuple, and the same one each time.

    >>> from thetastream.predicate import parse
    >>> [has_plain_calls(parse(text)) for text in ("year(r.day) + 1", "explode(r.a)", "rand()", "sum(r.x)")]
    [True, False, False, False]
    """
    return all(
        token.keyword in _CALLS and token.kind != "IDENTIFIER"
        for token, after in pairwise(phrase.tokens)
        if after.text == "(" and _is_word(token)
    )


def _is_word(token: Token) -> bool:
    is_word = token.kind == "IDENTIFIER" or token.text[0].isalpha() or token.text[0] == "_"
    return is_word and token.kind != "FIELD"
