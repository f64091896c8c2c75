"""Problems of a join, and refusals of Catalyst, with their place in the statement."""

import re

from pyspark.errors import AnalysisException

from thetastream.errors import QueryError, ThetastreamError
from thetastream.predicate import Phrase, conjuncts, pointed
from thetastream.sql.statement import Statement


def located(statement: Statement, problem: ThetastreamError) -> ThetastreamError:
    """The problem with the place in the statement that it is about, if one can be told."""
    if not isinstance(problem, QueryError):
        return problem
    parts = [part for condition in statement.conditions for part in (condition, *conjuncts(condition))]
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


def refused(text: str, phrases: list[Phrase], error: AnalysisException) -> QueryError:
    """What Catalyst refuses in a select list, as ours."""
    values = error.getMessageParameters() or {}
    names = re.findall(r"`((?:[^`]|``)*)`", f"{values.get('objectName', '')} {values.get('fieldName', '')}")
    start = phrases[0].tokens[0].start
    if names:
        found = (t.start for p in phrases for t in p.tokens if t.name.casefold() == names[-1].casefold())
        start = next(found, start)
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
