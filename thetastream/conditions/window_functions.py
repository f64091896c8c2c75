"""Says what to write instead of a window function, which needs the end of its input.

    r JOIN s ON c QUALIFY row_number() OVER (PARTITION BY r.id ORDER BY e) = 1
    r JOIN s NEAREST 1 BY DISTANCE e ON c

The second line is the first one if ``r.id`` differs from tuple to tuple, which nothing says. So it is a hint.
"""

from thetastream.conditions.tokens import Phrase

_RANKS = {"ROW_NUMBER", "RANK"}


def suggest_nearest(phrase: Phrase) -> str:
    """Return what to write instead of the window functions in a phrase.

    >>> from thetastream.conditions import tokenize
    >>> suggest_nearest(tokenize("rank() OVER (PARTITION BY r.id ORDER BY s.t DESC) <= 2")).split(": ")[1]
    'JOIN stream NEAREST 2 BY DISTANCE s.t DESC ON condition'
    """
    k, by, tokens = "k", "expression", phrase.tokens
    for n, token in enumerate(tokens):
        if token.keyword != "OVER" or n < 3 or tokens[n - 3].keyword not in _RANKS:
            continue
        close = next((i for i in range(n + 2, len(tokens)) if tokens[i].depth == token.depth), n)
        order = next((i for i in range(n, close) if tokens[i].keyword.split() == ["ORDER", "BY"]), None)
        if order is None:
            continue
        by = phrase.slice(order + 1, close).text
        limit = tokens[close + 1 : close + 3]
        if len(limit) == 2 and limit[0].text in ("=", "<=") and limit[1].text.isdecimal():
            k = limit[1].text
    line = f"JOIN stream NEAREST {k} BY DISTANCE {by} ON condition"
    return f"for the nearest partners of each tuple, write: {line}"
