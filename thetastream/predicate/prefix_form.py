"""Rewrites the text of a Spark Column into SQL.

Spark prints a Column in prefix form, and literals without their types:

    <=(abs(-(a.x, b.y)), 0.5)   ->   abs(a.x - b.y) <= 0.5D   or   abs(a.x - b.y) <= 0.5   or ...

A literal may be read in several ways, so this module returns candidates. The caller asks Catalyst which of
them has the meaning of the Column.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice, product

from thetastream.predicate.tokens import Phrase, Token, tokenize

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


def write_candidates(printed: str) -> Iterator[str]:
    """Write SQL texts that a Column may stand for, the likeliest first.

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
