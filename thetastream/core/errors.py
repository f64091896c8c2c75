"""All errors that Thetastream raises on purpose. They form one tree and share one style of message.

A message states the rule, the value that broke it, and the consequence or a hint, in Spark's
``[CONDITION_NAME] message`` form.

A note, which tracebacks show behind the message, says where to read more.

``suggest`` writes the hint for a name that does not exist.
"""

import difflib
import os
import traceback
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from thetastream.core.addresses import hide_all_secrets

FLAG = "THETASTREAM_TRACEBACK"
"""The environment variable that asks for whole tracebacks."""
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


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
        # A value that is shown because it is wrong may be an address with a password.
        message = hide_all_secrets(message)
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.add_note(f"More: thetastream error {' '.join(self.conditions)}")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of all problems that the error lists."""
        return (self.condition,)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback: the line that called us, and the message.

        The frames inside the package, of which a typo in a condition has 20, say nothing about it.
        """
        if shows_tracebacks():
            return "".join(traceback.format_exception(self)).splitlines()
        frames = traceback.extract_tb(self.__traceback__)
        of_user = [*takewhile(lambda frame: not frame.filename.startswith(_PACKAGE), frames)]
        called = traceback.format_list(of_user[-1:])
        return "".join([*called, *traceback.format_exception_only(self)]).splitlines()


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

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for problem in self.problems for name in problem.conditions))


def shows_tracebacks() -> bool:
    """Whether the user asks for whole tracebacks."""
    return os.environ.get(FLAG, "").lower() not in ("", "0", "false")


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
