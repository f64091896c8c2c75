"""Which expressions are total: they have a value, NULL at worst, for every tuple.

What units fold is computed for every tuple, matched or not, so it must not fail where the same
expression over matches would never have been evaluated: not in ANSI mode by a cast, a division or a text
that is no number, in no mode by a function that raises or is the user's. Sums, products and roundings that
leave their type are let pass.
"""

from collections.abc import Mapping

from thetastream.predicate import Phrase

_TEXT_CALLS = {
    *("COALESCE", "IF", "NULLIF", "IFNULL", "NVL", "ISNULL", "ISNOTNULL", "GREATEST", "LEAST"),
    *("UPPER", "LOWER", "TRIM", "LENGTH", "CONCAT", "IN", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE"),
}
_CALLS = _TEXT_CALLS | {
    *("ISNAN", "ABS", "ROUND", "SQRT", "EXP", "LN", "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"),
}
"""What may stand before a bracket."""
_DIVISIONS = {"SLASH", "MOD", "DIV"}
_CASTS = {"DCOLON", "L_BRACKET"}
_NUMERIC = {"NUMBER", "PLUS", "DASH", "STAR"}


def is_total(phrase: Phrase, types: Mapping[tuple[str, str], str], is_ansi: bool) -> bool:
    """Whether an expression surely has a value for every tuple.

    Parameters
    ----------
    phrase : Phrase
        With qualified columns.
    types : mapping of (alias, column) to Spark type
        As names are compared: lower case unless the session is case-sensitive.
    is_ansi : bool
        Whether casts and divisions may fail.

    Examples
    --------
    >>> from thetastream.predicate import parse
    >>> types = {("r", "x"): "double", ("r", "s"): "string"}
    >>> [is_total(parse(t), types, True) for t in ("r.x * 2 + r.x % 7", "1 / r.x", "upper(r.s)", "r.s > 5")]
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
        is_word = token.kind == "IDENTIFIER" or token.text[0].isalpha() or token.text[0] == "_"
        if is_word and token.kind != "FIELD" and after is not None and after.text == "(":
            if token.kind == "IDENTIFIER" or token.keyword not in calls:
                return False
        elif token.kind in refused:
            return False
        elif is_ansi and token.kind in _DIVISIONS:
            is_number = after is not None and after.text.isdecimal()
            if after is None or not is_number or int(after.text) == 0:
                return False
    # Text beside another type is cast to it.
    return not (is_ansi and holds_text and len(read) > 1)
