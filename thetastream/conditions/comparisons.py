"""Finds the comparisons of a conjunct in all the forms in which SQL writes them.

NOT f < g                          ->  f >= g            likewise for the other orders, and NOT f <> g
f <=> g                            ->  (f, <=>, g)       also IS NOT DISTINCT FROM and equal_null(f, g)
NOT (p OR q)                       ->  NOT p, NOT q
(p AND q) OR (p AND r)             ->  p, and the whole
"""

from collections.abc import Collection, Iterator, Sequence

from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import (
    Comparison,
    cut_at_and,
    make_comparison,
    split_comparisons,
    split_conjuncts,
)
from thetastream.conditions.tokens import Phrase, parse

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NOT_DISTINCT = ("IS", "NOT", "DISTINCT", "FROM")
_DISTINCT = ("IS", "DISTINCT", "FROM")
_LOOSE = {
    "AND",
    "OR",
    "XOR",
    "NOT",
    "IS",
    "IN",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "RLIKE",
    "COMMA",
    "ARROW",
    "ALIAS",
}
"""Tokens that bind less tightly than a comparison, or end an operand."""
_OPERATORS = {"EQ", "NEQ", "NULLSAFE_EQ", "LT", "LTE", "GT", "GTE"}


def find_comparisons(conjunct: Phrase) -> list[Comparison]:
    """Return comparisons that together mean the conjunct, or none if it has another form.

    >>> texts = ("a.x > b.y", "NOT a.x > b.y", "!(abs(a.x - b.y) >= 2)", "a.x IS NOT DISTINCT FROM b.y")
    >>> [(c.f.text, c.op, c.g.text) for text in texts for c in find_comparisons(parse(text))]
    [('a.x', '>', 'b.y'), ('a.x', '<=', 'b.y'), ('a.x', '<', 'b.y'), ('a.x', '<=>', 'b.y')]
    >>> [(c.f.text, c.op, c.g.text) for c in find_comparisons(parse("NOT abs(a.x - b.y) < 2"))]
    [('abs((a.x) - (b.y))', '>=', '2')]
    """
    phrase, is_negated = strip_not(conjunct)
    if not is_negated:
        return split_comparisons(phrase) or _find_equality(phrase, "NULLSAFE_EQ", _NOT_DISTINCT)
    unequal = _split_at(phrase, ("NEQ",))
    if unequal is not None:
        return [make_comparison(unequal[0], "=", unequal[1])]
    found = split_comparisons(phrase)
    if len(found) == 1 and found[0].op in _NEGATED:
        return [_negate(found[0])]
    return [] if found else _find_equality(phrase, None, _DISTINCT)


def _negate(comparison: Comparison) -> Comparison:
    """Negate a comparison of one of the four orders."""
    f, op, g, limit = comparison.f, _NEGATED[comparison.op], comparison.g, comparison.limit
    if limit is None:
        return make_comparison(f, op, g)
    return Comparison(parse(f"abs(({f.text}) - ({g.text}))"), op, limit)


def find_negated_pair(conjunct: Phrase) -> list[Comparison]:
    """Return two comparisons of which at least one is false if the conjunct is true. Return none if it has
    another form.

    >>> texts = ("a.x NOT BETWEEN b.y AND b.z", "NOT (a.x > b.y AND a.x < b.z)", "a.x < b.y OR b.z < a.x")
    >>> for text in texts:
    ...     print([f"{c.f.text} {c.op} {c.g.text}" for c in find_negated_pair(parse(text))])
    ['a.x >= b.y', 'a.x <= b.z']
    ['a.x > b.y', 'a.x < b.z']
    ['a.x >= b.y', 'b.z >= a.x']
    """
    phrase, is_negated = strip_not(conjunct)
    if is_negated:
        parts = cut_at_and(phrase)
        found = [one for part in parts for one in find_comparisons(part)]
        return found if len(found) == 2 and all(one.op in _NEGATED for one in found) else []
    kinds = [phrase.tokens[n].kind for n in phrase.top]
    if "BETWEEN" in kinds and kinds[kinds.index("BETWEEN") - 1] == "NOT":
        at = phrase.top[kinds.index("BETWEEN") - 1]
        found = split_comparisons(parse(f"{phrase.slice(0, at).text} {phrase.slice(at + 1).text}"))
        return found if len(found) == 2 else []
    parts = cut_at_or(phrase)
    found = [one for part in parts for one in find_comparisons(part)] if len(parts) == 2 else []
    is_pair = len(found) == 2 and all(one.op in _NEGATED and one.limit is None for one in found)
    return [_negate(one) for one in found] if is_pair else []


def expand_conjunct(conjunct: Phrase, aliases: Collection[str]) -> list[Phrase]:
    """Return conjuncts that together mean ``conjunct``, so that those that a join can use stand alone.

    A conjunct that has nothing to gain is returned as it is.

    >>> [part.text for part in expand_conjunct(parse("NOT (a.x > b.x OR a.y < b.y)"), "ab")]
    ['NOT (a.x > b.x)', 'NOT (a.y < b.y)']
    >>> [part.text for part in expand_conjunct(parse("a.x = b.x AND a.y OR b.z AND a.x = b.x"), "ab")]
    ['a.x = b.x', 'a.x = b.x AND a.y OR b.z AND a.x = b.x']
    >>> [part.text for part in expand_conjunct(parse("NOT (a.y AND b.z)"), "ab")]
    ['NOT (a.y AND b.z)']
    """
    if len(find_references(conjunct, aliases)) < 2:
        return [conjunct]
    phrase, is_negated = strip_not(conjunct)
    if is_negated:
        parts = cut_at_or(phrase)
        negated = [parse(f"NOT ({part.text})") for part in parts]
        if len(parts) == 1 or not any(_is_useful(part, aliases) for part in negated):
            return [conjunct]
        return [found for part in negated for found in expand_conjunct(part, aliases)]
    common = (part for part in _find_common(cut_at_or(phrase)) if _is_useful(part, aliases))
    return [*common, conjunct]


def strip_not(phrase: Phrase) -> tuple[Phrase, bool]:
    """Return a phrase without the NOTs that negate all of it, and whether their number is odd."""
    phrase, is_negated = phrase.bare(), False
    while phrase and phrase.tokens[0].kind == "NOT" and not {"OR", "XOR"} & set(phrase.kinds):
        if len(cut_at_and(phrase)) > 1:
            break
        phrase, is_negated = phrase.slice(1).bare(), not is_negated
    return phrase, is_negated


def cut_at_or(phrase: Phrase) -> list[Phrase]:
    """Cut a phrase at every OR on top. A phrase with an XOR on top stays whole."""
    kinds = [(n, phrase.tokens[n].kind) for n in phrase.top]
    if "XOR" in phrase.kinds:
        return [phrase]
    places = [n for n, kind in kinds if kind == "OR"]
    starts, stops = [0, *(n + 1 for n in places)], [*places, None]
    parts = [phrase.slice(start, stop).bare() for start, stop in zip(starts, stops, strict=True)]
    return parts if all(parts) else [phrase]


def _find_common(branches: Sequence[Phrase]) -> Iterator[Phrase]:
    """Yield the conjuncts that all branches of an OR have."""
    if len(branches) < 2:
        return
    first, *others = ([part.bare() for part in split_conjuncts(branch)] for branch in branches)
    texts = [{part.text for part in other} for other in others]
    yield from (part for part in first if all(part.text in other for other in texts))


def _is_useful(phrase: Phrase, aliases: Collection[str]) -> bool:
    return len(find_references(phrase, aliases)) < 2 or bool(find_comparisons(phrase))


def _find_equality(phrase: Phrase, operator: str | None, words: tuple[str, ...]) -> list[Comparison]:
    """Read an equality of which NULL is a value: ``f <=> g``, or with these words between f and g."""
    found = None if operator is None else _split_at(phrase, (operator,))
    found = found or _split_at(phrase, words) or (None if operator is None else _read_call(phrase))
    return [] if found is None else [Comparison(found[0], "<=>", found[1])]


def _split_at(phrase: Phrase, kinds: tuple[str, ...]) -> tuple[Phrase, Phrase] | None:
    """Split at the only run of these tokens on top. Return None if another operator is on top."""
    top = phrase.kinds
    starts = [n for n in range(len(top)) if top[n : n + len(kinds)] == kinds]
    if len(starts) != 1:
        return None
    rest = top[: starts[0]] + top[starts[0] + len(kinds) :]
    if (_LOOSE | _OPERATORS) & set(rest):
        return None
    at = phrase.top[starts[0]]
    f, g = phrase.slice(0, at).bare(), phrase.slice(at + len(kinds)).bare()
    return (f, g) if f and g else None


def _read_call(phrase: Phrase) -> tuple[Phrase, Phrase] | None:
    """Read the arguments of ``equal_null(f, g)``."""
    arguments = phrase.slice(1)
    is_call = phrase.tokens[0].keyword == "EQUAL_NULL" and arguments.bare().tokens != arguments.tokens
    parts = arguments.bare().split_at_commas() if is_call else []
    return (parts[0].bare(), parts[1].bare()) if len(parts) == 2 and all(parts) else None
