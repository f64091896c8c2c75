"""Every error Thetastream raises on purpose: one tree, one wording.

A message states the rule, the value that broke it, and the consequence or a hint, in Spark's
``[CONDITION_NAME] message`` form.
"""

from collections.abc import Sequence


class ThetastreamError(Exception):
    """Root of the tree.

    >>> str(ThetastreamError("UNKNOWN_ALIAS", "alias 'c' is not one of a, b"))
    "[UNKNOWN_ALIAS] alias 'c' is not one of a, b"
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message


class QueryError(ThetastreamError, ValueError):
    """The query as written cannot run; raised before anything starts."""


class SessionError(ThetastreamError):
    """The Spark session is set in a way the join cannot run with."""


class StateError(ThetastreamError):
    """Checkpointed state is damaged, foreign, or of another format version."""


class PredicateError(ThetastreamError):
    """A Python predicate raised, or returned something that is not a boolean array."""


class InvalidQuery(QueryError):
    """Several problems of one query, listed at once; ``problems`` holds them one by one."""

    def __init__(self, problems: Sequence[ThetastreamError]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {n}. {problem}" for n, problem in enumerate(self.problems, 1))
        super().__init__("INVALID_QUERY", f"{len(self.problems)} problems:\n{lines}")


def problems_of(error: ThetastreamError) -> tuple[ThetastreamError, ...]:
    """The problems that an error lists, or the error itself.

    >>> len(problems_of(InvalidQuery([QueryError("A", "a"), QueryError("B", "b")])))
    2
    """
    return error.problems if isinstance(error, InvalidQuery) else (error,)


def raise_problems(problems: Sequence[ThetastreamError]) -> None:
    """Raise the one problem itself, or all of several at once; nothing when there is none."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidQuery(problems)
