"""A request to stop work that another thread does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Stop:
    """A request to stop one piece of work. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_set = False
        self._act: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the work should stop."""
        return self._is_set

    def set(self) -> None:
        """Ask the work to stop."""
        with self._lock:
            self._is_set, act = True, self._act
        if act is not None:
            act()

    @contextmanager
    def attach(self, act: Callable[[], None]) -> Iterator[None]:
        """Call ``act`` if somebody asks to stop while the block runs, or has asked before."""
        with self._lock:
            self._act, is_set = act, self._is_set
        if is_set:
            act()
        try:
            yield
        finally:
            with self._lock:
                self._act = None
