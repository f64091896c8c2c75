"""Keeps lines that Spark prints in every run out of the standard error of a local session.

Spark's JVM inherits the standard error of the process that starts it, and so do the processes that the JVM
starts. One of them prints five lines about itself whenever a query with a stateful Python operator starts,
and no setting of Spark turns them off. The JVM therefore gets a pipe, and a thread passes on all other lines.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PREFIXES = (
    b"Starting Streaming TransformWithStateInPandas",
    b"Streaming TransformWithStateInPandas Python worker",
    b"WARNING: Using incubator modules",
)


def is_chatter(line: bytes) -> bool:
    """Whether Spark prints this line in every run.

    >>> is_chatter(b"Starting Streaming TransformWithStateInPandas Python worker.\\n"), is_chatter(b"boom\\n")
    (True, False)
    """
    return line.startswith(PREFIXES)


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
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_pass_on, args=(read, os.dup(saved)), daemon=True, name="stderr").start()
    try:
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
