"""Parses the clauses of a statement, and leaves its expressions to Catalyst.

    statement = [EXPLAIN] SELECT ONLINE [DISTINCT] items FROM sources
                [WHERE condition] [WITHIN window] [GROUP BY keys] [HAVING condition]
    sources   = source { "," source | [INNER | CROSS] JOIN source [ON condition] }
    source    = name [[AS] alias] | "(" SELECT items FROM name [[AS] alias] [WHERE condition] ")" [AS] alias
    window    = span | alias span { "," alias span }
    span      = interval | number ROWS

The dialect is Spark SQL plus the words ONLINE and WITHIN. The parser reads sqlglot's tokens and not its
syntax tree. A tree would have to be written as SQL again, but Catalyst must get the text that the user wrote.
"""

import re

from thetastream.errors import QueryError
from thetastream.predicate import Phrase, pointed, tokenize
from thetastream.sql.clauses import cut
from thetastream.sql.sources import read_sources
from thetastream.sql.statement import Statement
from thetastream.sql.window import read_within


def parse_statement(text: str) -> Statement:
    """Parse the clauses of a ``SELECT ONLINE`` statement.

    Raises
    ------
    QueryError
        SYNTAX or UNSUPPORTED_SQL, with line, column, and a caret under the position.

    Examples
    --------
    >>> found = parse_statement("SELECT ONLINE R.a, S.b FROM R, S WHERE R.a > S.b WITHIN 10 minutes")
    >>> [source.alias for source in found.sources], found.conditions[0].text, found.within
    (['R', 'S'], 'R.a > S.b', '10 minutes')
    """
    # sqlglot treats EXPLAIN as a command and does not read the text behind it.
    explain = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\b", text, re.IGNORECASE | re.DOTALL)
    read = text if explain is None else " " * explain.end() + text[explain.end() :]
    whole = Phrase(text, tokenize(read).tokens)
    if whole and whole.tokens[-1].text == ";":
        whole = whole.slice(0, -1)
    if not whole:
        raise pointed(text, len(text), "a statement is due: SELECT ONLINE ... FROM ... WHERE ...")
    clauses = cut(text, whole)
    items = clauses["SELECT"]
    if not items or items.tokens[0].keyword != "ONLINE":
        raise _make_error(text, items, whole, "SELECT must be followed by ONLINE")
    items = items.slice(1)
    is_distinct = bool(items) and items.tokens[0].keyword == "DISTINCT"
    if is_distinct:
        items = items.slice(1)
    if not items:
        raise _make_error(text, items, whole, "the select list is empty")
    sources, conditions = read_sources(text, clauses["FROM"])
    if len(sources) < 2:
        raise pointed(
            text, sources[0].start, "a join needs two streams or more, this is one", "UNSUPPORTED_SQL"
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


def _make_error(text: str, part: Phrase, whole: Phrase, what: str) -> QueryError:
    return pointed(text, (part or whole).tokens[0].start, what)
