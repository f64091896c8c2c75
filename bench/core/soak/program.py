"""The program of the soak as a process that can be killed, and what it uses at one time."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.core.processes import measure_processes


@dataclass
class Program:
    """The program as a process, which leads its own process group."""

    folder: Path
    trigger: str
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, catch_up: bool = False) -> None:
        command = [sys.executable, "-m", "bench.core.soak.queries", str(self.folder)]
        command += [] if catch_up else [self.trigger]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end(self, is_kill: bool) -> None:
        """Kill the whole group, or ask the program to stop."""
        assert self.process is not None
        if not is_kill:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(120)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Raise if the program has ended by itself."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the program has ended: {(self.folder / 'log').read_text()[-3000:]}")


@dataclass
class Sample:
    """What the program uses at one time."""

    second: float
    java_mb: float
    python_mb: float
    descriptors: int
    files: int
    """Files of state and cache. The logs of Spark's file source grow by design."""
    messages: int
    """Files of mailboxes."""


def take_sample(program: Program, second: float) -> Sample | None:
    """Measure the processes and files of the program; None if it is between two runs."""
    assert program.process is not None
    usage = measure_processes(program.process.pid)
    if not usage.java_mb:
        return None
    files = count_files(*program.folder.glob("checkpoints/*/state"), program.folder / "cache")
    return Sample(second, *usage, files, count_files(program.folder / "mailboxes"))


def count_files(*folders: Path) -> int:
    """Count the files below some folders."""
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))
