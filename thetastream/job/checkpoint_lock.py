"""Locks a checkpoint, so that a second job cannot use it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thetastream.errors import ThetastreamError
from thetastream.job.spec import is_local

LOCK = ".thetastream.lock"


@contextmanager
def lock(checkpoint: str) -> Iterator[str]:
    """Lock a checkpoint until the block ends, and yield the path of the log of the job.

    Without the lock, a second query on the checkpoint would stop the first query without an error.

    Raises
    ------
    ThetastreamError
        CHECKPOINT_IN_USE, with the number of the process that holds the lock.
    """
    if not is_local(checkpoint):
        yield os.devnull
        return
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ThetastreamError(
                "CHECKPOINT_IN_USE",
                f"{checkpoint} belongs to a running job, process {file.read().strip() or 'unknown'}; "
                "stop it, or give this job a checkpoint of its own",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield f"{checkpoint.rstrip('/')}.log"
