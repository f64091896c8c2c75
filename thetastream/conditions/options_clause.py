"""Parses the clause OPTIONS (late = 'out/late', max_units = 8), which ends a statement."""

import ast

from thetastream.conditions.tokens import Phrase, make_error_at

Literal = str | int | float | bool


def read_options_clause(text: str, phrase: Phrase) -> tuple[dict[str, Literal], Phrase]:
    """Parse the clause OPTIONS at the end of a statement; return its values and the rest of the statement.

    Raises
    ------
    QueryError
        SYNTAX if the clause is not a list of names with literals.
    """
    last = phrase.top[-1]
    if phrase.tokens[last].text != ")":
        return {}, phrase
    opening = max(n for n in phrase.top if phrase.tokens[n].text == "(")
    if opening < 2 or phrase.tokens[opening - 1].keyword != "OPTIONS":
        return {}, phrase
    before = phrase.tokens[opening - 2]
    # A keyword such as GROUP BY is one token, and a name after a dot is no keyword.
    if before.kind != "FIELD" and before.keyword.split()[-1] in ("FROM", "JOIN", ",", "BY", "AS"):
        return {}, phrase
    values: dict[str, Literal] = {}
    for part in phrase.slice(opening + 1, last).split_at_commas():
        if len(part.tokens) < 3 or part.tokens[1].text != "=" or not part.tokens[0].may_be_name:
            start = (part.tokens or phrase.tokens[opening:])[0].start
            raise make_error_at(text, start, "OPTIONS lists names with literals: OPTIONS (max_units = 8)")
        name = part.tokens[0].name.casefold()
        if name in values:
            raise make_error_at(text, part.tokens[0].start, f"OPTIONS names {name!r} twice")
        values[name] = _read_literal(text, part.slice(2))
    return values, phrase.slice(0, opening - 1)


def _read_literal(text: str, phrase: Phrase) -> Literal:
    """Read a text, a number, or true or false."""
    words: dict[str, Literal] = {"TRUE": True, "FALSE": False}
    if phrase.text.upper() in words:
        return words[phrase.text.upper()]
    try:
        value = ast.literal_eval(phrase.text)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, str | int | float):
        what = f"the value of an option is a text, a number, true or false, not {phrase.text!r}"
        raise make_error_at(text, phrase.tokens[0].start, what)
    return value
