"""Runs the statements of clients in processes of their own, which are used again.

A process has a share of the memory of all questions, and runs one statement at a time. It is killed if a
statement does not end in time. Another one starts when it is needed.
"""

import json
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import LifoQueue
from threading import Event, Timer
from typing import Any

import pyarrow as pa

from thetastream.errors import QueryError, StoreError, ThetastreamError
from thetastream.service.limits import Limits
from thetastream.stores.answer_encoding import ARROW
from thetastream.stores.question import make_slow
from thetastream.stores.statement_worker import LENGTH

GRACE_S = 2.0
"""How long after its time a statement may still run. DuckDB does not interrupt a function that is at work."""
SETTINGS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Other allocators reserve memory that they do not use, and it would count for the limit."""
OpenRows = Callable[[], Any]
"""A function that opens the rows of a statement, a table or data set of Arrow. It must be picklable, because
the process of the statement calls it."""
ERRORS: dict[str, type[ThetastreamError]] = {"StoreError": StoreError}
"""The errors of statements that are no ``QueryError``."""


class StatementPool:
    """As many processes as questions may run at the same time. None starts before it is needed.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        limits.question_bytes  # noqa: B018 (it raises BAD_VALUE)
        # The process that was used last is used next, so a service with few clients has few processes.
        self._idle: LifoQueue[Worker | None] = LifoQueue()
        for _ in range(limits.questions):
            self._idle.put(None)

    def ask(self, open_rows: OpenRows, sql: str) -> pa.Table:
        """Run one SELECT of a client, as ``encode`` does, and return its answer as a table."""
        return pa.ipc.open_stream(self.encode(open_rows, sql, ARROW)).read_all()

    def encode(self, open_rows: OpenRows, sql: str, media_type: str) -> bytes:
        """Run one SELECT of a client, and encode its answer.

        Parameters
        ----------
        open_rows : callable without arguments
            Opens the rows.
        sql : str
        media_type : str
            As in ``encode_table``.

        Raises
        ------
        QueryError
            STORE_QUERY, MISSING_PACKAGE, TOO_MANY_ROWS, TOO_SLOW, or TOO_LARGE if the statement needs more
            memory than its share.
        ThetastreamError
            What ``open_rows`` raises.
        """
        worker = self._idle.get()
        try:
            if worker is None or worker.has_ended:
                worker = Worker(self._limits)
            return worker.encode(open_rows, sql, media_type)
        finally:
            self._idle.put(worker if worker is not None and worker.end.alive else None)


class Worker:
    """A process for statements. It ends with this object and with this program.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.seconds
        arguments = (limits.question_bytes, limits.rows, limits.seconds)
        self._process = subprocess.Popen(  # noqa: S603 (it starts a module of this package)
            [sys.executable, "-m", "thetastream.stores.statement_worker", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal is for the service, which ends its processes.
            start_new_session=True,
            env={**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.end = weakref.finalize(self, _end_process, self._process)
        """A function that ends the process and waits for it. ``end.alive`` is true until it is called."""
        try:
            self._read(1)
        except EOFError:
            raise self._make_ended() from None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself, or somebody has killed it."""
        return self._process.poll() is not None

    def encode(self, open_rows: OpenRows, sql: str, media_type: str) -> bytes:
        """Run one SELECT, and encode its answer.

        Raises
        ------
        QueryError
            The error of the statement, TOO_SLOW, or STORE_QUERY if the process has ended.
        """
        is_late = Event()

        def kill() -> None:
            is_late.set()
            self._process.kill()

        request = pickle.dumps((open_rows, sql, media_type))
        alarm = Timer(self._seconds + GRACE_S, kill)
        alarm.start()
        try:
            head, answer = self._exchange(request)
        except (OSError, EOFError, ValueError):
            raise make_slow(self._seconds) if is_late.is_set() else self._make_ended() from None
        finally:
            alarm.cancel()
            if is_late.is_set():
                self.end()
        if head["is_last"]:
            self.end()
        if head["error"] is not None:
            kind, condition, message = head["error"]
            raise ERRORS.get(kind, QueryError)(condition, message)
        return answer

    def _exchange(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        self._requests.write(LENGTH.pack(len(request)))
        self._requests.write(request)
        self._requests.flush()
        head = json.loads(self._read_text())
        return head, self._read_text()

    def _read_text(self) -> bytes:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        return self._read(length)

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


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
