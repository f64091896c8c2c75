"""A wall clock that jumps: ``time.time`` and ``time.time_ns`` of a process follow a file.

The clock of the JVM stays right, because it does not start with a library that changes its clock.
"""

import contextlib
import time
from pathlib import Path

_TRUE = time.time_ns
_followed: set[str] = set()


def follow(clock: str) -> None:
    """Let the clock of this process be wrong by as many seconds as the file at this path says.

    Without a file it is right.
    """
    if clock in _followed:
        return
    _followed.add(clock)

    def now_ns() -> int:
        with contextlib.suppress(OSError, ValueError):
            return _TRUE() + int(Path(clock).read_text()) * 1_000_000_000
        return _TRUE()

    time.time_ns = now_ns
    time.time = lambda: now_ns() / 1e9


def set_clock(clock: Path, seconds: int) -> None:
    """Let the clocks that follow the file jump."""
    draft = clock.with_suffix(".draft")
    draft.write_text(str(seconds))
    draft.rename(clock)
