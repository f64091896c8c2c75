"""Adds the position in the statement to errors of a join and to errors of Catalyst."""

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException

from thetastream.errors import QueryError, ThetastreamError
from thetastream.predicate import Phrase, pointed, split_conjuncts
from thetastream.sql.statement import Statement


def locate(statement: Statement, problem: ThetastreamError) -> ThetastreamError:
    """Add to an error its position in the statement; return the error unchanged if no position is found."""
    if not isinstance(problem, QueryError):
        return problem
    parts = [part for condition in statement.conditions for part in (condition, *split_conjuncts(condition))]
    quoted_words = re.findall(r"'([^']*)'", problem.message)
    about = [part for part in parts if repr(part.text) in problem.message]
    for phrase in [*reversed(about), *statement.phrases]:
        for token in phrase.tokens:
            if token.name.casefold() in {word.casefold() for word in quoted_words}:
                return pointed(statement.text, token.start, problem.message, problem.condition)
    if about:
        return pointed(statement.text, about[-1].tokens[0].start, problem.message, problem.condition)
    for source in statement.sources:
        if source.alias in quoted_words:
            return pointed(statement.text, source.start, problem.message, problem.condition)
    return problem


def translate_refusal(phrases: Sequence[Phrase], error: AnalysisException) -> QueryError:
    """Translate Catalyst's error in a select list into a QueryError with its position."""
    values = error.getMessageParameters() or {}
    names = re.findall(r"`((?:[^`]|``)*)`", f"{values.get('objectName', '')} {values.get('fieldName', '')}")
    text, start = phrases[0].source, phrases[0].tokens[0].start
    if names:
        found = (
            (phrase.source, token.start)
            for phrase in phrases
            for token in phrase.tokens
            if token.name.casefold() == names[-1].casefold()
        )
        text, start = next(found, (text, start))
    condition = (error.getCondition() or "INVALID_SELECT").split(".")[0]
    if condition in ("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND"):
        condition, what = (
            "UNKNOWN_COLUMN",
            f"column {'.'.join(names)!r} does not exist, or more than one stream has it",
        )
    else:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), condition)
        what = re.sub(r"^\[[A-Z_.]+\] ", "", re.sub(r" SQLSTATE:.*", "", first))
    return pointed(text, start, what, condition)
