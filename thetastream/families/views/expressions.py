"""Reads expressions of a grouped statement: their names, and the stream that can compute them.

Finds expressions that never fail: they have a value, possibly NULL, for every tuple.

Expressions that units fold are computed for every tuple, even for tuples without a match. They must not raise
an error for a tuple without a match, because Spark's own query would not evaluate them for it. In ANSI mode,
a cast, a division, or a text that is not a number may raise an error. In any mode, user functions and some
other functions may raise an error. Sums, products and roundings that overflow their type are accepted.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from thetastream.aggregates import NotFoldable
from thetastream.conditions import Phrase
from thetastream.conditions.names import find_references, qualify
from thetastream.conditions.refused import find_refused
from thetastream.conditions.tokens import Token, parse
from thetastream.families.base import FinalJoin
from thetastream.lowering.query import Resolver, Stream

_SUBQUERIES = {"SELECT", "WITH", "VALUES", "TABLE", "FROM"}
_BEFORE_STRUCT = {",", "(", "AS", "SELECT"}
"""Tokens before a bracket that makes a struct of unnamed fields if it holds a comma: (a, b)."""


class Expressions:
    """Expressions over the inputs of a join. A method raises ``NotFoldable`` if one cannot be folded.

    Parameters
    ----------
    given : sequence of Stream
        The streams whose columns the statement names.
    join : FinalJoin
        The join whose units fold. Its inputs are the streams that expressions read.
    resolver : Resolver
        It resolves expressions over these inputs.
    result_time : str or None
        The name of a match's latest event time, if the streams have event times.
    """

    def __init__(
        self, given: Sequence[Stream], join: FinalJoin, resolver: Resolver, result_time: str | None
    ) -> None:
        self.aliases = [stream.alias for stream in join.streams]
        self.resolver = resolver
        self._relocate = join.relocate
        self._fold: Callable[[str], str] = str if resolver.is_case_sensitive else str.casefold
        self._result_time = result_time
        self._columns = {
            # A bare result_time is the time of the result, even if a stream has a column of this name.
            stream.alias: [name for name, _ in stream.types if name.casefold() != result_time]
            for stream in given
        }
        self._types = {
            (self._fold(stream.alias), self._fold(name)): type_
            for stream in join.streams
            for name, type_ in stream.types
        }

    def qualify(self, phrase: Phrase) -> Phrase:
        """Return the phrase over the inputs of the join, with the alias before every column."""
        for token in phrase.tokens:
            if token.keyword == "OVER" and token.kind != "FIELD":
                raise NotFoldable("a window function reads other rows")
            if token.text == "->":
                raise NotFoldable("a lambda binds names")
        pairs = list(pairwise(phrase.tokens))
        if any(token.text == "(" and after.keyword in _SUBQUERIES for token, after in pairs):
            raise NotFoldable("a subquery has names of its own")
        if any(_makes_struct(phrase.tokens, n) for n in range(len(pairs))):
            raise NotFoldable("a struct names fields by the text of its arguments")
        return self._relocate(qualify(parse(phrase.text), self._columns, self._fold))

    def refuse_shadowed(self, items: Phrase, having: Phrase) -> None:
        """Raise if a name in HAVING is both a column and a name of the select list.

        In HAVING, the name of the select list would have precedence.
        """
        named = {self._fold(part.tokens[-1].name) for part in items.split_at_commas() if len(part.tokens) > 1}
        columns = {self._fold(name) for names in self._columns.values() for name in names}
        for n, token in enumerate(having.tokens):
            is_bare = token.kind != "FIELD" and having.slice(n + 1, n + 2).text != "."
            if is_bare and self._fold(token.name) in named & columns:
                raise NotFoldable(f"{token.text} in HAVING is a column and a name of the select list")

    def find_stream(self, *phrases: Phrase) -> str:
        """Return the alias of the one stream that the phrases read. It is the first if they read none."""
        read: dict[str, None] = {}
        for phrase in phrases:
            for problem in find_refused(phrase):
                raise NotFoldable(problem.message)
            for n, token in enumerate(phrase.tokens):
                is_field = n > 0 and phrase.tokens[n - 1].text == "."
                if self.is_result_time(token) and not is_field:
                    raise NotFoldable(f"{phrase.text} reads the result time, which both streams make")
            if not never_fails(phrase, self._types, self.resolver.is_ansi):
                raise NotFoldable(f"{phrase.text} may fail for a tuple that has no match")
            read |= dict.fromkeys(find_references(phrase, self.aliases))
        if len(read) > 1:
            raise NotFoldable(f"{' and '.join(phrase.text for phrase in phrases)} read both streams")
        return next(iter(read), self.aliases[0])

    def is_result_time(self, token: Token) -> bool:
        """Whether a token is the name of the result time."""
        return self._result_time is not None and token.name.casefold() == self._result_time

    def list_words(self, phrase: Phrase) -> tuple[str, ...]:
        """Return the tokens of a phrase in the form in which they are compared."""
        return tuple(
            token.text if token.kind in ("STRING", "RAW_STRING", "NUMBER") else self._fold(token.name)
            for token in phrase.tokens
        )


def _makes_struct(tokens: Sequence[Token], n: int) -> bool:
    """Whether the bracket behind token ``n`` makes a struct: ``struct(a)``, ``(a, b)``."""
    if tokens[n + 1].text != "(":
        return False
    if tokens[n].keyword == "STRUCT":
        return True
    inside = tokens[n + 2 : find_closing(tokens, n + 1)]
    holds_comma = any(token.text == "," and token.depth == tokens[n + 1].depth + 1 for token in inside)
    return tokens[n].keyword in _BEFORE_STRUCT and holds_comma


def find_closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the bracket that closes the one at ``opening``."""
    depth = tokens[opening].depth
    return next(
        n for n in range(opening + 1, len(tokens)) if tokens[n].text == ")" and tokens[n].depth == depth
    )


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
    >>> from thetastream.conditions import parse
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

    >>> from thetastream.conditions import parse
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
