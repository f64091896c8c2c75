"""Reads Catalyst's errors: where in the user's text a mistake is, and whether there are more mistakes.

Catalyst stops at its first error. To find the next one, the part of the text that the error is about is
replaced by NULL, which fits everywhere, and Catalyst is asked again.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException, PySparkException

from thetastream.core.errors import Mark, QueryError
from thetastream.spark.session.failure import list_loggers

MOST = 10
"""The number of mistakes after which Catalyst is not asked again."""
_LOCAL = ("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND", "UNRESOLVED_ROUTINE", "DATATYPE_MISMATCH", "WRONG_NUM_ARGS")
"""Errors that are about a part of the text, and not about the text as a whole."""

Ask = Callable[[Sequence[str]], AnalysisException | None]
"""Asks Catalyst about texts of one query, and returns its error."""


def find_refusals(ask: Ask, texts: Sequence[str]) -> Iterator[tuple[AnalysisException, Mark | None]]:
    """Yield every error that Catalyst finds in the texts of one query, each with its place."""
    asked, seen = list(texts), set[str]()
    for n_found in range(MOST):
        error = ask(asked)
        if error is None:
            return
        fragment = find_fragment(error)
        at = next(
            (n for n, text in enumerate(asked) if fragment and search(text, fragment) is not None), None
        )
        start = None if at is None or fragment is None else search(texts[at], fragment)
        is_local = (error.getCondition() or "").split(".")[0] in _LOCAL
        if at is None or fragment is None or start is None or not is_local:
            if not n_found:
                yield error, None  # An error behind others may be a consequence of NULL.
            return
        if fragment not in seen:
            yield error, narrow(error, Mark(texts[at], start, start + len(fragment)))
        seen.add(fragment)
        where = search(asked[at], fragment) or 0
        asked[at] = f"{asked[at][:where]}NULL{asked[at][where + len(fragment) :]}"


def find_fragment(error: AnalysisException) -> str | None:
    """Find the part of the text that Catalyst names as the place of its error."""
    for context in error.getQueryContext():
        if context.contextType().name == "SQL" and context.fragment():
            return str(context.fragment())
    return None


def search(text: str, fragment: str) -> int | None:
    """Find the position of a fragment that begins and ends with whole words.

    The names that AS gives, and words inside a text literal, are no fragments.

    >>> search("s.qq > r.q AND q > 1", "q"), search("a.x > 1", "x")
    (15, None)
    >>> search("a.x AS q, 'q' AS s, q + 1", "q")
    20
    """
    for found in re.finditer(rf"(?<![\w.`'\"]){re.escape(fragment)}(?![\w`'\"])", text):
        if re.search(r"\bAS\s*$", text[: found.start()], re.IGNORECASE) is None:
            return found.start()
    return None


def find_mark(error: AnalysisException, text: str, before: int = 0) -> Mark | None:
    """Find the place of an error in a text, before which Spark has read ``before`` characters."""
    fragment = find_fragment(error)
    start = search(text, fragment) if fragment else None
    if start is not None and fragment:
        return narrow(error, Mark(text, start, start + len(fragment)))
    place = re.search(r"\(line (\d+), pos(?:ition)? (\d+)\)", str(error))
    if place is None or not isinstance(error, ParseException):
        return None
    lines = text.split("\n")[: int(place[1]) - 1]
    start = sum(len(line) + 1 for line in lines) + int(place[2]) - (0 if lines else before)
    end = min(max(start, 0), len(text.rstrip()))
    return Mark(text, end, end)


def narrow(error: AnalysisException, mark: Mark) -> Mark:
    """Narrow the place of an unknown field to the field: ``q`` of ``r.q``."""
    name = (error.getMessageParameters() or {}).get("fieldName", "").strip("`")
    at = mark.fragment.casefold().rfind(name.casefold()) if name else -1
    if at < 0:
        return mark
    start = mark.start + at
    return Mark(mark.text, start - (mark.text[start - 1 : start] == "`"), mark.stop)


def summarize(error: PySparkException, where: str = "") -> QueryError:
    """Reduce an error of Spark to one line, without its stack, which Spark's log contains."""
    first = _find_first_line(error)
    found = re.match(r"\[([A-Z_.]+)\] (.*)", first)
    prefix = f"{where}: " if where else ""
    return QueryError(found[1], prefix + found[2]) if found else QueryError("SPARK", prefix + first)


def read_names(text: str) -> list[str]:
    """Read the names that Catalyst quotes.

    >>> read_names("`id`, `ts`")
    ['id', 'ts']
    """
    return re.findall(r"`((?:[^`]|``)*)`", text)


def read_first_line(error: PySparkException) -> str:
    """Return the first line of Spark's error, without its SQLSTATE."""
    return re.sub(r" SQLSTATE:.*", "", _find_first_line(error))


def _find_first_line(error: PySparkException) -> str:
    """Find the first line of an error that is not blank. Without one, return the name of its class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep analysis errors of this thread out of PySpark's log, which would show each with its Java stack.

    The planner asks Catalyst whether an expression resolves, so such an error is an answer and not a failure.
    """
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for logger in list_loggers():
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in list_loggers():
            logger.removeFilter(of_others)
