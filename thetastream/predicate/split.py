"""Splits a condition into conjuncts, and a conjunct into comparisons.

c1 AND c2 AND ...          ->  c1, c2, ...             (a condition with an OR on top is one conjunct)
f OP g                     ->  (f, OP, g)              OP one of = == < <= > >=
x BETWEEN lo AND hi        ->  (x, >=, lo), (x, <=, hi)
abs(f - g) <= c            ->  (abs, f, g, <=, c)      also c >= abs(f - g), and both with < or >
"""

from collections.abc import Iterator
from dataclasses import dataclass

from thetastream.predicate.tokens import OPERAND_ENDS, Phrase, Token

_OPERATORS = {"EQ": "=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""``f OP g`` is equivalent to ``g FLIPPED[OP] f``."""

# A conjunct with one of these on top has several comparisons, or none that an order of keys can answer.
_OPAQUE = {
    *("NOT", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "SIMILAR_TO", "ESCAPE", "NEQ", "NULLSAFE_EQ", "OR", "XOR"),
    *("AND", "DAMP", "EXISTS", "ANY", "SOME", "ALL", "ARROW", "DARROW", "FARROW", "DISTINCT", "COMMA"),
    *("ALIAS", "SEMICOLON", "BETWEEN", "SELECT", "OVER", "FILTER", "EXCEPT", "INTERSECT", "UNION"),
}
# Binary operators that bind less tightly than, or as tightly as, the minus of f - g.
_NOT_A_DIFFERENCE = _OPAQUE | set(_OPERATORS) | {"DPIPE", "AMP", "PIPE", "CARET", "LT_LT", "GT_GT"}
_CLAUSES = {"WHEN", "THEN", "ELSE", "FROM", "USING"}
"""Words inside CASE or a call that end an operand."""
_LITERAL_ENDS = {"RAW_STRING", "HEX_STRING", "TRUE", "FALSE", "NULL"}


@dataclass(frozen=True)
class Comparison:
    """``f OP g``, or ``abs(f - g) OP limit`` if ``limit`` is given; OP is then ``<`` or ``<=``.

    OP is one of = < <= > >=, or <=> for an equality of which NULL is a value.
    """

    f: Phrase
    op: str
    g: Phrase
    limit: Phrase | None = None


def split_conjuncts(phrase: Phrase) -> list[Phrase]:
    """Split a condition at every AND on top. Enclosing parentheses are removed first.

    >>> from thetastream.predicate.tokens import parse
    >>> text = "(a.x BETWEEN 1 AND 2 AND (b.y > 1 AND b.z = 'AND')) AND true"
    >>> [c.text for c in split_conjuncts(parse(text))]
    ['a.x BETWEEN 1 AND 2', 'b.y > 1', "b.z = 'AND'", 'true']
    >>> [c.text for c in split_conjuncts(parse("a.x = 1 AND b.y = 2 OR a.z"))]
    ['a.x = 1 AND b.y = 2 OR a.z']
    """
    phrase = phrase.bare()
    if {"OR", "XOR"} & set(phrase.kinds):
        return [phrase]
    parts = cut_at_and(phrase)
    if len(parts) == 1:
        return parts
    return [conjunct for part in parts for conjunct in split_conjuncts(part)]


def cut_at_and(phrase: Phrase) -> list[Phrase]:
    """Cut a phrase at every AND on top. The AND of a BETWEEN is not one of them."""
    parts, start, pending = [], 0, 0
    for n in phrase.top:
        kind = phrase.tokens[n].kind
        if kind == "BETWEEN":
            pending += 1
        elif kind == "AND" and pending:
            pending -= 1
        elif kind == "AND":
            parts.append(phrase.slice(start, n))
            start = n + 1
    parts.append(phrase.slice(start))
    # An AND without an operand is left as it is. Catalyst refuses it with its own message.
    return parts if all(parts) else [phrase]


def split_comparisons(conjunct: Phrase) -> list[Comparison]:
    """Return the comparisons of a conjunct: one, two for BETWEEN, or none if it is of another kind.

    >>> from thetastream.predicate.tokens import parse
    >>> [(c.f.text, c.op, c.g.text) for c in split_comparisons(parse("a.x BETWEEN b.lo AND b.hi + 1"))]
    [('a.x', '>=', 'b.lo'), ('a.x', '<=', 'b.hi + 1')]
    >>> [(c.f.text, c.g.text, c.op, c.limit.text) for c in split_comparisons(parse("5 >= abs(a.x - b.y)"))]
    [('a.x', 'b.y', '<=', '5')]
    >>> split_comparisons(parse("a.x <> b.y")), split_comparisons(parse("NOT a.x > b.y"))
    ([], [])
    """
    conjunct = conjunct.bare()
    kinds = conjunct.kinds
    if "BETWEEN" in kinds:
        return _split_between(conjunct)
    found = [n for n in conjunct.top if conjunct.tokens[n].kind in _OPERATORS]
    if len(found) != 1 or _OPAQUE & set(kinds):
        return []
    at = found[0]
    f, g = conjunct.slice(0, at).bare(), conjunct.slice(at + 1).bare()
    if not f or not g:
        return []
    return [make_comparison(f, _OPERATORS[conjunct.tokens[at].kind], g)]


def make_comparison(f: Phrase, op: str, g: Phrase) -> Comparison:
    """Make the comparison ``f OP g``, which may be one of ``abs`` with a limit."""
    return _split_absolute(f, op, g) or _split_absolute(g, FLIPPED[op], f) or Comparison(f, op, g)


def _split_between(conjunct: Phrase) -> list[Comparison]:
    kinds = list(conjunct.kinds)
    for kind in ("BETWEEN", "AND"):
        if kinds.count(kind) != 1:
            return []
        kinds.remove(kind)
    if (_OPAQUE | set(_OPERATORS)) & set(kinds):
        return []
    at = {conjunct.tokens[n].kind: n for n in conjunct.top}
    between, middle = at["BETWEEN"], at["AND"]
    x, low, high = (
        part.bare()
        for part in (
            conjunct.slice(0, between),
            conjunct.slice(between + 1, middle),
            conjunct.slice(middle + 1),
        )
    )
    if not (x and low and high) or low.tokens[0].keyword in ("SYMMETRIC", "ASYMMETRIC"):
        return []
    return [Comparison(x, ">=", low), Comparison(x, "<=", high)]


def _split_absolute(call: Phrase, op: str, limit: Phrase) -> Comparison | None:
    """Read ``abs(f - g) OP limit`` as a comparison. Return None if ``call`` has another form."""
    if op not in ("<", "<=") or len(call.tokens) < 6 or call.tokens[0].keyword != "ABS":
        return None
    argument = call.slice(1)
    if argument.tokens[0].text != "(" or argument.bare().tokens == argument.tokens:
        return None
    inner = argument.bare()
    minus = find_last_additive(inner)
    if minus is None or inner.tokens[minus].kind != "DASH":
        return None
    return Comparison(inner.slice(0, minus).bare(), op, inner.slice(minus + 1).bare(), limit)


def find_last_additive(phrase: Phrase) -> int | None:
    """Return the position of the last binary + or - on top, at which ``f - g`` splits, or None.

    >>> from thetastream.predicate.tokens import parse
    >>> find_last_additive(parse("-a.x * (b - 1)")) is None, find_last_additive(parse("a.x - -1"))
    (True, 3)
    """
    if _NOT_A_DIFFERENCE & set(phrase.kinds):
        return None
    return max(_find_binary_signs(phrase), default=None)


def find_last_product(phrase: Phrase) -> int | None:
    """Return the position of the last ``*``, ``/``, ``%`` or ``DIV`` on top. Return None if a sum is there.

    >>> from thetastream.predicate.tokens import parse
    >>> find_last_product(parse("a.x * 2 / 3")), find_last_product(parse("a.x * 2 + 3"))
    (5, None)
    """
    if _NOT_A_DIFFERENCE & set(phrase.kinds) or any(True for _ in _find_binary_signs(phrase)):
        return None
    found = (n for n in phrase.top if phrase.tokens[n].kind in ("STAR", "SLASH", "MOD", "DIV"))
    return max((n for n in found if 0 < n < len(phrase.tokens) - 1), default=None)


def find_difference_operands(phrase: Phrase) -> Iterator[tuple[Phrase, Phrase]]:
    """Yield both operands of each binary minus, at every depth. Types decide whether they are operands.

    >>> from thetastream.predicate.tokens import parse
    >>> text = "abs(a.t - (b.t)) < c.d OR a.x + 1 - b.y * 2 > extract(HOUR FROM a.t - b.t)"
    >>> [(f.text, g.text) for f, g in find_difference_operands(parse(text))]
    [('a.t', '(b.t)'), ('a.x + 1', 'b.y * 2'), ('a.t', 'b.t')]
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens):
        if token.kind != "DASH" or n == 0 or not _ends_operand(tokens[n - 1]):
            continue
        start, stop = n, n + 1
        while start > 0 and not _bounds_sum(tokens[start - 1], token.depth):
            start -= 1
        while stop < len(tokens) and not _bounds_sum(tokens[stop], token.depth):
            if _is_sign(tokens[stop], token.depth) and _ends_operand(tokens[stop - 1]):
                break
            stop += 1
        if start < n < stop - 1:
            yield phrase.slice(start, n), phrase.slice(n + 1, stop)


def _bounds_sum(token: Token, depth: int) -> bool:
    """Whether a sum at this depth ends before the token, or begins behind it."""
    if token.depth != depth:
        return token.depth < depth
    return token.kind in _NOT_A_DIFFERENCE or token.keyword in _CLAUSES


def _is_sign(token: Token, depth: int) -> bool:
    return token.depth == depth and token.kind in ("DASH", "PLUS")


def _ends_operand(token: Token) -> bool:
    return token.kind in OPERAND_ENDS | _LITERAL_ENDS and token.keyword not in ("DIV", "INTERVAL")


def _find_binary_signs(phrase: Phrase) -> Iterator[int]:
    for n in phrase.top:
        if phrase.tokens[n].kind not in ("DASH", "PLUS") or n == 0 or n == len(phrase.tokens) - 1:
            continue
        if _ends_operand(phrase.tokens[n - 1]):
            yield n
