"""Starts servers for tests. Linux ends them when the process of the tests ends, also if it is killed."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

PR_SET_PDEATHSIG = 1
"""The operation of prctl(2) that names the signal a process gets when its parent ends."""


def start_server(
    command: Sequence[str], last_signal: signal.Signals = signal.SIGKILL, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a process, which gets ``last_signal`` when the thread that calls this function has ended.

    ``options`` are those of ``subprocess.Popen``. On systems other than Linux, the process lives on if the
    process of the tests is killed.
    """
    if sys.platform != "linux":
        return subprocess.Popen(command, **options)
    libc, parent = ctypes.CDLL(None), os.getpid()

    def follow_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, last_signal)
        if os.getppid() != parent:  # The parent has ended before the call, so there will be no signal.
            os._exit(1)

    return subprocess.Popen(command, preexec_fn=follow_parent, **options)
