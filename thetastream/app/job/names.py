"""Checks names in the statements of a job against the columns that the job file declares, without Spark.

An unknown name is an error if the columns of all sources to which it can belong are known. Otherwise only
Spark can check the name.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from thetastream.app.job.schemas import Columns
from thetastream.conditions import Phrase, make_error_at
from thetastream.conditions.clauses import find_name, split_name
from thetastream.conditions.names import find_free_names, is_keyword_here
from thetastream.conditions.refused import TIME_DEPENDENT, find_misspelt, find_subqueries
from thetastream.conditions.statement import Select, Source, Statement, View
from thetastream.conditions.tokens import OPERAND_ENDS, Token
from thetastream.core.errors import QueryError, suggest, suggest_or_list
from thetastream.families.pairs.flow import ARRIVAL
from thetastream.lowering.query import RESULT_TIME

Scope = Mapping[str, Columns | None]
"""Name that FROM may use, in lower case -> its columns, or None if only Spark knows them."""

_WORDS = TIME_DEPENDENT | {
    *("CURRENT_USER", "SESSION_USER", "USER", "DISTINCT", "INTERVAL", "ALL", "NULLS", "FIRST", "LAST"),
    *("ROWS", "RANGE", "UNBOUNDED", "PRECEDING", "FOLLOWING", "CURRENT", "ROW"),
}
"""Words that may stand in expressions and are not columns."""
_MADE = {"window", "session_window"}
"""Columns that window functions in GROUP BY make."""


def find_name_problems(
    script: Sequence[Statement], sources: Scope, options: Mapping[str, Any]
) -> Iterator[QueryError]:
    """Yield an error for each name in the statements that is neither a column nor an alias.

    ``options`` are those of all statements. With an order of results, joins have one more column.
    """
    scope = dict(sources)
    for statement in script:
        is_ordered = {**options, **statement.options}.get("order") is not None
        made = {RESULT_TIME, *_MADE, *[ARRIVAL] * is_ordered}
        yield from _check_select(statement.select, scope, made)
        _add_view(statement, scope)


def find_results(script: Sequence[Statement], sources: Scope) -> Columns | None:
    """Find the columns of the last statement; None if they are not all known."""
    scope = dict(sources)
    for statement in script:
        _add_view(statement, scope)
    return find_output(script[-1].select, scope)


def _add_view(statement: Statement, scope: dict[str, Columns | None]) -> None:
    if isinstance(statement.head, View):
        columns = find_output(statement.select, scope)
        if statement.head.columns:
            columns = dict.fromkeys(statement.head.columns, "")
        scope[statement.head.name.casefold()] = columns


def _check_select(select: Select, scope: Scope, made: Collection[str]) -> Iterator[QueryError]:
    """Yield the errors of a SELECT. ``made`` are the columns that joins and window functions make."""
    scope = dict(scope)
    for part in select.named:
        yield from _check_select(part.select, scope, made)
        scope[part.name.casefold()] = find_output(part.select, scope)
    for source in select.sources:
        if source.select is not None:
            yield from _check_select(source.select, scope, made)
    columns = {source.alias: find_source_columns(source, scope) for source in select.sources}
    merged = {token.name.casefold() for source in select.sources for token in source.using}
    yield from _check_using(select, columns)
    names = {name.casefold() for name in map(find_name, select.items.split_at_commas()) if name is not None}
    # Names in a subquery of WHERE are resolved in another way, and nothing else can name its columns.
    joined = {source.alias for source in select.sources if source.subquery is None or not source.is_hidden}
    columns = {alias: found for alias, found in columns.items() if alias in joined}
    checked = Names(select.text, columns, merged)
    for condition in select.conditions:
        yield from checked.check(condition, ())
    # An item may use the names of items before it.
    yield from checked.check(select.items, {*made, *names})
    for clause in (select.group_by, select.having, *select.tail):
        if clause is not None:
            yield from checked.check(clause, {*made, *names})


def find_source_columns(source: Source, scope: Scope) -> Columns | None:
    """Find the columns of one input of FROM; None if they are not all known."""
    if source.select is not None:
        return find_output(source.select, scope)
    return scope.get(source.plain_name)


def find_output(select: Select, scope: Scope) -> Columns | None:
    """Find the columns of the result of a SELECT; None if they are not all known."""
    scope = dict(scope)
    for part in select.named:
        scope[part.name.casefold()] = find_output(part.select, scope)
    inputs = {source.alias.casefold(): find_source_columns(source, scope) for source in select.sources}
    found: Columns = {}
    for item in select.items.split_at_commas():
        tokens = item.tokens
        is_star = bool(tokens) and tokens[-1].kind == "STAR" and len(tokens) in (1, 3)
        if is_star:
            starred = [inputs.get(tokens[0].name.casefold())] if len(tokens) == 3 else list(inputs.values())
            for columns in starred:
                if columns is None:
                    return None
                found |= columns
            continue
        name = find_name(item) if tokens else None
        if name is None:
            return None
        found[name] = _find_type(split_name(item)[1].tokens, inputs)
    return found


def _find_type(tokens: Sequence[Token], inputs: Scope) -> str:
    """Find the type of an item that is a column. The type of any other item is an empty text."""
    *owner, name = (
        [token.name.casefold() for token in tokens if token.text != "."] if len(tokens) < 4 else [""]
    )
    found = [inputs.get(owner[0])] if owner else list(inputs.values())
    types = [
        type_ for columns in found for known, type_ in (columns or {}).items() if known.casefold() == name
    ]
    return types[0] if len(types) == 1 else ""


def _check_using(select: Select, columns: Mapping[str, Columns | None]) -> Iterator[QueryError]:
    before: list[str] = []
    for source in select.sources:
        mine, others = columns[source.alias], [columns[alias] for alias in before]
        for token in source.using:
            name = token.name.casefold()
            is_here = mine is None or name in _casefold(mine)
            is_there = any(other is None or name in _casefold(other) for other in others)
            if not is_here or not is_there:
                where = source.alias if not is_here else " and ".join(before)
                what = f"USING names {token.name!r}, which is no column of {where}"
                yield make_error_at(select.text, token.start, what, "UNKNOWN_COLUMN")
        before.append(source.alias)


class Names:
    """The names that expressions of one SELECT may use.

    Parameters
    ----------
    text : str
        The whole text of the statements.
    columns : mapping of alias to columns
        None stands for columns that only Spark knows.
    merged : collection of str
        The columns of USING, in lower case.
    """

    def __init__(self, text: str, columns: Mapping[str, Columns | None], merged: Collection[str]) -> None:
        self._text = text
        self._columns = {alias.casefold(): found for alias, found in columns.items()}
        self._listed = {alias.casefold(): alias for alias in columns}
        self._merged = merged
        self._is_complete = all(found is not None for found in columns.values())
        self._owners: dict[str, list[str]] = {}
        for alias, found in columns.items():
            for name in found or ():
                self._owners.setdefault(name.casefold(), []).append(alias)

    def check(self, phrase: Phrase, others: Collection[str]) -> Iterator[QueryError]:
        """Yield errors for the names of a phrase. ``others`` are names that are allowed besides columns."""
        misspelt = find_misspelt(phrase)
        if misspelt is not None and misspelt.mark is not None:
            # The names around a misspelt operator cannot be found reliably, so only the operator is an error.
            yield make_error_at(self._text, phrase.tokens[0].start + misspelt.mark.start, misspelt.message)
            return
        for n in find_subqueries(phrase):
            # Names inside it belong to its own sources, so only the subquery is an error.
            what = "only [NOT] EXISTS (SELECT ...) and [NOT] IN (SELECT ...) may be here, each as a conjunct"
            hint = "name the source of the subquery in FROM, and join it"
            yield make_error_at(self._text, phrase.tokens[n].start, f"{what}; {hint}", "SUBQUERY")
            return
        for n, token in find_free_names(phrase):
            after = phrase.slice(n + 1, n + 3).tokens
            is_dotted = len(after) == 2 and after[0].text == "."
            if n and phrase.tokens[n - 1].kind in ("ALIAS", "DOT", *OPERAND_ENDS):
                continue  # The phrase gives this name to an item, with AS or without.
            if token.name.casefold() in self._columns:
                if is_dotted and after[1].kind == "FIELD":
                    yield from self._check_field(token, after[1])
            elif self._is_complete and not is_keyword_here(phrase, n):
                yield from self._check_bare(token, is_dotted, others)

    def _check_field(self, alias: Token, field: Token) -> Iterator[QueryError]:
        columns = self._columns[alias.name.casefold()]
        if columns is not None and field.name.casefold() not in _casefold(columns):
            what = f"column {field.name!r} does not exist in {self._listed[alias.name.casefold()]!r}"
            yield self._make_error(field, what, columns)

    def _check_bare(self, token: Token, is_dotted: bool, others: Collection[str]) -> Iterator[QueryError]:
        name = token.name.casefold()
        owners = self._owners.get(name, [])
        if name in others or (len(owners) == 1) or name in self._merged:
            return
        if len(owners) > 1:
            what = f"column {token.name!r} is in the streams {', '.join(owners)}"
            hint = " or ".join(f"{alias}.{token.text}" for alias in owners)
            yield make_error_at(self._text, token.start, f"{what}; write {hint}", "AMBIGUOUS_COLUMN")
        elif is_dotted:
            what = f"alias {token.name!r} is not one of the streams {', '.join(self._listed.values())}"
            what += suggest(token.name, self._listed.values())
            yield make_error_at(self._text, token.start, what, "UNKNOWN_ALIAS")
        elif token.kind in ("VAR", "IDENTIFIER") and token.keyword not in _WORDS:
            every = [column for columns in self._columns.values() for column in columns or ()]
            yield self._make_error(token, f"column {token.name!r} is in none of the streams", every)

    def _make_error(self, token: Token, what: str, columns: Collection[str]) -> QueryError:
        return make_error_at(
            self._text, token.start, what + suggest_or_list(token.name, columns), "UNKNOWN_COLUMN"
        )


def _casefold(columns: Collection[str]) -> set[str]:
    return {name.casefold() for name in columns}
