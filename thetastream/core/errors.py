"""All errors that Thetastream raises on purpose. They form one tree and share one style of message.

A message states the rule, the value that broke it, and the consequence or a hint, in Spark's
``[CONDITION_NAME] message`` form.

``suggest`` writes the hint for a name that does not exist.
"""

import difflib
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Mark(NamedTuple):
    """The part ``[start, stop)`` of a text of the user that an error is about."""

    text: str
    start: int
    stop: int

    @property
    def fragment(self) -> str:
        """The part itself."""
        return self.text[self.start : self.stop]


class ThetastreamError(Exception):
    """Base class of all errors of Thetastream.

    >>> str(ThetastreamError("UNKNOWN_ALIAS", "alias 'c' is not one of a, b"))
    "[UNKNOWN_ALIAS] alias 'c' is not one of a, b"
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message


class QueryError(ThetastreamError, ValueError):
    """The query as written cannot run. It is raised before anything starts."""

    def __init__(self, condition: str, message: str, mark: Mark | None = None) -> None:
        super().__init__(condition, message)
        self.mark = mark


class SessionError(ThetastreamError):
    """The Spark session lacks a setting that the join needs."""


class StateError(ThetastreamError):
    """The state of a checkpoint is damaged, belongs to another query, or has another format version."""


class StoreError(ThetastreamError):
    """A store of results is damaged, holds other columns than the query writes, or does not exist."""


class PredicateError(ThetastreamError):
    """A Python predicate raised, or returned something that is not a boolean array."""


class InvalidQuery(QueryError):
    """A query has several problems. The message lists them, and ``problems`` holds them one by one."""

    def __init__(self, problems: Sequence[ThetastreamError]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {n}. {problem}" for n, problem in enumerate(self.problems, 1))
        super().__init__("INVALID_QUERY", f"{len(self.problems)} problems:\n{lines}")


def list_problems(error: ThetastreamError) -> tuple[ThetastreamError, ...]:
    """Return the problems that an error lists, or the error itself if it lists none.

    >>> len(list_problems(InvalidQuery([QueryError("A", "a"), QueryError("B", "b")])))
    2
    """
    return error.problems if isinstance(error, InvalidQuery) else (error,)


def raise_problems(problems: Sequence[ThetastreamError]) -> None:
    """Raise a single problem itself, or several in one ``InvalidQuery``. Without problems, raise nothing."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidQuery(problems)


def suggest(name: str, known: Collection[str]) -> str:
    """Write a hint with the known name that is most similar. The hint is empty if no name is similar.

    >>> suggest("prise", ["id", "price"]), suggest("ts", ["id", "price"])
    ("; did you mean 'price'?", '')
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def suggest_or_list(name: str, known: Collection[str]) -> str:
    """Write a hint with the known name that is most similar, or with all known names if none is similar.

    >>> suggest_or_list("ts", ["id", "price"])
    '; there are id, price'
    """
    return suggest(name, known) or f"; there are {', '.join(known)}"
