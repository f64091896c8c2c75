"""Splits a condition into conjuncts, and a conjunct into comparisons.

    c1 AND c2 AND ...          ->  c1, c2, ...             (a condition with an OR on top is one conjunct)
    f OP g                     ->  (f, OP, g)              OP one of = == < <= > >=
    x BETWEEN lo AND hi        ->  (x, >=, lo), (x, <=, hi)
    abs(f - g) <= c            ->  (abs, f, g, <=, c)      also c >= abs(f - g), and both with < or >

Texts that mean the same and differ only in how they are written have one canonical text (``canonicalize``).
The text of a Spark Column, which is in prefix form, becomes SQL (``write_candidates``).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice, product

from thetastream.conditions.tokens import OPERAND_ENDS, Phrase, Token, tokenize

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
_SPELLINGS = {"==": "=", "!=": "<>"}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_FRACTION = re.compile(r"(\d*\.\d+?)0+$")
MOST_CANDIDATES = 64
"""The number of candidates that are returned at most."""
_BINARY = {
    **{name: name for name in ("<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")},
    "=": "=",
    "==": "=",
    "AND": "AND",
    "OR": "OR",
}
_UNARY = {"!": "NOT", "NOT": "NOT", "NEGATIVE": "-", "-": "-"}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SPAN = re.compile(r"PT(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?")
_LITERAL = re.compile(rf"'(?:[^'\\]|\\.)*'|(?<![\w.]){_STAMP.pattern}|(?<![\w.]){_DATE.pattern}(?![\w-])")


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

    >>> from thetastream.conditions.tokens import parse
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

    >>> from thetastream.conditions.tokens import parse
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

    >>> from thetastream.conditions.tokens import parse
    >>> find_last_additive(parse("-a.x * (b - 1)")) is None, find_last_additive(parse("a.x - -1"))
    (True, 3)
    """
    if _NOT_A_DIFFERENCE & set(phrase.kinds):
        return None
    return max(_find_binary_signs(phrase), default=None)


def split_sum(phrase: Phrase) -> list[Phrase]:
    """Split a sum at every binary + on top. Return the phrase alone if it is no sum, or has a minus on top.

    >>> from thetastream.conditions.tokens import parse
    >>> [term.text for term in split_sum(parse("f(a + 1) + (b.y + c)"))]
    ['f(a + 1)', 'b.y', 'c']
    >>> [term.text for term in split_sum(parse("a + b - c"))]
    ['a + b - c']
    """
    phrase = phrase.bare()
    sign = find_last_additive(phrase)
    if sign is None or phrase.tokens[sign].kind != "PLUS":
        return [phrase]
    return [*split_sum(phrase.slice(0, sign)), *split_sum(phrase.slice(sign + 1))]


def find_last_product(phrase: Phrase) -> int | None:
    """Return the position of the last ``*``, ``/``, ``%`` or ``DIV`` on top. Return None if a sum is there.

    >>> from thetastream.conditions.tokens import parse
    >>> find_last_product(parse("a.x * 2 / 3")), find_last_product(parse("a.x * 2 + 3"))
    (5, None)
    """
    if _NOT_A_DIFFERENCE & set(phrase.kinds) or any(True for _ in _find_binary_signs(phrase)):
        return None
    found = (n for n in phrase.top if phrase.tokens[n].kind in ("STAR", "SLASH", "MOD", "DIV"))
    return max((n for n in found if 0 < n < len(phrase.tokens) - 1), default=None)


def find_difference_operands(phrase: Phrase) -> Iterator[tuple[Phrase, Phrase]]:
    """Yield both operands of each binary minus, at every depth. Types decide whether they are operands.

    >>> from thetastream.conditions.tokens import parse
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


def canonicalize(text: str, is_case_sensitive: bool = False) -> str:
    """Write a SQL condition or expression in its canonical form. The result is compared, and never run.

    It is equal for texts that mean the same and differ only in how they are written. Spaces, comments, the
    case of names and keywords, enclosing parentheses, the direction of a comparison, and zeros at the end of
    a number that is compared do not matter.

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


def write_candidates(printed: str) -> Iterator[str]:
    """Write SQL texts that a Column may stand for, the likeliest first.

    Spark prints a Column in prefix form, and literals without their types. So ``<=(abs(-(a.x, b.y)), 0.5)``
    may be ``abs(a.x - b.y) <= 0.5D`` or ``abs(a.x - b.y) <= 0.5``. The caller asks Catalyst which of the
    candidates has the meaning of the Column.

    Parameters
    ----------
    printed : str
        ``str(column)`` without ``Column<'`` and ``'>``.

    Raises
    ------
    QueryError
        SYNTAX if the text has brackets or quotes that are not closed.

    Examples
    --------
    >>> next(write_candidates("and(>=(a.x, -(b.y, 1)), !(=(a.s, 'q')))"))
    "(a.x >= (b.y - 1)) AND (NOT (a.s = 'q'))"
    >>> list(write_candidates("<(a.x, 0.5)"))[:2]
    ['a.x < 0.5D', 'a.x < 0.5']
    >>> next(write_candidates("<(2026-01-05 09:30:00.0, a.ts)"))
    "TIMESTAMP'2026-01-05 09:30:00.0' < a.ts"
    >>> next(write_candidates(">(PT1H5M, -(a.ts, b.ts))"))
    "INTERVAL '0 01:05:00.000000' DAY TO SECOND > (a.ts - b.ts)"
    """
    quoted = _LITERAL.sub(_quote_stamp, printed)
    phrase = tokenize(quoted)
    pieces = list(_Writer(phrase).write(0, len(phrase.tokens)))
    seen: set[str] = set()
    for choice in islice(product(*pieces), MOST_CANDIDATES):
        text = "".join(choice)
        if text not in seen:
            seen.add(text)
            yield text


def _quote_stamp(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("'"):
        return text
    return f"TIMESTAMP'{text}'" if _STAMP.fullmatch(text) else f"DATE'{text}'"


def _write_interval(hours: Decimal, minutes: Decimal, seconds: Decimal) -> str:
    """Write a span of Java's ``Duration`` as an interval of the type that Spark gives to it."""
    total_us = int(((hours * 60 + minutes) * 60 + seconds) * 1_000_000)
    rest, micros = divmod(abs(total_us), 1_000_000)
    sign = "-" if total_us < 0 else ""
    return (
        f"INTERVAL '{sign}{rest // 86_400} {rest // 3600 % 24:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        f".{micros:06}' DAY TO SECOND"
    )


class _Writer:
    """Writes tokens in prefix form as pieces of SQL; each piece is a list of alternatives."""

    def __init__(self, phrase: Phrase) -> None:
        self._source = phrase.source
        self._tokens = phrase.tokens

    def write(self, start: int, stop: int, is_operand: bool = False) -> Iterator[Sequence[str]]:
        """Yield the pieces of the tokens [start, stop). An operand that is an operation gets parentheses."""
        n = start
        if stop - start == 1 or not any(token.text == "(" for token in self._tokens[start:stop]):
            yield self._write_leaf(start, stop)
            return
        while n < stop:
            close = self._find_close(n + 1) if n + 1 < stop and self._tokens[n + 1].text == "(" else None
            if close is None or not self._is_prefix(n, start):
                blank = self._blank_before(n) if n > start else ""
                yield [blank + self._tokens[n].text]
                n += 1
                continue
            blank = self._blank_before(n) if n > start else ""
            is_call = self._tokens[n].text.upper() not in {*_BINARY, *_UNARY}
            needs_brackets = is_operand and not is_call and n == start and close == stop - 1
            yield [blank + "(" if needs_brackets else blank]
            yield from self._write_operation(self._tokens[n], n + 2, close)
            yield [")" if needs_brackets else ""]
            n = close + 1

    def _write_operation(self, operator: Token, start: int, stop: int) -> Iterator[Sequence[str]]:
        arguments = list(self._split(start, stop))
        name = operator.text.upper()
        if len(arguments) == 2 and name in _BINARY:
            yield from self.write(*arguments[0], is_operand=True)
            yield [f" {_BINARY[name]} "]
            yield from self.write(*arguments[1], is_operand=True)
            return
        if len(arguments) == 1 and name in _UNARY:
            yield [_UNARY[name] + " "]
            yield from self.write(*arguments[0], is_operand=True)
            return
        yield [operator.text + "("]
        for number, argument in enumerate(arguments):
            yield [", " if number else ""]
            yield from self.write(*argument)
        yield [")"]

    def _write_leaf(self, start: int, stop: int) -> Sequence[str]:
        """Return the ways to read an argument without brackets: a column, a literal or a text."""
        text = self._source[self._tokens[start].start : self._tokens[stop - 1].end]
        first = self._tokens[start]
        as_text = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        span = _SPAN.fullmatch(text)
        if span is not None and any(span.groups()):
            return [_write_interval(*(Decimal(part or 0) for part in span.groups())), as_text]
        if re.fullmatch(r"-?\d*\.\d*(E-?\d+)?", text):
            return [f"{text}D", text]
        is_clear = first.kind in ("STRING", "IDENTIFIER", "NUMBER", "INTERVAL") or text[0] == "-"
        # Spark Connect prints texts without quotes.
        return [text] if is_clear or re.fullmatch(r"\w+(\.(\w+|`[^`]+`))+", text) else [text, as_text]

    def _is_prefix(self, n: int, start: int) -> bool:
        """Whether the token is an operator or a function in front of its arguments."""
        token = self._tokens[n]
        if token.may_be_name:
            return True
        before = self._tokens[n - 1] if n > start else None
        return before is None or before.kind not in {"VAR", "FIELD", "IDENTIFIER", "NUMBER", "STRING", "END"}

    def _split(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the arguments between two brackets as ranges of tokens."""
        if start == stop:
            return
        depth = min(token.depth for token in self._tokens[start:stop])
        first = start
        for n in range(start, stop):
            if self._tokens[n].text == "," and self._tokens[n].depth == depth:
                yield first, n
                first = n + 1
        yield first, stop

    def _find_close(self, opening: int) -> int:
        depth = self._tokens[opening].depth
        return next(
            n
            for n in range(opening + 1, len(self._tokens))
            if self._tokens[n].text == ")" and self._tokens[n].depth == depth
        )

    def _blank_before(self, n: int) -> str:
        return self._source[self._tokens[n - 1].end : self._tokens[n].start]
