"""A Java server for tests: a process with its output in a file, which is killed in the end."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import start_server

START_S = 180
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class JavaServer:
    """A process of ``main``, with the jars of a folder, that writes its output to ``output``."""

    main: str
    arguments: Sequence[str]
    options: Sequence[str]
    classpath: str
    output: Path
    _process: "subprocess.Popen[bytes] | None" = field(init=False, default=None)

    def start(self, answers: Callable[[], bool]) -> None:
        """Start the process, and wait until it answers."""
        java = shutil.which("java") or os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        command = [java, *SMALL_JVM, *self.options, "-cp", self.classpath, self.main, *self.arguments]
        with self.output.open("ab") as output:
            self._process = start_server(command, stdout=output, stderr=output)
        end = time.monotonic() + START_S
        while not answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(self.output.read_text()[-3000:])
            time.sleep(0.5)

    def kill(self) -> None:
        """Kill the process with SIGKILL, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def open_modules(*packages: str) -> list[str]:
    """List the options with which code of the class path reaches packages (``module/package``) of Java."""
    return [f"--add-opens={package}=ALL-UNNAMED" for package in packages]
