"""Reads the condition of a join: resolves SQL texts into conjuncts and checks Python predicates."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql.types import StructType

from thetastream.errors import QueryError, ThetastreamError
from thetastream.frontend.text_and_number import find_mixed_comparisons
from thetastream.frontend.trial import try_predicate
from thetastream.frontend.window_calls import has_window_calls, write_windows
from thetastream.plan.query import Stream
from thetastream.predicate import Phrase, Predicate, expand_conjunct, parse, split_conjuncts
from thetastream.predicate.forbidden_calls import find_refused
from thetastream.predicate.respelled_names import qualify, quote_names
from thetastream.spark.catalyst import Catalyst

Conjunct: TypeAlias = str | Predicate | Column
"""A SQL text, a Python predicate, or a Column of Spark."""
On: TypeAlias = Conjunct | Sequence[Conjunct]


def read_condition(
    on: On,
    catalyst: Catalyst,
    streams: Sequence[Stream],
    schemas: Mapping[str, StructType],
    problems: list[ThetastreamError],
) -> tuple[list[str], list[Phrase], list[Predicate]]:
    """Read ``on`` and return its SQL texts, their conjuncts, and its Python predicates.

    A Column is written as SQL text first.
    """
    items: Sequence[Conjunct] = [on] if isinstance(on, Conjunct) else on
    texts: list[str] = []
    phrases: list[Phrase] = []
    predicates: list[Predicate] = []
    if not isinstance(items, Sequence) or not items:
        problems.append(_make_condition_error(on))
        return texts, phrases, predicates
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
            except QueryError as problem:
                problems.append(problem)
                continue
            problems += refused
            phrases += found
        else:
            problems.append(_make_condition_error(item))
    return texts, phrases, predicates


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
    fold = str if catalyst.is_case_sensitive else str.casefold
    if has_window_calls(phrase):
        phrase = write_windows(qualify(phrase, columns, fold), catalyst, aliases)
    elif not catalyst.is_resolved(phrase):
        phrase = qualify(phrase, columns, fold)
    found = split_conjuncts(phrase)
    problems = catalyst.problems(phrase, found)
    if not problems and catalyst.is_ansi:
        problems = [
            error for conjunct in found for error in find_mixed_comparisons(conjunct, catalyst, aliases)
        ]
    expanded = [part for conjunct in found for part in expand_conjunct(conjunct, aliases)]
    return expanded, problems


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
