"""Adds up the time in which predicates compare candidates, by a clock that the caller of an engine gives.

Engines read no clock. Without a caller that gives one, no time is counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class PredicateTime:
    """The time of the predicates that run while this value is the current one.

    Parameters
    ----------
    read_s : callable
        The clock: it returns seconds.
    seconds : float
        The time so far.

    Examples
    --------
    >>> ticks = iter([5.0, 7.5])
    >>> time = PredicateTime(lambda: next(ticks))
    >>> with time.is_current(), count_predicate():
    ...     pass
    >>> time.seconds
    2.5
    """

    read_s: Callable[[], float]
    seconds: float = 0.0

    @contextmanager
    def is_current(self) -> Iterator[None]:
        """Count the predicates that run inside the block."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[PredicateTime | None] = ContextVar("predicate_time", default=None)


@contextmanager
def count_predicate() -> Iterator[None]:
    """Add the time of the block, which runs a predicate, to the current sum."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    began_s = current.read_s()
    yield
    current.seconds += current.read_s() - began_s
