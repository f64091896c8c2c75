"""Redirects the standard error of a local session: into a file, or through a filter.

Spark's JVM inherits the standard error of the process that starts it, and so do the processes that the JVM
starts. They keep it as long as they run. One of them prints five lines about itself whenever a query with a
stateful Python operator starts, and no setting of Spark turns them off. The JVM therefore gets a pipe, and a
thread passes on all other lines.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CHATTER = (
    b"Starting Streaming TransformWithStateInPandas",
    b"Streaming TransformWithStateInPandas Python worker",
    b"WARNING: Using incubator modules",
)
"""Beginnings of the lines that are left out."""


def is_chatter(line: bytes) -> bool:
    """Whether Spark prints this line in every run.

    >>> is_chatter(b"Starting Streaming TransformWithStateInPandas Python worker.\\n"), is_chatter(b"boom\\n")
    (True, False)
    """
    return line.startswith(_CHATTER)


@contextmanager
def stderr_into(path: str | Path) -> Iterator[None]:
    """Let processes that start inside this block write their standard error to ``path``.

    Otherwise their lines would appear in the middle of a command's output.
    """
    with Path(path).open("ab") as file, _redirect(os.dup(2), file.fileno()):
        yield


@contextmanager
def without_chatter() -> Iterator[None]:
    """Let processes that start inside this block write their standard error without chatter.

    The standard error of this process is the same as before when the block ends.
    """
    try:
        saved = os.dup(2)
    except OSError:  # this process has no standard error
        yield
        return
    source, target = os.pipe()
    threading.Thread(target=_pass_on, args=(source, os.dup(saved)), daemon=True, name="stderr").start()
    with _redirect(saved, target):
        os.close(target)
        yield


@contextmanager
def _redirect(saved: int, target: int) -> Iterator[None]:
    """Let standard error be ``target`` inside this block, and ``saved``, which is closed, behind it."""
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _pass_on(source: int, target: int) -> None:
    """Copy lines from one file descriptor to another until all writers have closed the source."""
    was_chatter = False
    with os.fdopen(source, "rb") as lines, suppress(OSError):
        for line in lines:
            # A blank line follows each line of chatter.
            if is_chatter(line) or (was_chatter and not line.strip()):
                was_chatter = True
                continue
            was_chatter = False
            os.write(target, line)
