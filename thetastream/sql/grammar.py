"""Text to statement; expressions are left to Catalyst.

    statement = [EXPLAIN] SELECT ONLINE [DISTINCT] items FROM sources
                [WHERE condition] [WITHIN window] [GROUP BY keys] [HAVING condition]
    sources   = source { "," source | [INNER | CROSS] JOIN source [ON condition] }
    source    = name [[AS] alias] | "(" SELECT items FROM name [[AS] alias] [WHERE condition] ")" [AS] alias
    window    = span | alias span { "," alias span }
    span      = interval | number ROWS

The dialect is Spark SQL plus the words ONLINE and WITHIN. It is read over sqlglot's tokens, not its
syntax tree: a tree would have to be written as SQL again, and Catalyst must get what the user wrote.
"""

import re

from thetastream.errors import QueryError
from thetastream.predicate import Phrase, pointed, tokenize
from thetastream.sql.clauses import cut
from thetastream.sql.sources import read_sources
from thetastream.sql.statement import Statement
from thetastream.sql.window import read_within


def parse_statement(text: str) -> Statement:
    """The clauses of a ``SELECT ONLINE``.

    Raises
    ------
    QueryError
        SYNTAX or UNSUPPORTED_SQL, with line, column, and a caret under the place.

    Examples
    --------
    >>> found = parse_statement("SELECT ONLINE R.a, S.b FROM R, S WHERE R.a > S.b WITHIN 10 minutes")
    >>> [source.alias for source in found.sources], found.conditions[0].text, found.within
    (['R', 'S'], 'R.a > S.b', '10 minutes')
    """
    # sqlglot takes EXPLAIN for a command and reads no further.
    explain = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\b", text, re.IGNORECASE | re.DOTALL)
    read = text if explain is None else " " * explain.end() + text[explain.end() :]
    whole = tokenize(read)
    if whole and whole.tokens[-1].text == ";":
        whole = whole.slice(0, -1)
    if not whole:
        raise pointed(text, len(text), "a statement is due: SELECT ONLINE ... FROM ... WHERE ...")
    clauses = cut(text, whole)
    items = clauses["SELECT"]
    if not items or items.tokens[0].keyword != "ONLINE":
        raise _error(text, items, whole, "SELECT must be followed by ONLINE")
    items = items.slice(1)
    is_distinct = bool(items) and items.tokens[0].keyword == "DISTINCT"
    if is_distinct:
        items = items.slice(1)
    if not items:
        raise _error(text, items, whole, "the select list is empty")
    sources, conditions = read_sources(text, clauses["FROM"])
    if len(sources) < 2:
        raise pointed(
            text, sources[0].start, "a join takes two streams or more, here is one", "UNSUPPORTED_SQL"
        )
    if "WHERE" in clauses:
        conditions.append(clauses["WHERE"])
    aliases = {source.alias.casefold(): source.alias for source in sources}
    if len(aliases) < len(sources):
        seen: set[str] = set()
        for source in sources:
            if source.alias.casefold() in seen:
                raise pointed(
                    text,
                    source.start,
                    f"the alias {source.alias!r} is taken; name this one with AS",
                    "DUPLICATE_ALIAS",
                )
            seen.add(source.alias.casefold())
    within = read_within(text, clauses["WITHIN"], aliases) if "WITHIN" in clauses else None
    return Statement(
        text,
        items,
        tuple(sources),
        tuple(conditions),
        within,
        clauses.get("GROUP BY"),
        clauses.get("HAVING"),
        is_distinct,
        explain is not None,
    )


def _error(text: str, part: Phrase, whole: Phrase, what: str) -> QueryError:
    return pointed(text, (part or whole).tokens[0].start, what)
