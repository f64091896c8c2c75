"""Matches expressions with forms: expressions in which ``left`` and ``right`` stand for operands.

form          bit_count(left ^ right)
expression    bit_count(a.x ^ (b.y + 1))          left is a.x, and right is (b.y + 1)
"""

from itertools import pairwise

from thetastream.conditions.phrases import canonicalize
from thetastream.conditions.tokens import Phrase, Token, parse

OPERANDS = ("left", "right")
_FENCES = ("(", ",", ")", "")
"""What stands beside an operand that is an argument. Beside an operator, an operand must be closed."""


def match_form(phrase: Phrase, form: str) -> tuple[Phrase, Phrase] | None:
    """Return the operands of an expression of this form, or None if it has another form.

    Operands of several places must be equal there.

    >>> form = "size(array_intersect(left, right)) / size(array_union(left, right))"
    >>> text = "SIZE(array_intersect(a.x, b.y)) / size( array_union((A.x), b.y) )"
    >>> [operand.text for operand in match_form(parse(text), form)]
    ['a.x', 'b.y']
    >>> print(match_form(parse("bit_count(a.x | 1 ^ b.y)"), "bit_count(left ^ right)"))
    None
    """
    found = _match(phrase.bare(), parse(form).tokens, {})
    return None if found is None else (found["left"], found["right"])


def _match(
    phrase: Phrase, pattern: tuple[Token, ...], operands: dict[str, Phrase], before: str = ""
) -> dict[str, Phrase] | None:
    """Match all of a phrase with a pattern; ``before`` is the last text that was matched."""
    if not pattern:
        return None if phrase else operands
    if not phrase:
        return None
    first, rest = pattern[0], pattern[1:]
    if first.text not in OPERANDS:
        if phrase.tokens[0].keyword != first.keyword:
            return None
        return _match(phrase.slice(1), rest, operands, first.text)
    is_fenced = {before, rest[0].text if rest else ""} <= set(_FENCES)
    depth = phrase.tokens[0].depth
    for end in range(1, len(phrase.tokens) + 1):
        last = phrase.tokens[end - 1]
        if last.depth < depth:
            return None
        if last.depth > depth or last.kind in ("L_PAREN", "L_BRACKET"):
            continue  # a bracket is open
        operand = phrase.slice(0, end)
        if not _is_operand(operand, is_fenced, operands.get(first.text)):
            continue
        found = _match(phrase.slice(end), rest, {first.text: operand, **operands}, operand.tokens[-1].text)
        if found is not None:
            return found
    return None


def _is_operand(phrase: Phrase, is_fenced: bool, known: Phrase | None) -> bool:
    if known is not None and canonicalize(phrase.text) != canonicalize(known.text):
        return False
    if is_fenced:
        return all(phrase.tokens[n].text != "," for n in phrase.top)
    return _is_closed(phrase)


def _is_closed(phrase: Phrase) -> bool:
    """Whether no operator can take a part of the phrase away: a name, a call, or what stands in brackets."""
    top = [phrase.tokens[n] for n in phrase.top]
    if not top[0].may_be_name and top[0].text != "(":
        return len(top) == 1
    follows = {".": ("FIELD",), "(": ("R_PAREN",)}
    usual = ("DOT", "L_PAREN")
    return all(token.kind in follows.get(before.text, usual) for before, token in pairwise(top))
