"""The canonical text of a condition: equal for texts that mean the same and differ only in how they are
written.

Spaces, comments, the case of names and keywords, enclosing parentheses, the direction of a comparison, and
zeros at the end of a number that is compared do not matter.
"""

import re

from thetastream.predicate.split import FLIPPED, split_comparisons
from thetastream.predicate.tokens import Phrase, Token, tokenize

_SPELLINGS = {"==": "=", "!=": "<>"}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_FRACTION = re.compile(r"(\d*\.\d+?)0+$")


def canonicalize(text: str, is_case_sensitive: bool = False) -> str:
    """Write a SQL condition or expression in its canonical form. The result is compared, and never run.

    >>> canonicalize("abs( a.x-b.x )  <= 0.50") == canonicalize("(0.5 >= ABS(A.x - `b`.x)) -- near")
    True
    >>> canonicalize("a.x BETWEEN b.lo AND b.hi") == canonicalize("(a.X between b.lo and b.hi)")
    True
    >>> canonicalize("a.s = 'X '") == canonicalize("a.s = 'x '")
    False
    """
    phrase = tokenize(text).bare()
    comparisons = split_comparisons(phrase) if phrase else []
    if not comparisons:
        return _write(phrase, is_case_sensitive)
    found = []
    for comparison in comparisons:
        f, op, g = _write_side(comparison.f, is_case_sensitive), comparison.op, comparison.g
        right = _write_side(g, is_case_sensitive)
        if comparison.limit is not None:
            f, right = f"abs({f} - {right})", _write_side(comparison.limit, is_case_sensitive)
        if op in (">", ">=") or (op == "=" and right < f):
            f, op, right = right, FLIPPED[op], f
        found.append(f"{f} {op} {right}")
    return " AND ".join(sorted(found))


def _write_side(phrase: Phrase, is_case_sensitive: bool) -> str:
    """Write one side of a comparison. As a side of its own, 0.50 compares as 0.5 does with any type."""
    text = _write(phrase, is_case_sensitive)
    if [token.kind for token in phrase] in (["NUMBER"], ["DASH", "NUMBER"]):
        return _FRACTION.sub(r"\1", text)
    return text


def _write(phrase: Phrase, is_case_sensitive: bool) -> str:
    return " ".join(_write_token(token, is_case_sensitive) for token in phrase)


def _write_token(token: Token, is_case_sensitive: bool) -> str:
    text = token.text
    if token.kind in ("VAR", "FIELD", "IDENTIFIER"):
        text = token.name if _PLAIN_NAME.fullmatch(token.name) else text
        return text if is_case_sensitive else text.casefold()
    if "'" in text or '"' in text:
        return text
    return _SPELLINGS.get(text, text if is_case_sensitive else text.casefold())
