"""Runs the statements of clients in processes of their own, which are used again.

A process has a share of the memory of all questions, and runs one statement at a time. It is killed if a
statement does not end in time. Processes start one after the other, while statements wait. A statement gets
the process that is free first. That is seldom the one that starts because of it: a start takes a second, and
most statements take some milliseconds.

If a process cannot start, the statements that wait for one fail, and so do those of the next moment. So no
statement waits for ever, and clients cannot let the service start processes in a row that all fail.

A process works in an empty folder of its own, searches no current folder for modules, and gets few variables
of the environment: those of the system, and those with which stores are opened. The token of the service is
not among them. What the system has to restrict a process, restricts it (``thetastream.service.sandbox``).
"""

import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Event, Lock, Thread, Timer
from typing import Any

import pyarrow as pa

from thetastream.core.errors import QueryError, StoreError, ThetastreamError
from thetastream.core.private_folder import refuse_unsafe
from thetastream.core.search_path import list_program_folders, write_search_path
from thetastream.core.stopping import Stop
from thetastream.results.question import make_slow
from thetastream.service import sandbox
from thetastream.service.bodies import ClientMemory, Encoded, ResponseMemory
from thetastream.service.limits import Limits
from thetastream.service.statement_worker import ARROW, LENGTH

WORKER = "thetastream.service.statement_worker"
"""The module that such a process runs."""
START_S = 120.0
"""The longest time in which a process must be ready, in seconds."""
PAUSE_S = 2.0
"""The time after a process could not start in which none is started, in seconds."""
GRACE_S = 2.0
"""How long after its time a statement may still run. DuckDB does not interrupt a function that is at work."""
AGAIN_S = 0.1
"""The time after which a statement whose client has left is interrupted again, in seconds."""
SETTINGS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Other allocators reserve memory that they do not use, and it would count for the limit."""
VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH")
"""The variables that every process gets."""
PREFIXES = ("LC_", "DYLD_", "NUMBA_")
"""The beginnings of more such variables. A shorter one would also begin ``HOMEBREW_GITHUB_API_TOKEN``."""
OpenRows = Callable[[], Any]
"""A function that opens the rows of a statement, a table or data set of Arrow. It must be picklable, because
the process of the statement calls it."""
ERRORS: dict[str, type[ThetastreamError]] = {"StoreError": StoreError}
"""The errors of statements that are no ``QueryError``."""
LOG = logging.getLogger("thetastream.service")


class StatementPool:
    """At most as many processes as questions may run at the same time.

    Parameters
    ----------
    limits : Limits
    variables : iterable of str
        Prefixes of the variables of the environment that opening rows needs, besides those that every process
        gets.
    folders : iterable of str, optional
        The folders of this machine from which rows are read. None: opening rows needs the network.
    """

    def __init__(
        self, limits: Limits, variables: Iterable[str] = (), folders: Iterable[str] | None = ()
    ) -> None:
        self._limits = limits
        self._variables = tuple(variables)
        self._folders = None if folders is None else tuple(folders)
        self._folder = tempfile.TemporaryDirectory(prefix="thetastream-statements-")
        refuse_unsafe(Path(self._folder.name))
        limits.question_bytes  # noqa: B018 (it raises BAD_VALUE)
        self._changed = Condition()
        # The process that was used last is used next, so a service with few clients has few processes.
        self._idle: list[Worker] = []
        self._n_workers = 0
        self._is_starting = False
        self._failed_at: float | None = None
        """When the last start failed; None if it did not."""

    def prepare(self) -> None:
        """Start the first process, and wait until it is ready, so that the first statement need not wait.

        Raises
        ------
        QueryError
            TOO_BUSY if it cannot start.
        """
        self._give_back(self._take(Stop()))

    def ask(self, open_rows: OpenRows, sql: str) -> pa.Table:
        """Run one SELECT of a client, as ``encode`` does, and return its answer as a table."""
        return pa.ipc.open_stream(self.encode(open_rows, sql, ARROW).content).read_all()

    def encode(
        self,
        open_rows: OpenRows,
        sql: str,
        media_type: str,
        memory: ResponseMemory | ClientMemory | None = None,
        stop: Stop | None = None,
    ) -> Encoded:
        """Run one SELECT of a client, and encode its answer.

        Parameters
        ----------
        open_rows : callable without arguments
            Opens the rows.
        sql : str
        media_type : str
            As in ``encode_table``.
        memory : ResponseMemory or ClientMemory, optional
            The memory from which the answer takes its bytes. Until there is enough, it stays in its process.
        stop : Stop, optional
            Stops the statement.

        Raises
        ------
        QueryError
            STORE_QUERY, MISSING_PACKAGE, TOO_MANY_ROWS, TOO_SLOW, or TOO_LARGE if the statement needs more
            memory than its share, or TOO_BUSY if no process can start.
        ThetastreamError
            What ``open_rows`` raises.
        """
        stop = stop or Stop()
        worker = self._take(stop)
        try:
            return worker.encode(open_rows, sql, media_type, memory, stop)
        finally:
            self._give_back(worker)

    def _take(self, stop: Stop) -> "Worker":
        """Take a process that is free. If there is none, wait for one, and let another one start.

        Raises
        ------
        QueryError
            TOO_BUSY if no process can start, none is free for too long, or the client has left.
        """
        with stop.attach(self._wake), self._changed:
            is_free = True
            while is_free and not stop.is_set:
                while self._idle:
                    worker = self._idle.pop()
                    if not worker.has_ended and worker.places == find_places(self._folders):
                        return worker
                    worker.end()
                    self._n_workers -= 1
                if not self._has_failed:
                    self._start()
                elif not self._n_workers:
                    break
                is_free = self._changed.wait(START_S + GRACE_S)
        what = "no process for the statement could start, or all are busy"
        raise QueryError("TOO_BUSY", f"{what}: ask again later, or look into the log of the service")

    @property
    def _has_failed(self) -> bool:
        """Whether a process could not start a moment ago."""
        return self._failed_at is not None and time.monotonic() < self._failed_at + PAUSE_S

    def _wake(self) -> None:
        """Let statements that wait look whether their clients have left."""
        with self._changed:
            self._changed.notify_all()

    def _give_back(self, worker: "Worker") -> None:
        with self._changed:
            if worker.end.alive:
                self._idle.append(worker)
            else:
                self._n_workers -= 1
            self._changed.notify_all()

    def _start(self) -> None:
        """Start one more process in the background, unless one is starting or there are enough."""
        if self._is_starting or self._n_workers >= self._limits.questions:
            return
        self._n_workers += 1
        self._is_starting = True
        Thread(target=self._run_start, name="statement-start", daemon=True).start()

    def _run_start(self) -> None:
        worker = None
        try:
            worker = Worker(self._limits, self._folder.name, self._variables, self._folders)
        except Exception as error:
            LOG.error("A process for statements could not start: %s", error)
        with self._changed:
            self._is_starting = False
            if worker is not None:
                self._idle.append(worker)
                self._failed_at = None
            else:
                self._n_workers -= 1
                self._failed_at = time.monotonic()
            self._changed.notify_all()


class Worker:
    """A process for statements. It ends with this object and with this program.

    Parameters
    ----------
    limits : Limits
    folder : str
        The folder in which the process works, also for temporary files.
    variables, folders
        As in ``StatementPool``.
    """

    def __init__(
        self, limits: Limits, folder: str, variables: Iterable[str], folders: tuple[str, ...] | None
    ) -> None:
        self._seconds = limits.seconds
        self.places = find_places(folders)
        """What the folders were when the process started. It reads nothing that has taken their place."""
        arguments = (limits.question_bytes, limits.rows, limits.seconds)
        self._process = subprocess.Popen(  # noqa: S603 (it starts a file of this package)
            [sys.executable, "-P", sandbox.__file__, json.dumps(folders), WORKER, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal is for the service, which ends its processes.
            start_new_session=True,
            cwd=folder,
            env=_choose_environment(folder, variables),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._writing = Lock()
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.end = weakref.finalize(self, _end_process, self._process)
        """A function that ends the process and waits for it. ``end.alive`` is true until it is called."""
        # A disk that does not answer, or a program that the system has stopped, would let it start for ever.
        alarm = _start_timer(START_S, self._process.kill)
        try:
            self._read(1)
        except EOFError:
            raise self._make_ended() from None
        finally:
            alarm.cancel()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself, or somebody has killed it."""
        return self._process.poll() is not None

    def encode(
        self,
        open_rows: OpenRows,
        sql: str,
        media_type: str,
        memory: ResponseMemory | ClientMemory | None,
        stop: Stop,
    ) -> Encoded:
        """Run one SELECT, and encode its answer.

        Raises
        ------
        QueryError
            The error of the statement, TOO_SLOW, or STORE_QUERY if the process has ended.
        """
        is_late, is_over = Event(), Event()

        def kill() -> None:
            if not is_over.is_set():
                is_late.set()
                self._process.kill()

        def interrupt() -> None:
            with suppress(OSError, ValueError), self._writing:
                # The next statement must not be interrupted in place of this one.
                if is_over.is_set():
                    return
                self._requests.write(LENGTH.pack(0))
                self._requests.flush()
            # DuckDB forgets an interruption that comes a moment before a statement begins.
            _start_timer(AGAIN_S, interrupt)

        def give_up() -> None:
            interrupt()
            # DuckDB does not interrupt everything.
            _start_timer(GRACE_S, kill)

        request = pickle.dumps((open_rows, sql, media_type))
        alarm = _start_timer(self._seconds + GRACE_S, kill)
        try:
            self._send(request)
            with stop.attach(give_up):
                head = json.loads(self._read(self._read_length()))
            # The statement has ended in time. Its answer may wait for memory.
            alarm.cancel()
            nbytes = self._read_length()
            give_back = memory.take(nbytes, stop) if memory is not None and nbytes else _keep
            try:
                answer = Encoded(self._read(nbytes), give_back)
            except BaseException:
                give_back()
                raise
        except (OSError, EOFError, ValueError):
            raise make_slow(self._seconds) if is_late.is_set() else self._make_ended() from None
        except QueryError:
            # The answer is still in the pipe.
            self.end()
            raise
        finally:
            with self._writing:
                is_over.set()
            alarm.cancel()
            if is_late.is_set():
                self.end()
        if head["is_last"]:
            self.end()
        if head["error"] is not None:
            kind, condition, message = head["error"]
            raise ERRORS.get(kind, QueryError)(condition, message)
        return answer

    def _send(self, request: bytes) -> None:
        with self._writing:
            self._requests.write(LENGTH.pack(len(request)))
            self._requests.write(request)
            self._requests.flush()

    def _read_length(self) -> int:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        return int(length)

    def _read(self, n: int) -> bytes:
        data = self._answers.read(n)
        if len(data) < n:
            raise EOFError
        return data

    def _make_ended(self) -> QueryError:
        with suppress(subprocess.TimeoutExpired):  # The pipe ends a moment before the process.
            self._process.wait(timeout=GRACE_S)
        self.end()
        what = f"the process of the statement has ended with code {self._process.returncode}"
        hint = "the machine has too little memory, or the log of the service has an error"
        return QueryError("STORE_QUERY", f"{what}: {hint}")


def find_places(folders: tuple[str, ...] | None) -> list[tuple[int, int] | None]:
    """Find what lies at these paths now: the device and the number of each folder, None if there is none."""
    places: list[tuple[int, int] | None] = []
    for folder in folders or ():
        try:
            known = os.stat(folder)
        except OSError:
            places.append(None)
        else:
            places.append((known.st_dev, known.st_ino))
    return places


def _start_timer(seconds: float, act: Callable[[], None]) -> Timer:
    alarm = Timer(seconds, act)
    alarm.daemon = True
    alarm.start()
    return alarm


def _keep() -> None:
    """Give nothing back."""


def _choose_environment(folder: str, variables: Iterable[str]) -> dict[str, str]:
    """Choose the environment of a process: what it needs and no more."""
    prefixes = (*PREFIXES, *variables)
    kept = {
        name: value for name, value in os.environ.items() if name in VARIABLES or name.startswith(prefixes)
    }
    search_path = write_search_path(list_program_folders())
    return {**kept, **SETTINGS, "TMPDIR": folder, "PYTHONPATH": search_path}


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
