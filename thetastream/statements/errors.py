"""Adds the position in the statement to errors of a join and to errors of Catalyst."""

import re
from collections.abc import Iterator, Sequence
from math import inf

from pyspark.errors import AnalysisException, ParseException

from thetastream.conditions import Phrase, make_error_at, split_conjuncts, tokenize
from thetastream.conditions.statement import Select
from thetastream.core.errors import Mark, QueryError, ThetastreamError
from thetastream.joins.ask.refusals import Ask, find_mark, find_refusals, read_first_line, read_names, search


def locate(select: Select, problem: ThetastreamError) -> ThetastreamError:
    """Add to an error its position in the statement; return the error unchanged if no position is found."""
    if not isinstance(problem, QueryError):
        return problem
    parts = [part for condition in select.compared for part in (condition, *split_conjuncts(condition))]
    start = None if problem.mark is None else _find_start(parts, problem.mark)
    if start is None:
        start = _guess_start(select, parts, problem.message)
    return problem if start is None else make_error_at(select.text, start, problem.message, problem.condition)


def _find_start(parts: Sequence[Phrase], mark: Mark) -> int | None:
    """Find the position of a mark in the statement.

    The text of the mark is a part of a condition, or such a part with an alias before each column.
    """
    written = tokenize(mark.text).tokens
    for part in reversed(parts):
        n, at = 0, None
        for token in part.tokens:
            if written[n : n + 1] and token.text != written[n].text:
                n += 2  # An alias and a dot were inserted.
            if not written[n : n + 1] or token.text != written[n].text:
                break
            if at is None and written[n].end > mark.start:
                at = token.start
            n += 1
        else:
            if n == len(written):
                return part.tokens[-1].end if at is None else at
    return None


def _guess_start(select: Select, parts: Sequence[Phrase], message: str) -> int | None:
    """Find the first word of the statement that a message quotes."""
    quoted_words = {word.casefold() for word in re.findall(r"'([^']*)'", message)}
    about = [part for part in parts if repr(part.text) in message]
    for phrase in [*reversed(about), *select.phrases]:
        for token in phrase.tokens:
            if token.name.casefold() in quoted_words:
                return token.start
    if about:
        return about[-1].tokens[0].start
    return next((source.start for source in select.sources if source.alias.casefold() in quoted_words), None)


def sort_problems(problems: Sequence[ThetastreamError]) -> list[ThetastreamError]:
    """Sort errors by their position in the statement. Errors without a position come last."""

    def find_position(problem: ThetastreamError) -> float:
        mark = problem.mark if isinstance(problem, QueryError) else None
        return inf if mark is None else mark.start

    return sorted(problems, key=find_position)


def find_list_problems(ask: Ask, phrases: Sequence[Phrase], texts: Sequence[str]) -> Iterator[QueryError]:
    """Yield Catalyst's errors in the expressions of a SELECT, with their positions.

    ``texts`` are the phrases as they are asked; a star may be written out in them.
    """
    for error, mark in find_refusals(ask, texts):
        yield _translate(phrases, texts, error, mark)


def _translate(
    phrases: Sequence[Phrase], texts: Sequence[str], error: AnalysisException, mark: Mark | None
) -> QueryError:
    values = error.getMessageParameters() or {}
    condition = (error.getCondition() or "INVALID_SELECT").split(".")[0]
    if condition == "UNRESOLVED_COLUMN":
        condition, name = "UNKNOWN_COLUMN", ".".join(read_names(values.get("objectName", "")))
        what = f"column {name!r} does not exist, or more than one stream has it"
    elif condition == "FIELD_NOT_FOUND":
        condition, name = "UNKNOWN_COLUMN", ".".join(read_names(values.get("fieldName", "")))
        what = f"column {name!r} does not exist; there are {', '.join(read_names(values.get('fields', '')))}"
    else:
        what = re.sub(r"^\[[A-Z_.]+\] ", "", read_first_line(error))
    start = _find_in_list(phrases, texts, error, mark)
    return make_error_at(
        phrases[0].source, phrases[0].tokens[0].start if start is None else start, what, condition
    )


def _find_in_list(
    phrases: Sequence[Phrase], texts: Sequence[str], error: AnalysisException, mark: Mark | None
) -> int | None:
    if mark is None and isinstance(error, ParseException):
        # Spark has read SELECT and the items, and its position counts from there.
        mark = find_mark(error, texts[0], before=len("SELECT "))
    if mark is None:
        return None
    for phrase, text in zip(phrases, texts, strict=True):
        if text == mark.text == phrase.text:
            return phrase.tokens[0].start + mark.start
        at = search(phrase.text, mark.fragment) if text == mark.text and mark.fragment else None
        if at is not None:
            return phrase.tokens[0].start + at
    return None
