"""Parses the clauses of a statement, and leaves its expressions to Catalyst.

    script    = statement { ";" statement } [";"]
    statement = [EXPLAIN] [view | insert] select [OPTIONS "(" name "=" literal {"," ...} ")"]
    view      = CREATE [OR REPLACE] [TEMPORARY] VIEW name ["(" columns ")"] AS
    insert    = INSERT INTO [TABLE] name ["(" columns ")"]
    select    = [WITH name AS "(" select ")" {"," ...}] SELECT [ONLINE] [DISTINCT] items FROM sources
                [WHERE condition] [WITHIN window] [GROUP BY keys] [HAVING condition]
                [ORDER BY keys] [LIMIT number] [OFFSET number]
    sources   = source { "," source | [kind] JOIN source [nearest | match] [ON condition | using] }
    using     = USING "(" columns ")"
    kind      = INNER | CROSS | (LEFT | RIGHT | FULL) [OUTER] | [LEFT] (SEMI | ANTI) | ASOF [LEFT | INNER]
    nearest   = [EXACT | APPROX] NEAREST [number] BY (DISTANCE | SIMILARITY) expression
    match     = MATCH_CONDITION "(" inequality ")" | FOR SYSTEM_TIME AS OF time
    source    = (name | [LATERAL] "(" select ")") [[AS] alias]
    window    = span | alias span { "," alias span }
    span      = interval | number ROWS

A conjunct ``[NOT] EXISTS (SELECT ...)`` or ``value [NOT] IN (SELECT ...)`` of WHERE is a semi or an anti
join. The dialect is Spark SQL plus the words ONLINE and WITHIN. The parser reads sqlglot's tokens and not its
syntax tree. A tree would have to be written as SQL again, but Catalyst must get the text that the user wrote.
"""

import ast
from itertools import pairwise

from thetastream.conditions.clauses import TAIL, cut_clauses
from thetastream.conditions.from_clause import read_sources
from thetastream.conditions.nearest import refuse_star
from thetastream.conditions.statement import Insert, NamedSelect, Select, Source, Statement, View, Window
from thetastream.conditions.subqueries import read_subqueries
from thetastream.conditions.tokens import Phrase, make_error_at, tokenize
from thetastream.core.spans import Rows

_NO_STATEMENT = "a statement is due: SELECT ... FROM ... WHERE ..."
Literal = str | int | float | bool


def parse_script(text: str) -> tuple[Statement, ...]:
    """Parse statements with semicolons between them; all but the last must be CREATE VIEW.

    Raises
    ------
    QueryError
        SYNTAX or UNSUPPORTED_SQL, with line, column, and a caret under the position.

    Examples
    --------
    >>> (found,) = parse_script("SELECT R.a, S.b FROM R, S WHERE R.a > S.b WITHIN 10 minutes")
    >>> [source.alias for source in found.select.sources], found.select.within
    (['R', 'S'], '10 minutes')
    >>> [bool(found.head) for found in parse_script("CREATE VIEW v AS SELECT x FROM r; SELECT x FROM v")]
    [True, False]
    """
    phrases = _split_statements(text)
    statements = tuple(_read_statement(text, phrase) for phrase in phrases)
    for phrase, statement in zip(phrases[:-1], statements, strict=False):
        if not isinstance(statement.head, View) or statement.is_explain:
            what = "only the last statement of several may be another one than CREATE VIEW"
            raise make_error_at(text, phrase.tokens[0].start, what, "UNSUPPORTED_SQL")
    return statements


def _split_statements(text: str) -> list[Phrase]:
    whole = tokenize(text)
    ends = [-1, *(n for n in whole.top if whole.tokens[n].text == ";"), len(whole.tokens)]
    parts = [whole.slice(start + 1, end) for start, end in pairwise(ends)]
    statements = [part for part in parts if part]
    if not statements:
        raise make_error_at(text, len(text), _NO_STATEMENT)
    return statements


def _read_statement(text: str, phrase: Phrase) -> Statement:
    is_explain = phrase.tokens[0].keyword == "EXPLAIN"
    if is_explain:
        phrase = phrase.slice(1)
    head, rest = read_head(text, phrase)
    if not rest:
        last = phrase.tokens[-1].end if phrase else len(text)
        raise make_error_at(text, last, _NO_STATEMENT)
    options, rest = read_options_clause(text, rest)
    return Statement(read_select(text, rest), head, is_explain, options)


def read_head(text: str, phrase: Phrase) -> tuple[View | Insert | None, Phrase]:
    """Parse the head of a statement; return the head and the rest, which is the SELECT."""
    word = phrase.tokens[0].keyword if phrase else ""
    if word == "CREATE":
        return _read_view(text, phrase)
    if word == "INSERT":
        return _read_insert(text, phrase)
    return None, phrase


def _read_view(text: str, phrase: Phrase) -> tuple[View, Phrase]:
    n = 1
    is_replaced = _is_at(phrase, n, "OR", "REPLACE")
    if is_replaced:
        n += 2
    if _is_at(phrase, n, "GLOBAL"):
        what = "a view belongs to its session, and GLOBAL is not supported"
        raise make_error_at(text, phrase.tokens[n].start, what, "UNSUPPORTED_SQL")
    if _is_at(phrase, n, "TEMPORARY") or _is_at(phrase, n, "TEMP"):
        n += 1
    if not _is_at(phrase, n, "VIEW"):
        token = phrase.tokens[min(n, len(phrase.tokens) - 1)]
        raise make_error_at(
            text, token.start, "CREATE makes views only: CREATE VIEW name AS SELECT ...", "UNSUPPORTED_SQL"
        )
    name, columns, n = _read_target(text, phrase, n + 1, "VIEW")
    if len(name.tokens) > 1:
        what = "the name of a view has no dots, because a view belongs to its session"
        raise make_error_at(text, name.tokens[0].start, what)
    if not _is_at(phrase, n, "AS"):
        last = phrase.tokens[n].start if n < len(phrase.tokens) else phrase.tokens[-1].end
        raise make_error_at(text, last, "AS SELECT ... must follow the name of the view")
    token = name.tokens[0]
    return View(token.name, token.start, columns, is_replaced), phrase.slice(n + 1)


def _read_insert(text: str, phrase: Phrase) -> tuple[Insert, Phrase]:
    if not _is_at(phrase, 1, "INTO"):
        token = phrase.tokens[min(1, len(phrase.tokens) - 1)]
        what = "INSERT must be followed by INTO; results are appended, and overwrite nothing"
        raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")
    n = 3 if _is_at(phrase, 2, "TABLE") else 2
    name, columns, n = _read_target(text, phrase, n, "INTO")
    return Insert(name.text, name.tokens[0].start, columns), phrase.slice(n)


def _read_target(text: str, phrase: Phrase, n: int, before: str) -> tuple[Phrase, tuple[str, ...], int]:
    """Read a name and its columns at token ``n``; return both and the position behind them."""
    tokens = phrase.tokens
    is_name = n < len(tokens) and tokens[n].may_be_name
    if not is_name or tokens[n].keyword in ("SELECT", "WITH", "AS", "VALUES"):
        position = tokens[n].start if n < len(tokens) else tokens[-1].end
        raise make_error_at(text, position, f"a name must follow {before}")
    end = n + 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name, columns = phrase.slice(n, end), tuple[str, ...]()
    if end < len(tokens) and tokens[end].text == "(" and tokens[end + 1].keyword not in ("SELECT", "WITH"):
        close = next(i for i in phrase.top if i > end and tokens[i].text == ")")
        columns, end = _read_names(text, phrase.slice(end, close + 1)), close + 1
    return name, columns, end


def _read_names(text: str, phrase: Phrase) -> tuple[str, ...]:
    """Read a list of names in parentheses."""
    parts = phrase.slice(1, -1).split_at_commas()
    for part in parts:
        if len(part.tokens) != 1 or not (part.text[0].isalnum() or part.text[0] in "_`"):
            wrong = (part.tokens or phrase.tokens)[0]
            raise make_error_at(text, wrong.start, "column names must be here, with commas between them")
    return tuple(part.tokens[0].name for part in parts)


def _is_at(phrase: Phrase, n: int, *words: str) -> bool:
    """Whether these words stand at token ``n``."""
    return tuple(token.keyword for token in phrase.tokens[n : n + len(words)]) == words


def read_select(text: str, phrase: Phrase) -> Select:
    """Parse a SELECT with its WITH clause: the statement itself, a subquery, or a part of WITH."""
    named: list[NamedSelect] = []
    phrase = phrase.bare()
    if phrase.tokens[0].keyword == "WITH":
        named, phrase = _read_with(text, phrase)
    clauses = cut_clauses(text, phrase)
    items = clauses["SELECT"]
    is_online = items.tokens[0].keyword == "ONLINE" and items.slice(1, 2).text not in (",", ".")
    if is_online:
        items = items.slice(1)
    is_distinct = bool(items) and items.tokens[0].keyword == "DISTINCT"
    if is_distinct:
        items = items.slice(1)
    if not items:
        raise make_error_at(text, phrase.tokens[0].start, "the select list is empty")
    sources, conditions = read_sources(text, clauses["FROM"], read_select)
    refuse_star(text, items, sources)
    where = [clauses["WHERE"]] if "WHERE" in clauses else []
    if where:
        subqueries, where = read_subqueries(text, where[0], sources, read_select)
        sources += subqueries
    if all(source.how == "inner" for source in sources):
        conditions += where
        where = []
    _refuse_duplicates(text, sources)
    aliases = {source.alias.casefold(): source.alias for source in sources}
    within = read_within(text, clauses["WITHIN"], aliases) if "WITHIN" in clauses else None
    if within is not None and len(sources) < 2:
        what = "WITHIN is the window of a join, but FROM names one stream"
        raise make_error_at(text, clauses["WITHIN"].tokens[0].start, what)
    return Select(
        text,
        items,
        tuple(sources),
        tuple(conditions),
        within,
        clauses.get("GROUP BY"),
        clauses.get("HAVING"),
        is_distinct,
        tuple(clauses[word] for word in TAIL if word in clauses),
        tuple(where),
        tuple(named),
    )


def _read_with(text: str, phrase: Phrase) -> tuple[list[NamedSelect], Phrase]:
    """Parse a WITH clause; return its parts and the rest of the phrase."""
    if phrase.slice(1, 2).text.upper() == "RECURSIVE":
        raise make_error_at(
            text, phrase.tokens[1].start, "a recursive WITH has no end over streams", "UNSUPPORTED_SQL"
        )
    named: list[NamedSelect] = []
    n, tokens = 1, phrase.tokens
    while True:
        name = tokens[n] if n < len(tokens) else None
        if name is None or not name.may_be_name:
            raise make_error_at(text, tokens[n - 1].end, "a name must be here: WITH name AS (SELECT ...)")
        opening = n + 2 if tokens[n + 1 : n + 2] and tokens[n + 1].keyword == "AS" else n + 1
        if opening >= len(tokens) or tokens[opening].text != "(":
            raise make_error_at(
                text, tokens[min(n + 1, len(tokens) - 1)].start, "AS (SELECT ...) must follow the name"
            )
        close = next(i for i in phrase.top if i > opening and tokens[i].text == ")")
        body = phrase.slice(opening + 1, close)
        if not body:
            raise make_error_at(text, tokens[opening].start, "the subquery is empty")
        if name.name.casefold() in {part.name.casefold() for part in named}:
            raise make_error_at(text, name.start, f"WITH names {name.name!r} twice", "DUPLICATE_ALIAS")
        named.append(NamedSelect(name.name, name.start, read_select(text, body)))
        if close + 1 >= len(tokens):
            raise make_error_at(text, tokens[close].end, "SELECT must follow WITH")
        if tokens[close + 1].text != ",":
            return named, phrase.slice(close + 1)
        n = close + 2


def _refuse_duplicates(text: str, sources: list[Source]) -> None:
    seen: set[str] = set()
    for source in sources:
        if source.alias.casefold() in seen:
            what = f"the alias {source.alias!r} is taken; name this one with AS"
            raise make_error_at(text, source.start, what, "DUPLICATE_ALIAS")
        seen.add(source.alias.casefold())


def read_within(text: str, phrase: Phrase, aliases: dict[str, str]) -> Window | dict[str, Window]:
    """Parse the window of a WITHIN clause; ``aliases`` maps case-folded aliases to aliases."""
    parts = phrase.split_at_commas()
    spans: dict[str, Window] = {}
    for part in parts:
        if not part:
            raise make_error_at(text, phrase.tokens[0].start, "an interval is missing between commas")
        first = part.tokens[0]
        is_named = first.may_be_name and first.keyword != "INTERVAL"
        if is_named and first.name.casefold() not in aliases:
            raise make_error_at(
                text,
                first.start,
                f"WITHIN names {first.name!r}, which is not one of {', '.join(aliases.values())}",
                "UNKNOWN_ALIAS",
            )
        span = part.slice(1) if is_named else part
        if not span:
            raise make_error_at(text, first.start, f"an interval must follow {first.text!r}")
        if not is_named and len(parts) > 1:
            raise make_error_at(text, first.start, "several windows need the name of a stream each")
        if is_named and aliases[first.name.casefold()] in spans:
            raise make_error_at(text, first.start, f"{first.text!r} has two windows")
        window = _read_rows(text, span) if span.tokens[-1].keyword == "ROWS" else _read_interval(span)
        if not is_named:
            return window
        spans[aliases[first.name.casefold()]] = window
    return spans


def _read_rows(text: str, span: Phrase) -> Rows:
    count = span.tokens[0]
    if len(span.tokens) != 2 or not count.text.isdecimal() or not int(count.text):
        raise make_error_at(
            text, count.start, "a count window is a number from 1 on and ROWS, as in 1000 ROWS"
        )
    return Rows(int(count.text))


def _read_interval(span: Phrase) -> str:
    """Write ``INTERVAL '10' MINUTES`` or ``10 minutes`` in the form that ``withWatermark`` reads."""
    words = span.tokens[1:] if span.tokens[0].keyword == "INTERVAL" else span.tokens
    return " ".join(token.text.strip("'\"") for token in words)


def read_options_clause(text: str, phrase: Phrase) -> tuple[dict[str, Literal], Phrase]:
    """Parse the clause OPTIONS at the end of a statement; return its values and the rest of the statement.

    Raises
    ------
    QueryError
        SYNTAX if the clause is not a list of names with literals.
    """
    last = phrase.top[-1]
    if phrase.tokens[last].text != ")":
        return {}, phrase
    opening = max(n for n in phrase.top if phrase.tokens[n].text == "(")
    if opening < 2 or phrase.tokens[opening - 1].keyword != "OPTIONS":
        return {}, phrase
    before = phrase.tokens[opening - 2]
    # A keyword such as GROUP BY is one token, and a name after a dot is no keyword.
    if before.kind != "FIELD" and before.keyword.split()[-1] in ("FROM", "JOIN", ",", "BY", "AS"):
        return {}, phrase
    values: dict[str, Literal] = {}
    for part in phrase.slice(opening + 1, last).split_at_commas():
        if len(part.tokens) < 3 or part.tokens[1].text != "=" or not part.tokens[0].may_be_name:
            start = (part.tokens or phrase.tokens[opening:])[0].start
            raise make_error_at(text, start, "OPTIONS lists names with literals: OPTIONS (max_units = 8)")
        name = part.tokens[0].name.casefold()
        if name in values:
            raise make_error_at(text, part.tokens[0].start, f"OPTIONS names {name!r} twice")
        values[name] = _read_literal(text, part.slice(2))
    return values, phrase.slice(0, opening - 1)


def _read_literal(text: str, phrase: Phrase) -> Literal:
    """Read a text, a number, or true or false."""
    words: dict[str, Literal] = {"TRUE": True, "FALSE": False}
    if phrase.text.upper() in words:
        return words[phrase.text.upper()]
    try:
        value = ast.literal_eval(phrase.text)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, str | int | float):
        what = f"the value of an option is a text, a number, true or false, not {phrase.text!r}"
        raise make_error_at(text, phrase.tokens[0].start, what)
    return value
