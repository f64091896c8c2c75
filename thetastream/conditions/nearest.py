"""Reads joins that find the nearest partners of each row, as ``how=th.Nearest(k, by=e)``, and LATERAL.

    r [LEFT] JOIN s [EXACT] NEAREST [k] BY DISTANCE e ON c     Nearest(k, by=e)
    r [LEFT] JOIN s [EXACT] NEAREST [k] BY SIMILARITY e ON c   Nearest(k, by=e, direction="similarity")
    r ASOF [LEFT] JOIN s ON c AND r.t >= s.t                   Nearest(1, by="r.t - s.t")
    r ASOF [LEFT] JOIN s USING (k, t)                          ... ON r.k = s.k AND r.t >= s.t
    r ASOF JOIN s MATCH_CONDITION (r.t >= s.t) ON c            Nearest(1, by="r.t - s.t", keep_unmatched=True)
    r JOIN LATERAL (SELECT * FROM s WHERE c) AS q ON d         r JOIN s AS q ON c AND d
    r JOIN LATERAL (SELECT * FROM s WHERE c ORDER BY e LIMIT k) AS q ON d
                                                               ... s AS q NEAREST k BY DISTANCE e ON c AND d

The first two forms are Spark's own, with an ON that Spark itself does not have. The next two are DuckDB's,
and the fifth is Snowflake's, which keeps rows without partners. With LEFT, a row without partners
is a result. LATERAL is a join of the nearest rows of a source, or of all that satisfy a condition.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

from thetastream.conditions.clauses import find_name, split_name
from thetastream.conditions.names import find_free_names, find_references
from thetastream.conditions.phrases import Comparison, split_comparisons, split_conjuncts
from thetastream.conditions.statement import Select, Source, Subquery
from thetastream.conditions.tokens import Phrase, Token, make_error_at, tokenize
from thetastream.core.errors import QueryError
from thetastream.core.how import AsOf, Direction, Nearest

AS_OF = {"asof": False, "asof left": True, "asof inner": False}
"""Kinds of as-of joins, and whether a row without partners is a result."""
_FORM = "write JOIN stream EXACT NEAREST k BY DISTANCE expression ON condition"
_KEEPS_UNMATCHED = {"inner": False, "left": True}


def cut_ranking(phrase: Phrase) -> tuple[Phrase, Phrase]:
    """Cut an input of FROM, without its ON, before NEAREST; the second part is empty if there is none.

    >>> from thetastream.conditions import tokenize
    >>> [part.text for part in cut_ranking(tokenize("s AS x EXACT NEAREST 2 BY DISTANCE r.t - x.t"))]
    ['s AS x', 'NEAREST 2 BY DISTANCE r.t - x.t']
    """
    tokens = phrase.tokens
    for n in phrase.top:
        if n == 0 or tokens[n].keyword != "NEAREST" or n + 1 == len(tokens):
            continue
        if tokens[n + 1].kind == "NUMBER" or tokens[n + 1].keyword == "BY":
            has_mode = n > 1 and tokens[n - 1].keyword in ("EXACT", "APPROX")
            return phrase.slice(0, n - 1 if has_mode else n), phrase.slice(n)
    return phrase, phrase.slice(0, 0)


def read_nearest(text: str, kind: str, ranking: Phrase) -> Nearest:
    """Read ``NEAREST [k] BY DISTANCE expression``, or BY SIMILARITY, behind a join of this kind."""
    start = ranking.tokens[0].start
    if kind not in _KEEPS_UNMATCHED:
        what = f"NEAREST belongs to JOIN or LEFT JOIN, not to a {kind.upper()} JOIN"
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    has_number = ranking.tokens[1].kind == "NUMBER"
    by = ranking.slice(2 if has_number else 1)
    directions: dict[str, Direction] = {one.upper(): one for one in get_args(Direction)}
    direction = directions.get(by.tokens[1].keyword) if len(by.tokens) > 2 else None
    if direction is None or by.tokens[0].keyword != "BY":
        raise make_error_at(text, start, f"BY DISTANCE or BY SIMILARITY must follow NEAREST; {_FORM}")
    k = ranking.tokens[1].text if has_number else "1"
    if not k.isdecimal():
        raise make_error_at(text, ranking.tokens[1].start, f"NEAREST needs a whole number, not {k}")
    try:
        return Nearest(int(k), by.slice(2).text, _KEEPS_UNMATCHED[kind], direction)
    except QueryError as problem:
        raise make_error_at(text, ranking.tokens[1].start, problem.message, problem.condition) from None


def cut_match(phrase: Phrase) -> tuple[Phrase, Phrase]:
    """Cut ``MATCH_CONDITION (...)`` out of what follows JOIN; the second part is the text in its brackets.

    >>> from thetastream.conditions import tokenize
    >>> [part.text for part in cut_match(tokenize("s MATCH_CONDITION (r.t >= s.t)"))]
    ['s', 'r.t >= s.t']
    """
    tokens = phrase.tokens
    for n in phrase.top[1:]:
        opens = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if tokens[n].keyword == "MATCH_CONDITION" and tokens[n].kind != "FIELD" and opens:
            close = next(i for i in phrase.top if i > n + 1 and tokens[i].text == ")")
            if close == len(tokens) - 1:
                return phrase.slice(0, n), phrase.slice(n + 2, close)
    return phrase, phrase.slice(0, 0)


def read_as_of(
    text: str, join: Token, kind: str, condition: Phrase, aliases: Sequence[str], match: Phrase | None = None
) -> Nearest:
    """Read an as-of join: the nearest partner by the one inequality of ``match``, or else of its condition.

    ``aliases`` are those of both inputs, the new one last.
    """
    conjuncts = split_conjuncts(match or condition)
    found = [
        (c, conjunct)
        for conjunct in conjuncts
        for c in split_comparisons(conjunct)
        if c.op != "=" and c.limit is None and _compares_streams(c, aliases)
    ]
    if len(found) != 1:
        where = "its condition" if match is None else "MATCH_CONDITION"
        what = f"ASOF JOIN needs one inequality between both streams, and {where} has {len(found)}"
        hint = _FORM if len(found) < 2 else _write_match(kind, found, conjuncts, aliases[-1])
        raise make_error_at(text, join.start, f"{what}; {hint}", "UNSUPPORTED_SQL")
    ((comparison, conjunct),) = found
    f, g = comparison.f, comparison.g
    later, earlier = (f, g) if comparison.op in (">", ">=") else (g, f)
    keeps_unmatched = AS_OF[kind] or (match is not None and kind == "asof")
    by = f"({later.text}) - ({earlier.text})"
    return AsOf(1, by, keeps_unmatched, written=conjunct.text)


def _write_match(
    kind: str, found: Sequence[tuple[Comparison, Phrase]], conjuncts: Sequence[Phrase], alias: str
) -> str:
    """Write the line that says which of several inequalities chooses the nearest partner."""
    comparison, conjunct = found[0]
    chosen = f"{comparison.f.text} {comparison.op} {comparison.g.text}"
    is_whole = sum(other is conjunct for _, other in found) == 1
    rest = " AND ".join(part.text for part in conjuncts if not (is_whole and part is conjunct))
    word = "LEFT" if AS_OF[kind] else "INNER"
    line = f"ASOF {word} JOIN {alias} MATCH_CONDITION ({chosen}) ON {rest}"
    return f"say which one chooses the nearest partner: {line}"


def _compares_streams(comparison: Comparison, aliases: Sequence[str]) -> bool:
    """Whether each operand reads one stream, and they read two."""
    read = [find_references(operand, aliases) for operand in (comparison.f, comparison.g)]
    return [len(each) for each in read] == [1, 1] and read[0] != read[1]


def read_lateral(
    text: str,
    kind: str,
    phrase: Phrase,
    before: Sequence[Source],
    read_select: Callable[[str, Phrase], Select],
) -> Source:
    """Read ``(SELECT ... FROM s WHERE c ORDER BY e LIMIT k) AS name`` behind LATERAL."""
    tokens, start = phrase.tokens, phrase.tokens[0].start
    close = next(n for n in phrase.top if n and tokens[n].text == ")")
    name = split_name(tokenize(f"x {phrase.slice(close + 1).text}"))[0] if close + 1 < len(tokens) else None
    inner = read_select(text, phrase.slice(1, close))
    source, tail = inner.sources[0], {part.tokens[0].keyword.split()[0]: part for part in inner.tail}
    items = inner.items.split_at_commas()
    others = (inner.within, inner.group_by, inner.having, inner.named, inner.is_distinct, "OFFSET" in tail)
    if len(inner.sources) > 1 or any(others) or source.select or not all(map(_is_own, items)):
        what = (
            "LATERAL has the nearest rows of one source, with its own columns: "
            f"LATERAL (SELECT * FROM s WHERE c ORDER BY e LIMIT k) AS name; or {_FORM}"
        )
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    if kind not in _KEEPS_UNMATCHED or len(before) != 1:
        what = f"LATERAL follows JOIN, LEFT JOIN or a comma behind one source; {_FORM}"
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    alias = name or source.alias
    where = tuple(_rename(part, source.alias, alias) for part in inner.conditions)
    how: str | Nearest = kind
    if "LIMIT" in tail:
        how = _read_ranking(text, tail, source.alias, alias, _KEEPS_UNMATCHED[kind])
    is_narrowed = not all(item.text.endswith("*") for item in items)
    return replace(source, alias=alias, how=how, subquery=Subquery(where, is_narrowed=is_narrowed))


def refuse_star(text: str, items: Phrase, sources: Sequence[Source]) -> None:
    """Raise if a star would show columns that a subquery behind LATERAL does not select."""
    if not any(source.subquery is not None and source.subquery.is_narrowed for source in sources):
        return
    for n, token in enumerate(items.tokens):
        before = items.tokens[n - 1] if n else None
        if token.kind == "STAR" and (before is None or before.text in (",", ".")):
            what = "a star needs LATERAL (SELECT * ...); name the columns"
            raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")


def _is_own(item: Phrase) -> bool:
    """Whether an item is a star, or a column under its own name."""
    return item.text.endswith("*") or (find_name(item) is not None and split_name(item)[0] is None)


def _read_ranking(text: str, tail: dict[str, Phrase], old: str, alias: str, keeps_unmatched: bool) -> Nearest:
    limit, order = tail["LIMIT"].slice(1), tail.get("ORDER")
    keys = [] if order is None else order.slice(1).split_at_commas()
    if len(keys) != 1 or not limit.text.isdecimal():
        what = "LATERAL with LIMIT needs ORDER BY one expression and a whole number: ORDER BY s.t LIMIT 1"
        raise make_error_at(text, limit.tokens[0].start, what, "UNSUPPORTED_SQL")
    (key,) = keys
    words = [token.keyword for token in key.tokens]
    by = _rename(key, old, alias).text
    if "NULLS" not in words[-2:]:
        # Spark's ORDER BY has NULL first, unless it is descending.
        by += " NULLS LAST" if words[-1] == "DESC" else " NULLS FIRST"
    try:
        return Nearest(int(limit.text), by, keeps_unmatched)
    except QueryError as problem:
        raise make_error_at(text, limit.tokens[0].start, problem.message, problem.condition) from None


def _rename(phrase: Phrase, old: str, new: str) -> Phrase:
    """Write another alias in place of ``old``."""
    if old == new:
        return phrase
    base, text, tokens = phrase.tokens[0].start, phrase.text, phrase.tokens
    for n, token in reversed(list(find_free_names(phrase))):
        is_dotted = n + 1 < len(tokens) and tokens[n + 1].text == "."
        if token.name.casefold() == old.casefold() and is_dotted:
            text = text[: token.start - base] + f"`{new}`" + text[token.end - base :]
    return tokenize(text)


def refuse_lateral_view(text: str, tokens: Sequence[Token]) -> QueryError:
    """Make an error for LATERAL VIEW and for LATERAL before a function."""
    what = "make the rows of a function before the join: FROM (SELECT *, explode(x) AS y FROM s) AS s"
    return make_error_at(text, tokens[0].start, what, "UNSUPPORTED_SQL")
