"""Decides whether a statement can be checked without Spark.

This is so if all its expressions are plain. An expression is plain if it has only columns of declared types,
literals, operators and a few functions, and if each comparison and each item has values of one class:
numbers, texts or times. Then Spark can find no error of types in it.
"""

from collections.abc import Iterator, Mapping, Sequence

from thetastream.app.job.names import Scope, find_output, find_source_columns
from thetastream.app.job.schemas import Columns
from thetastream.conditions import Phrase, split_comparisons, split_conjuncts
from thetastream.conditions.statement import Select, Statement

_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "DOUBLE"), "number"),
    **dict.fromkeys(("BYTE", "SHORT", "REAL"), "number"),
    "STRING": "text",
    "TIMESTAMP": "time",
    "TIMESTAMP_NTZ": "time",
}
"""The class of each SQL type. Other types belong to no class."""
_ANY = {"COUNT"}
"""Functions whose argument may be of any class and whose value is a number."""
_NUMERIC = {"SUM", "AVG", "ABS"}
"""Functions whose argument and value are numbers."""
_SAME = {"MIN", "MAX"}
"""Functions whose value has the class of the argument."""
_KINDS = {
    *("VAR", "FIELD", "IDENTIFIER", "DOT", "NUMBER", "STRING", "L_PAREN", "R_PAREN", "COMMA", "STAR"),
    *("PLUS", "DASH", "SLASH", "EQ", "NEQ", "LT", "LTE", "GT", "GTE"),
    *("AND", "BETWEEN", "COUNT", "MIN", "MAX"),
}


def is_plain(script: Sequence[Statement], sources: Scope) -> bool:
    """Whether every expression of one statement is plain; ``sources`` are its inputs."""
    return len(script) == 1 and _is_plain_select(script[0].select, sources)


def _is_plain_select(select: Select, scope: Scope) -> bool:
    scope = dict(scope)
    for part in select.named:
        if not _is_plain_select(part.select, scope):
            return False
        scope[part.name.casefold()] = find_output(part.select, scope)
    columns: dict[str, Columns] = {}
    for source in select.sources:
        found = find_source_columns(source, scope)
        if source.subquery is not None:
            return False
        if found is None or (source.select is not None and not _is_plain_select(source.select, scope)):
            return False
        columns[source.alias.casefold()] = {name.casefold(): type_ for name, type_ in found.items()}
    return all(_is_of_one_class(part, columns) for part in _split(select))


def _split(select: Select) -> Iterator[Phrase]:
    """Yield the parts of a SELECT, each of which must have values of one class."""
    for condition in select.conditions:
        for conjunct in split_conjuncts(condition):
            # An empty phrase is not plain. It stands for a conjunct without a comparison.
            yield conjunct if split_comparisons(conjunct) else Phrase(conjunct.source, ())
    for item in select.items.split_at_commas():
        named = len(item.tokens) > 2 and item.tokens[-2].keyword == "AS"
        yield item.slice(0, -2) if named else item
    if select.group_by is not None:
        yield from select.group_by.split_at_commas()
    if select.having is not None or select.tail:
        yield Phrase(select.text, ())


def _is_of_one_class(phrase: Phrase, columns: Mapping[str, Columns]) -> bool:
    if not phrase:
        return False
    if phrase.text == "*" or (len(phrase.tokens) == 3 and phrase.text.endswith(".*")):
        return True
    classes, tokens = set[str](), phrase.tokens
    for n, token in enumerate(tokens):
        following = tokens[n + 1].text if n + 1 < len(tokens) else ""
        if token.kind not in _KINDS:
            return False
        if following == "(" and token.text[0].isalpha() and token.kind not in ("AND", "BETWEEN"):
            if token.keyword not in _ANY | _NUMERIC | _SAME:
                return False
            classes |= {"number"} if token.keyword in _ANY | _NUMERIC else set()
        elif token.kind == "NUMBER":
            classes.add("number")
        elif token.kind == "STRING":
            classes.add("text")
        elif token.kind in ("PLUS", "DASH", "SLASH"):
            classes.add("number")
        elif token.kind == "FIELD" or (token.kind in ("VAR", "IDENTIFIER") and following != "."):
            owner = tokens[n - 2].name.casefold() if token.kind == "FIELD" else None
            types = [
                found.get(token.name.casefold()) for alias, found in columns.items() if owner in (alias, None)
            ]
            # An unknown name has no type. It was reported as an error before.
            classes |= {_CLASSES.get(type_.upper(), "unknown") for type_ in types if type_ is not None}
    return len(classes) < 2 and "unknown" not in classes
