"""Items of a select list: their names, and GROUP BY that uses names or numbers of items."""

from collections.abc import Callable, Collection

from thetastream.predicate import Phrase, tokenize
from thetastream.predicate.tokens import OPERAND_ENDS, Token


def write_out_groups(
    items: Phrase, group_by: Phrase, columns: Collection[str], fold: Callable[[str], str]
) -> Phrase:
    """Replace the names and numbers of items in GROUP BY by the expressions of these items.

    A column has precedence over an item of the same name, as in Spark. ``fold`` gives all spellings of one
    name the same value, and has been applied to ``columns``.

    >>> items = tokenize("date_trunc('hour', r.ts) AS h, r.k, count(*) n")
    >>> write_out_groups(items, tokenize("h, 2"), ["ts", "k"], str.casefold).text
    "date_trunc('hour', r.ts), r.k"
    """
    listed = items.split_at_commas()
    named = {fold(name): part for name, part in map(split_name, listed) if name is not None}
    keys = []
    for key in group_by.split_at_commas():
        is_word = len(key.tokens) == 1
        name = fold(key.tokens[0].name) if is_word else ""
        if is_word and key.text.isdecimal() and 1 <= int(key.text) <= len(listed):
            keys.append(split_name(listed[int(key.text) - 1])[1])
        elif is_word and name in named and name not in columns:
            keys.append(named[name])
        else:
            keys.append(key)
    return tokenize(", ".join(key.text for key in keys))


def split_name(item: Phrase) -> tuple[str | None, Phrase]:
    """Split an item into its name and its expression; the name is None if the item gives none."""
    tokens = item.tokens
    if len(tokens) > 2 and tokens[-2].keyword == "AS" and tokens[-2].depth == tokens[-1].depth:
        return tokens[-1].name, item.slice(0, -2)
    is_name = len(tokens) > 1 and tokens[-1].kind in ("VAR", "IDENTIFIER")
    if is_name and tokens[-2].kind in OPERAND_ENDS:
        return tokens[-1].name, item.slice(0, -1)
    return None, item


def find_name(item: Phrase) -> str | None:
    """Find the name of the column that an item makes: that of AS, or of the column it reads; None otherwise.

    >>> [find_name(item) for item in tokenize("a.x, y, a.x + 1, f(x) AS n, a.*").split_at_commas()]
    ['x', 'y', None, 'n', None]
    """
    name, _ = split_name(item)
    words, dots = item.tokens[::2], item.tokens[1::2]
    is_column = all(token.text == "." for token in dots) and all(map(_is_word, words))
    return item.tokens[-1].name if name is None and words and is_column else name


def _is_word(token: Token) -> bool:
    """Whether a token may be the name of a column; some names are also words of SQL, such as timestamp."""
    return token.may_be_name and token.keyword not in ("TRUE", "FALSE", "NULL")
