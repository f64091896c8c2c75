"""Writes the Jaccard similarity of two arrays as SQL, because the form of SQL is long."""

from thetastream.conditions.tokens import tokenize
from thetastream.core.arguments import describe_given, is_number
from thetastream.core.errors import QueryError


def jaccard(left: str, right: str, *, at_least: float) -> str:
    """Return the condition that two arrays, as sets, have this Jaccard similarity or more.

    It is the number of elements that both have, divided by the number of elements that one of them has. Two
    empty arrays have none, so they do not join.

    Parameters
    ----------
    left, right : str
        Expressions of Spark SQL over one stream each, as in ``"a.tags"``.
    at_least : float
        The least similarity, greater than 0 and at most 1.

    Returns
    -------
    str
        SQL for ``on``, alone or with further conjuncts.

    Raises
    ------
    QueryError
        JACCARD if ``at_least`` is no such number, or another argument is no expression.

    Examples
    --------
    >>> jaccard("a.tags", "b.tags", at_least=0.7)
    'try_divide(size(array_intersect(a.tags, b.tags)), size(array_union(a.tags, b.tags))) >= 0.7D'
    """
    for name, text in (("left", left), ("right", right)):
        if not isinstance(text, str) or len(tokenize(text).split_at_commas()) != 1 or not text.strip():
            what = f"{name} of th.jaccard must be one expression of Spark SQL, an array of one stream"
            raise QueryError("JACCARD", f"{what}, as in 'a.tags', not {describe_given(text)}")
    if not is_number(at_least) or not 0 < at_least <= 1:
        what = "at_least of th.jaccard must be a number greater than 0 and at most 1"
        raise QueryError("JACCARD", f"{what}, not {describe_given(at_least)}")
    shared, united = (f"size(array_{name}({left}, {right}))" for name in ("intersect", "union"))
    return f"try_divide({shared}, {united}) >= {float(at_least)!r}D"
