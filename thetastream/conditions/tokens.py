"""Reads SQL text as phrases. A phrase is a run of tokens that keep their positions in the text.

The tokenizer finds only the structure: strings, comments, brackets and keywords. SQL is never generated from
tokens. The text of a phrase is a slice of the text that the user wrote, and Catalyst reads this slice.

``read_call`` and ``read_cast`` read phrases that are calls of functions and casts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from thetastream.core.arguments import describe_given
from thetastream.core.errors import Mark, QueryError

_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = {")", "]", "}"}
OPERAND_ENDS = {"VAR", "FIELD", "IDENTIFIER", "NUMBER", "STRING", "R_PAREN", "R_BRACKET", "END"}
"""The kinds of tokens with which an operand may end. Two operands are never adjacent."""
STRINGS = {"STRING", "RAW_STRING"}
"""The kinds of tokens that are texts in quotes."""


@dataclass(frozen=True)
class Token:
    """One token: its kind (sqlglot's name), its position ``[start, end)`` and its depth of nesting.

    A bracket, CASE or END has the depth of the tokens around it. A name after a dot has the kind FIELD, even
    if it is also a keyword.
    """

    kind: str
    text: str
    start: int
    end: int
    depth: int

    @property
    def name(self) -> str:
        """The identifier without quotes."""
        quote = self.text[:1]
        if len(self.text) > 1 and quote in '`"':
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text

    @property
    def keyword(self) -> str:
        """The text in upper case, for comparison with keywords and function names."""
        return self.text.upper()

    @property
    def may_be_name(self) -> bool:
        """Whether the token is a word or a text in backquotes. Both may be names."""
        return self.text[0].isalpha() or self.text[0] in "_`"


@dataclass(frozen=True)
class Phrase:
    """A slice of the text whose tokens are balanced: every bracket in it is closed in it."""

    source: str
    tokens: tuple[Token, ...]

    @cached_property
    def text(self) -> str:
        """The text from the first token to the last, as the user wrote it.

        It includes comments between them.
        """
        return self.source[self.tokens[0].start : self.tokens[-1].end] if self.tokens else ""

    @cached_property
    def top(self) -> tuple[int, ...]:
        """Positions of the top tokens, which are outside all brackets and CASEs of this phrase."""
        outer = min((token.depth for token in self.tokens), default=0)
        return tuple(n for n, token in enumerate(self.tokens) if token.depth == outer)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the top tokens."""
        return tuple(self.tokens[n].kind for n in self.top)

    def slice(self, start: int, stop: int | None = None) -> "Phrase":
        """Return the tokens ``[start, stop)`` as a phrase."""
        return Phrase(self.source, self.tokens[start:stop])

    def split_at_commas(self) -> "list[Phrase]":
        """Split a list into its parts.

        >>> [part.text for part in parse("a.x, f(b.y, 1)").split_at_commas()]
        ['a.x', 'f(b.y, 1)']
        """
        commas = [n for n in self.top if self.tokens[n].text == ","]
        starts = [0, *(n + 1 for n in commas)]
        return [self.slice(start, stop) for start, stop in zip(starts, [*commas, None], strict=True)]

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens)

    def bare(self) -> "Phrase":
        """Return the phrase without the parentheses that enclose all of it.

        >>> parse("((a.x) )").bare().text
        'a.x'
        >>> parse("(a.x) + (b.y)").bare().text
        '(a.x) + (b.y)'
        """
        phrase = self
        while (
            len(phrase.tokens) > 2
            and phrase.tokens[0].text == "("
            and phrase.tokens[-1].text == ")"
            and all(token.depth > phrase.tokens[0].depth for token in phrase.tokens[1:-1])
        ):
            phrase = phrase.slice(1, -1)
        return phrase


def parse(text: str) -> Phrase:
    """Read the tokens of a condition.

    Raises
    ------
    QueryError
        SYNTAX if the condition is empty, or if a bracket or quote is not closed. The error names the
        position.

    Examples
    --------
    >>> [token.kind for token in parse("a.x > 1 -- AND more")]
    ['VAR', 'DOT', 'FIELD', 'GT', 'NUMBER']
    """
    phrase = tokenize(text)
    if not phrase:
        raise QueryError("SYNTAX", f'the condition is empty: {text!r}; write on="true" for a cross join')
    return phrase


def tokenize(text: str) -> Phrase:
    """Read the tokens of any SQL text. It raises SYNTAX as ``parse`` does, but accepts an empty text."""
    if not isinstance(text, str):
        raise QueryError("SYNTAX", f"SQL must be a text, not {describe_given(text)}")
    return _tokenize(text)


@lru_cache(maxsize=1024)
def _tokenize(text: str) -> Phrase:
    """Read the tokens of a text. A plan reads some texts, such as the forms of measures, again and again."""
    raw = _read_tokens(text)
    tokens: list[Token] = []
    opened: list[tuple[str, int]] = []
    for item in raw:
        if tokens and item.start < tokens[-1].end:
            continue  # 5L is read as three tokens at one position: 5L, ::, BIGINT
        end = item.end + 1
        written, kind = text[item.start : end], item.token_type.name
        if tokens and tokens[-1].kind == "DOT" and (written[0].isalnum() or written[0] in '_`"'):
            kind = "FIELD"
        depth = len(opened)
        if kind != "FIELD" and (written in _OPEN or kind == "CASE"):
            opened.append((_OPEN.get(written, "END"), item.start))
        elif written in _CLOSE or (kind == "END" and opened and opened[-1][0] == "END"):
            depth -= 1
            _close(text, opened, "END" if kind == "END" else written, item.start)
        tokens.append(Token(kind, written, item.start, end, depth))
    if opened:
        expected, start = opened[-1]
        raise make_error_at(
            text, start, f"{text[start : start + 4].split()[0]!r} has no matching {expected!r}"
        )
    return Phrase(text, tuple(tokens))


def _read_tokens(text: str) -> list[Any]:
    """Read sqlglot's tokens, the text behind a command included.

    sqlglot reads the text behind a first word such as EXPLAIN or SHOW as one string. Therefore this word is
    replaced by an ordinary word of the same length. Tokens are cut out of the user's text by position.
    """
    from sqlglot.dialects.spark import Spark  # imported when the first text is read, because it takes 0.1 s
    from sqlglot.errors import TokenError

    read = text
    while True:
        try:
            tokens = Spark().tokenize(read)
        except TokenError as error:
            raise QueryError("SYNTAX", f"{str(error).splitlines()[0]}, in {text!r}") from None
        command = next((token for token in tokens if token.token_type in Spark.Tokenizer.COMMANDS), None)
        if command is None:
            return tokens
        end = command.end + 1
        read = read[: command.start] + "_" * (end - command.start) + read[end:]


def _close(text: str, opened: list[tuple[str, int]], written: str, start: int) -> None:
    if not opened:
        raise make_error_at(text, start, f"{written!r} closes nothing")
    expected, _ = opened.pop()
    if written != expected:
        raise make_error_at(text, start, f"{written!r} stands where {expected!r} is due")


def make_error_at(text: str, start: int, what: str, condition: str = "SYNTAX") -> QueryError:
    """Make an error that shows its position in the text with a caret.

    >>> print(make_error_at("a.x >\\n (b.y", 7, "'(' has no matching ')'"))
    [SYNTAX] '(' has no matching ')', at line 2, column 2:
       (b.y
       ^
    """
    lines = text.split("\n")
    before = text[:start].split("\n")
    line, column = len(before), len(before[-1]) + 1
    shown = lines[line - 1]
    # Tabs are kept in the line of the caret, so that both lines are indented equally.
    blank = "".join("\t" if character == "\t" else " " for character in before[-1])
    message = f"{what}, at line {line}, column {column}:\n  {shown}\n  {blank}^"
    return QueryError(condition, message, Mark(text, start, start))


def read_call(phrase: Phrase) -> tuple[str, list[Phrase]] | None:
    """Return the name of a function in upper case and its arguments; None if the phrase is no call.

    >>> from thetastream.conditions.tokens import parse
    >>> name, arguments = read_call(parse("date_diff(b.ts, (a.ts))"))
    >>> name, [argument.text for argument in arguments]
    ('DATE_DIFF', ['b.ts', 'a.ts'])
    >>> print(read_call(parse("f(a.x) + 1")))
    None
    """
    arguments = phrase.slice(1)
    if len(phrase.tokens) < 4 or not phrase.tokens[0].may_be_name or phrase.tokens[1].text != "(":
        return None
    inner = arguments.slice(1, -1)
    if arguments.bare().tokens == arguments.tokens or not inner:
        return None
    return phrase.tokens[0].keyword, [part.bare() for part in inner.split_at_commas()]


def read_cast(phrase: Phrase) -> tuple[Phrase, str] | None:
    """Return the value and the type of ``CAST(value AS type)`` or ``value::type``; None for another form.

    >>> from thetastream.conditions.tokens import parse
    >>> casts = [read_cast(parse(text)) for text in ("CAST(a.ts AS LONG)", "(a.ts)::date")]
    >>> [(value.text, type_) for value, type_ in casts]
    [('a.ts', 'LONG'), ('a.ts', 'date')]
    """
    casts = [n for n in phrase.top if phrase.tokens[n].kind == "DCOLON"]
    if casts:
        at = casts[-1]
        value, type_ = phrase.slice(0, at).bare(), phrase.slice(at + 1)
        return (value, type_.text) if value and len(type_.tokens) == 1 else None
    call = read_call(phrase)
    if call is None or call[0] not in ("CAST", "TRY_CAST") or len(call[1]) != 1:
        return None
    inner = call[1][0]
    words = [n for n in inner.top if inner.tokens[n].kind == "ALIAS"]
    return (inner.slice(0, words[0]).bare(), inner.slice(words[0] + 1).text) if words else None
