"""The JVM of a local session: an archive of its classes, its command line, and its standard error.

    ~/.cache/thetastream/spark-<key>/home/          links to the installed Spark; part of the class path
    ~/.cache/thetastream/spark-<key>/classes.jsa    the archive, about 200 MB

A JVM that runs its first joins searches almost 300 jars for each of 20,000 classes, and reads, checks and
parses it. This is a quarter of its CPU time. Java can write the parsed classes to a file when a JVM ends, and
later JVMs with the same Java, the same class path and the same kind of heap map that file. A JVM that differs
ignores the file and loads its classes as before. The JVM and the processes that it starts inherit the
standard error of the process that starts it, and they keep it as long as they run.
"""

import hashlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext, java_gateway

from thetastream.core.addresses import hide_all_secrets
from thetastream.core.errors import SessionError
from thetastream.core.private_folder import make_private, refuse_unsafe
from thetastream.spark.session.workers import HOME, has_installed_pyspark, link_folders, set_variables

QUIET = "-Xlog:cds*=off"
"""No message about an archive that does not fit, or about classes that an archive cannot contain."""
_SECRETS = "(?i)secret|password|token|access[.]?key"
"""Spark's default of spark.redaction.regex."""
_MORE_SECRETS = re.compile("(?i)credential|passphrase|passwd|(?:account|private|encryption)[.]?key")
"""What names of more settings have that hold secrets, as those of stores in Azure and of keys for TLS."""
_AT_START = ("spark.master", "spark.driver.", "spark.jars", "spark.submit.")
"""Beginnings of settings that a JVM reads while it starts, so only secret names keep them back."""
_ADDRESS = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable with the path of the file in which PySpark waits for the address of its JVM."""
_STALLED_S = 5.0
"""Seconds after which a JVM does not complete the file any more. It usually needs less than a millisecond."""
_CHATTER = (
    b"Starting Streaming TransformWithStateInPandas",
    b"Streaming TransformWithStateInPandas Python worker",
    b"WARNING: Using incubator modules",
)
"""Beginnings of the lines that are left out."""


@dataclass(frozen=True)
class ClassArchive:
    """A folder with an archive, and with the home of Spark to which the archive belongs."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def file(self) -> Path:
        return self.folder / "classes.jsa"

    def write_option(self) -> str:
        """Return the options of a JVM that maps the archive."""
        return f"-XX:SharedArchiveFile={self.file} {QUIET}"

    def make(self, run_joins: Callable[[str], None]) -> bool:
        """Write the archive; return whether Java could.

        Parameters
        ----------
        run_joins : callable
            It gets options for a JVM, starts a session whose JVM has them and the home of the archive, runs
            joins, and returns when the JVM has ended.

        Raises
        ------
        SessionError
            UNSAFE_FOLDER if other users could replace the archive.
        """
        make_private(self.folder)
        self.home.mkdir(exist_ok=True, mode=0o700)
        link_folders(Path(pyspark.__file__).parent, self.home)
        made = self.file.with_suffix(".new")
        made.unlink(missing_ok=True)
        with set_variables({HOME: str(self.home)}):
            run_joins(f"-XX:ArchiveClassesAtExit={made} {QUIET}")
        # A JVM that cannot write an archive, such as OpenJ9, ends without one.
        if not made.exists():
            return False
        made.replace(self.file)
        return True


def locate_archive() -> ClassArchive:
    """Return the archive of the installed PySpark in the user's cache folder, whether it exists or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    installed = f"{pyspark.__version__} {Path(pyspark.__file__).parent}"
    key = hashlib.sha256(installed.encode()).hexdigest()[:12]
    return ClassArchive(cache / "thetastream" / f"spark-{key}")


def find_archive(options: Mapping[str, object]) -> ClassArchive | None:
    """Return the archive that a local session may use, or None.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER if other users could replace the archive or the home: the JVM runs the code in them.
    """
    if HOME in os.environ or not has_installed_pyspark(options):
        return None
    archive = locate_archive()
    if not archive.file.exists():
        return None
    for path in (archive.file, archive.home):
        refuse_unsafe(path)
    return archive


def launch_without_secrets(options: Mapping[str, object]) -> None:
    """Start the JVM of this process, if none runs, and keep secrets out of its command line.

    All users of a machine can read the command lines of its processes, and PySpark writes the options of a
    builder into the one of the JVM. Here it gets all options but those that Spark itself hides in logs, by
    their names or values, and a few more. PySpark hands on all options of the builder once more when the JVM
    runs, on a socket with a secret.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session.

    Raises
    ------
    SessionError
        DISK_FULL if the JVM cannot write its address into the folder for temporary files.
    """
    shown = [(key, str(value)) for key, value in options.items() if not hides(options, key)]
    names = vars(java_gateway)
    before, names["Popen"] = names["Popen"], _GatewayProcess
    try:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))
    finally:
        names["Popen"] = before


def hides(options: Mapping[str, object], key: str) -> bool:
    """Whether a setting stays out of the command line of a JVM.

    >>> options = {"spark.x.passphrase": "x", "spark.x.url": "jdbc:h?password=x", "spark.master": "local"}
    >>> [hides(options, key) for key in options]
    [True, True, False]
    """
    try:
        is_secret = re.compile(str(options.get("spark.redaction.regex", _SECRETS)))
    except re.error:  # Java reads some expressions that Python does not.
        is_secret = re.compile(_SECRETS)
    if is_secret.search(key) or _MORE_SECRETS.search(key):
        return True
    value = str(options[key])
    return not key.startswith(_AT_START) and bool(is_secret.search(value) or hide_all_secrets(value) != value)


class _GatewayProcess(subprocess.Popen[bytes]):
    """The process of a JVM. PySpark polls it while it waits for the file with the address of the JVM.

    The JVM writes ``connection*.info`` into the folder of this file, and renames it. If the disk is full, its
    main thread ends before that. Other threads keep it alive, and PySpark would wait without a limit.
    """

    def __init__(self, command: list[str], env: dict[str, str], **settings: Any) -> None:
        self._folder = Path(env[_ADDRESS]).parent
        self._seen: float | None = None
        super().__init__(command, env=env, **settings)

    def poll(self) -> int | None:
        """Return the exit code, or None while the JVM runs.

        Raises
        ------
        SessionError
            DISK_FULL.
        """
        code = super().poll()
        if code is not None or not any(self._folder.glob("connection*.info")):
            return code
        self._seen = self._seen or time.monotonic()
        if time.monotonic() - self._seen < _STALLED_S:
            return None
        os.kill(self.pid, signal.SIGKILL)  # ``self.kill`` polls again.
        self.wait()
        what = f"the JVM of Spark cannot write its address into {self._folder.parent}, and its disk is full"
        hint = "Make room there, or set TMPDIR to another folder, and start the program again"
        raise SessionError("DISK_FULL", f"{what}. {hint}: no query has begun, and checkpoints are as before")


def ignore_sigterm() -> None:
    """Let the JVM that this process has started ignore SIGTERM from now on.

    ``timeout`` and systemd send SIGTERM to all processes of a job, and a JVM would end in the middle of an
    epoch. It still ends with this process, because it reads its standard input.
    """
    gateway = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    java = gateway.jvm.sun.misc
    # A JVM with -Xrs leaves signals to the system.
    with suppress(Py4JJavaError):
        java.Signal.handle(java.Signal("TERM"), java.SignalHandler.SIG_IGN)


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

    A process of the JVM prints five lines about itself whenever a query with a stateful Python operator
    starts, and no setting of Spark turns them off. The JVM therefore gets a pipe, and a thread passes on all
    other lines.

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
