"""Reads the condition of a join: resolves SQL texts into conjuncts and checks Python predicates.

A comparison of text with a number is refused under ``spark.sql.ansi.enabled``: Spark converts each text while
the query runs, and the first one that is not a number would end the query. Without this setting, such a text
counts as NULL, and the comparison may run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column
from pyspark.sql.types import StructType

from thetastream.conditions import (
    Phrase,
    Predicate,
    expand_conjunct,
    find_comparisons,
    parse,
    split_conjuncts,
)
from thetastream.conditions.names import find_columns, find_references, qualify, quote_names
from thetastream.conditions.refused import find_refused
from thetastream.conditions.tokens import STRINGS
from thetastream.core.errors import Mark, QueryError
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.trial import try_predicate
from thetastream.joins.ask.window_calls import has_window_calls, write_windows
from thetastream.lowering.domains import find_family
from thetastream.lowering.query import Stream

Conjunct: TypeAlias = str | Predicate | Column
"""A SQL text, a Python predicate, or a Column of Spark."""
On: TypeAlias = Conjunct | Sequence[Conjunct]
_CHAR_MARK = "__CHAR_VARCHAR_TYPE_STRING"
"""The key under which Spark keeps the type of a CHAR or VARCHAR column in the metadata of the column."""


class ReadCondition(NamedTuple):
    """The condition of a join, and what is wrong with it."""

    on: tuple[str, ...]
    """Its SQL texts. A Column is written as SQL text first."""
    conjuncts: tuple[Phrase, ...]
    """The conjuncts of the SQL texts."""
    predicates: tuple[Predicate, ...]
    problems: tuple[QueryError, ...]


def read_condition(
    on: On, catalyst: Catalyst, streams: Sequence[Stream], schemas: Mapping[str, StructType]
) -> ReadCondition:
    """Read ``on``: its SQL texts, its Columns, and its Python predicates."""
    items: Sequence[Conjunct] = [on] if isinstance(on, Conjunct) else on
    if not isinstance(items, Sequence) or not items:
        return ReadCondition((), (), (), (_make_condition_error(on),))
    texts: list[str] = []
    phrases: list[Phrase] = []
    predicates: list[Predicate] = []
    problems: list[QueryError] = []
    lengths = {alias: _list_char_lengths(schema) for alias, schema in schemas.items()}
    for item in items:
        if isinstance(item, Predicate):
            found_here = _find_predicate_problems(item, streams, catalyst.is_case_sensitive)
            if not found_here:
                failed = try_predicate(item, streams, schemas, catalyst.is_case_sensitive)
                found_here = [] if failed is None else [failed]
            problems += found_here
            predicates.append(item)
        elif isinstance(item, str | Column):
            try:
                text = item if isinstance(item, str) else catalyst.write_column(item)
                texts.append(text)
                found, refused = _read_sql(text, catalyst, streams)
                refused += [one for part in found for one in find_padded_comparisons(part, lengths)]
            except QueryError as problem:
                is_unnamed = problem.condition == "AMBIGUOUS_COLUMN" and not isinstance(item, str)
                problems.append(_explain_columns(problem, streams[0].alias) if is_unnamed else problem)
                continue
            problems += refused
            phrases += found
        else:
            problems.append(_make_condition_error(item))
    return ReadCondition(tuple(texts), tuple(phrases), tuple(predicates), tuple(problems))


def list_predicate_columns(on: On, alias: str) -> set[str]:
    """List the columns of a stream that Python predicates read, in lower case."""
    items = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    return {
        name.casefold()
        for item in items
        if isinstance(item, Predicate)
        for named, names in item.columns
        if named.casefold() == alias.casefold()
        for name in names
    }


def _read_sql(
    text: str, catalyst: Catalyst, streams: Sequence[Stream]
) -> tuple[list[Phrase], list[QueryError]]:
    """Return the conjuncts of one SQL text and its problems."""
    phrase = quote_names(parse(text))
    refused = list(find_refused(phrase))
    if refused:
        return [], refused
    aliases = [stream.alias for stream in streams]
    columns = {stream.alias: [name for name, _ in stream.types] for stream in streams}
    if has_window_calls(phrase):
        phrase = write_windows(qualify(phrase, columns, catalyst.name_key), catalyst, aliases)
    elif not catalyst.is_resolved(phrase):
        phrase = qualify(phrase, columns, catalyst.name_key)
    found = split_conjuncts(phrase)
    problems = catalyst.problems(phrase, found)
    if not problems and catalyst.is_ansi:
        compared = (
            side for conjunct in found for one in find_comparisons(conjunct) for side in (one.f, one.g)
        )
        catalyst.learn_types((side.text, _name_streams(side, aliases)) for side in compared)
        problems = [
            error for conjunct in found for error in find_mixed_comparisons(conjunct, catalyst, aliases)
        ]
    expanded = [part for conjunct in found for part in expand_conjunct(conjunct, aliases)]
    return expanded, problems


def _explain_columns(problem: QueryError, alias: str) -> QueryError:
    """Say how a Column names its stream: ``trades.id`` of a DataFrame is only ``id``."""
    what = f'{problem.message}, as in th.col("{alias}.id"): a column of a DataFrame does not know its alias'
    return QueryError(problem.condition, what, problem.mark)


def _make_condition_error(item: object) -> QueryError:
    return QueryError(
        "CONDITION",
        "on must be a SQL condition, a Column, a @th.predicate function, or a list of them, "
        f"not {item!r}" + ("; mark the function with @th.predicate" if callable(item) else ""),
    )


def _find_predicate_problems(
    predicate: Predicate, streams: Sequence[Stream], is_case_sensitive: bool
) -> list[QueryError]:
    by_alias = {stream.alias.casefold(): stream for stream in streams}
    aliases = {folded: stream.alias for folded, stream in by_alias.items()}
    named = [alias for alias, _ in predicate.columns]
    listed = ", ".join(aliases.values())
    problems = [
        QueryError(
            "UNKNOWN_ALIAS", f"predicate {predicate.name} names {alias!r}, which is not one of {listed}"
        )
        for alias in named
        if alias.casefold() not in aliases
    ]
    missing = [
        alias for folded, alias in aliases.items() if folded not in {name.casefold() for name in named}
    ]
    if missing and not problems and len(aliases) - len(missing) < 2:
        problems.append(
            QueryError(
                "PREDICATE_COLUMNS",
                f"predicate {predicate.name} names no column of {', '.join(missing)}; "
                "a predicate over one stream is a filter: put it before the join",
            )
        )
    problems += [
        QueryError(
            "UNKNOWN_COLUMN",
            f"predicate {predicate.name} reads {alias}.{name}, but {alias!r} has the columns "
            + ", ".join(column for column, _ in stream.types),
        )
        for alias, names in predicate.columns
        if (stream := by_alias.get(alias.casefold())) is not None
        for name in names
        if stream.find(name, is_case_sensitive) is None
    ]
    return problems


def find_mixed_comparisons(
    conjunct: Phrase, catalyst: Catalyst, aliases: Sequence[str]
) -> Iterator[QueryError]:
    """Yield an error for each comparison of text with a number in a conjunct, which Catalyst accepts.

    A text without columns, as in ``a.price > '5'``, is a constant, which Spark reads only once.
    """
    for comparison in find_comparisons(conjunct):
        sides = [(phrase, _find_type(phrase, catalyst, aliases)) for phrase in (comparison.f, comparison.g)]
        for (text, text_type), (number, number_type) in (sides, reversed(sides)):
            if (
                text_type.startswith("string")
                and find_family(number_type) == "numeric"
                and find_references(text, aliases)
            ):
                yield _make_error(conjunct, text, number, number_type)


def _list_char_lengths(schema: StructType) -> dict[str, str]:
    """List the columns of CHAR(n), in lower case, with this type. To Spark, they are strings with a mark."""
    types = ((field.name.casefold(), field.metadata.get(_CHAR_MARK, "")) for field in schema.fields)
    return {name: type_ for name, type_ in types if type_.startswith("char(")}


def find_padded_comparisons(
    conjunct: Phrase, lengths: Mapping[str, Mapping[str, str]]
) -> Iterator[QueryError]:
    """Yield an error for a conjunct in which Spark would pad values of CHAR columns before it compares them.

    It pads if a column meets a constant or a column of another length. Units compare values as they are.

    >>> from thetastream.conditions.tokens import parse
    >>> lengths = {"a": {"c": "char(3)"}, "b": {"c": "char(5)", "s": "char(3)"}}
    >>> texts = ("a.c = b.c", "a.c = 'x'", "a.c = b.s", "a.x = 'x'")
    >>> [len(list(find_padded_comparisons(parse(text), lengths))) for text in texts]
    [1, 1, 0, 0]
    """
    read = {alias: find_columns(conjunct, alias) for alias, types in lengths.items() if types}
    found = {
        f"{alias}.{name}": type_
        for alias, columns in read.items()
        for name, type_ in lengths[alias].items()
        if columns is None or name in columns
    }
    has_constant = any(token.kind in STRINGS for token in conjunct)
    if len(set(found.values())) > 1 or (found and has_constant):
        listed = " and ".join(f"{name} {type_.upper()}" for name, type_ in found.items())
        what = f"{listed} stand in {conjunct.text}, where Spark pads values of CHAR, and units do not"
        name = next(iter(found)).partition(".")[2]
        yield QueryError("TYPE_MISMATCH", f"{what}; give the stream rtrim({name}) AS {name} before the join")


def _find_type(phrase: Phrase, catalyst: Catalyst, aliases: Sequence[str]) -> str:
    return catalyst.type_of(phrase.text, _name_streams(phrase, aliases)) or ""


def _name_streams(phrase: Phrase, aliases: Sequence[str]) -> Sequence[str]:
    """Name the streams that a phrase reads, or one stream if it reads none."""
    return find_references(phrase, aliases) or aliases[:1]


def _make_error(conjunct: Phrase, text: Phrase, number: Phrase, number_type: str) -> QueryError:
    start = text.tokens[0].start - conjunct.tokens[0].start
    return QueryError(
        "TYPE_MISMATCH",
        f"{text.text!r} is text and {number.text!r} is a number, in {conjunct.text!r}; cast one side: "
        f"try_cast({text.text} AS {number_type.upper()}) is NULL for a text that is no number, and "
        f"CAST({number.text} AS STRING) compares as text",
        Mark(conjunct.text, start, start + len(text.text)),
    )
