"""Shows why a query failed as one paragraph, instead of the tracebacks of Spark around it.

An error of ours that is raised in a worker reaches the driver inside an exception of Spark, after a Python
traceback and Java stacks of hundreds of lines. If nothing catches this exception, only our error is printed.
If a worker or a JVM has died because memory ran out, or a worker lacks a module, the paragraph says so, and
what to change.
``THETASTREAM_TRACEBACK=1`` in the environment shows all of it.
"""

import logging
import re
import subprocess
import sys
from types import TracebackType
from typing import Any

from pyspark.logger import PySparkLogger

from thetastream.core import errors
from thetastream.core.errors import FLAG, QueryError, shows_tracebacks
from thetastream.spark.session.causes import find_cause
from thetastream.spark.session.memory import DRIVER_MEMORY, EXECUTOR_MEMORY
from thetastream.spark.session.worker_packages import find_missing_module

LONGEST = 1000
"""The longest summary of a failure, in characters."""
_NAMES = "|".join(
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
)
_OURS = re.compile(rf"thetastream\.core\.errors\.({_NAMES}): (\[[A-Z_]+\] .*)")
_GONE = re.compile(r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.?\s")
_MISMATCH = re.compile(
    r"\[FAILED_READ_FILE\.PARQUET_COLUMN_DATA_TYPE_MISMATCH\] Encountered error while reading file (\S+?)\.? "
    r"Data type mismatches when reading Parquet column \[(.+?)\]\. "
    r"Expected Spark type (.+?), actual Parquet type (\w+)"
)
_QUERY = re.compile(r"Query (?P<name>.*?)\[id = (?P<id>[\w-]+)")
_KILLED = re.compile(r"Python worker (?:process )?(?:exited|terminated) unexpectedly|exit code 137|SIGKILL")
_PYTHON = re.compile(r"(?:\w+\.)*(?:ArrowMemoryError|_ArrayMemoryError|MemoryError)\b[^\n]*")
_JVM = re.compile(r"(?:[\w$]+\.)*(?:OutOfDirectMemoryError|OutOfMemoryError|OutOfMemoryException)\b[^\n]*")
_CALLED = "An error occurred while calling "
"""How Py4J begins the text of an exception."""
_LOST = "Exception while sending command."
"""What Py4J logs with its traceback if the JVM does not answer any more."""
OUT_OF_MEMORY = 52
"""The exit code of a JVM of Spark that has no memory left."""


def find_error(text: str) -> str | None:
    r"""Find our error in the text of an exception of Spark, or one of Spark that has a name of ours: what a
    join with a table makes likely, and disks, checkpoints and sources. Return None if there is none.

    >>> print(find_error("Traceback ...\nthetastream.core.errors.StateError: [X] is damaged\n at java"))
    StateError: [X] is damaged
    """
    found = _OURS.findall(text)
    if found:
        return f"{found[-1][0]}: {found[-1][1].strip()}"
    if not _QUERY.search(text):
        return None
    if gone := _GONE.search(text):
        return f"QueryError: {QueryError('FILE_GONE', _describe_gone(gone[1]))}"
    if mismatch := _MISMATCH.search(text):
        return f"QueryError: {QueryError('FILE_TYPE', _describe_mismatch(*mismatch.groups()))}"
    return name_cause(text)


def name_cause(text: str) -> str | None:
    """Write what ``find_cause`` finds as a line, with the class of the error. None if it finds nothing."""
    cause = find_cause(text)
    return None if cause is None else f"{type(cause).__name__}: {cause}"


def read_text(error: BaseException) -> str:
    """Read the message of an exception, and the Java stack that an exception of Spark has beside it."""
    stack = getattr(error, "_stackTrace", None)
    return f"{error}\n{stack}" if isinstance(stack, str) else str(error)


def _describe_gone(path: str) -> str:
    return (
        f"the query reads the file {path}, which was removed or written again. Spark lists the files of a "
        "table beside streams once, when the DataFrame is made. Make the DataFrame again and start the query "
        "with its checkpoint: it continues with the new files. Or keep the table in a format with versions, "
        "such as Delta"
    )


def _describe_mismatch(path: str, column: str, wanted: str, found: str) -> str:
    what = (
        f"the schema of the DataFrame says that the column {column} is {wanted.upper()}, and the file {path} "
        f"has {found} there. "
    )
    if found == "INT64" and wanted.startswith("timestamp"):
        return what + (
            "If these are nanoseconds, which Spark does not have, write BIGINT in the schema, and make the "
            f'event time with th.from_nanos("{column}")'
        )
    return what + "Write the type of the file in the schema, and cast the column behind it"


def unwrap_error(error: BaseException) -> errors.ThetastreamError | None:
    """Make our error from an exception of Spark, or of Py4J if the JVM has ended. None if there is none."""
    text = read_text(error)
    what = find_error(text) or explain_failure(text) or _explain_end(error) or ""
    found = re.fullmatch(r"(?:\w+: )?\[([A-Z_]+)\] (.*)", what)
    return None if found is None else errors.ThetastreamError(found[1], found[2])


def summarize_failure(text: str) -> str:
    r"""Reduce the text of the exception that ended a query to one line: its class and its message.

    >>> summarize_failure("a.b.SparkException: [STREAM_FAILED] x\nthetastream.core.errors.StateError: [Y] z")
    'StateError: [Y] z'
    >>> summarize_failure("org.apache.spark.SparkException: [TASK] lost\n\tat java")
    'SparkException: [TASK] lost'
    >>> summarize_failure("An error occurred while calling o5.collect.\n: java.io.IOException: no\n\tat x")
    'IOException: no'
    """
    lines = (line.strip().removeprefix(": ") for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(_CALLED)), "")
    found = find_error(text) or name_cause(text) or explain_failure(text)
    return (found or re.sub(r"^(?:\w+\.)+(\w+)", r"\1", first))[:LONGEST]


def summarize_exception(error: BaseException) -> str:
    """Reduce an exception to one line, as ``summarize_failure`` does; its class if it has no text.

    >>> summarize_exception(ValueError("no rows")), summarize_exception(ZeroDivisionError())
    ('no rows', 'ZeroDivisionError')
    """
    return summarize_failure(read_text(error)) or type(error).__name__


def describe_failure(error: BaseException) -> str | None:
    """Return the paragraph that is printed for an exception. Return None if it should be shown as it is."""
    if shows_tracebacks() or isinstance(error, errors.ThetastreamError):
        return None
    text = read_text(error)
    found = find_error(text)
    what = f"thetastream.core.errors.{found}" if found else explain_failure(text) or _explain_end(error)
    if what is None:
        return None
    what = what if what.endswith(".") else f"{what}."
    query = _QUERY.search(text)
    which = "" if query is None else f" It stopped the query {query['name'].strip() or query['id']}."
    return f"{what}{which} Set {FLAG}=1 to see the tracebacks of Spark."


def _explain_end(error: BaseException) -> str | None:
    """Explain why the JVM has ended, if the error is that Python cannot reach it any more."""
    from py4j.protocol import Py4JNetworkError

    code = wait_for_end(5) if isinstance(error, Py4JNetworkError | ConnectionError) else None
    return None if code is None else explain_exit(code)


def wait_for_end(seconds: float) -> int | None:
    """Wait until the JVM of this process has ended; return its exit code.

    It is None if the JVM still runs then, or if this process has started none, as with Spark Connect.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(timeout=seconds))
    except subprocess.TimeoutExpired:
        return None


def hide_lost_connections() -> None:
    """Keep PySpark from printing tracebacks when the JVM has ended. A command prints one error then.

    Py4J logs that it cannot send a command, and the server of accumulators prints that its input has ended.
    """
    from pyspark import SparkContext

    if not shows_tracebacks():
        logging.getLogger().addFilter(lambda record: record.msg != _LOST)
        server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *_: None


def show_failures_shortly() -> None:
    """Print uncaught exceptions of Spark as one paragraph from now on, in programs and in notebooks."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)
    shell = _find_shell()
    if shell is not None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        shell.set_custom_exc((PySparkException, Py4JError, ConnectionError), _show_in_shell)


class _Hook:
    """Replaces ``sys.excepthook`` and passes on all exceptions that are not ours."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        shown = describe_failure(error)
        if shown is None:
            self._before(kind, error, trace)
        else:
            print(shown, file=sys.stderr)


def _show_in_shell(shell: Any, kind: Any, error: BaseException, trace: Any, tb_offset: Any = None) -> None:
    shown = describe_failure(error)
    if shown is None:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    else:
        # The cell has an error then, which papermill and nbclient report as their reason.
        shell._showtraceback(kind, error, [shown])


def _find_shell() -> Any:
    """Return the IPython shell in which this process runs, or None."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def list_loggers() -> list[logging.Logger]:
    """List the loggers in which PySpark writes each analysis error with its Java stack."""
    return [
        PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]


def explain_failure(text: str) -> str | None:
    r"""Explain an exception of Spark if memory or a missing module is its cause; None otherwise.

    >>> explain_failure("... \njava.lang.OutOfMemoryError: Java heap space\n\tat x")[:56]
    '[OUT_OF_MEMORY] A JVM of Spark had no memory left (java.'
    >>> explain_failure("[X] no table") is None
    True
    """
    python, jvm = _PYTHON.search(text), _JVM.search(text)
    if jvm is not None:
        return _advise(f"A JVM of Spark had no memory left ({jvm[0].strip()}).", is_jvm=True)
    if python is not None:
        return _advise(f"A Python worker had no memory left ({python[0].strip()}).", is_jvm=False)
    if _KILLED.search(text):
        what = (
            "A Python worker ended without an error. The operating system ends a process in this way when "
            "memory runs out (its log says so), and a crash of native code looks the same."
        )
        return _advise(what, is_jvm=False)
    missing = find_missing_module(text)
    return None if missing is None else str(missing)


def explain_exit(code: int) -> str:
    """Explain why the JVM of a session has ended, by its exit code.

    >>> explain_exit(52)[:68]
    '[OUT_OF_MEMORY] The JVM of this session had no memory left (exit cod'
    >>> explain_exit(1)
    '[SPARK_ENDED] The JVM of this session has ended (exit code 1); its log says why. Start a new session.'
    """
    if code == OUT_OF_MEMORY:
        return _advise(f"The JVM of this session had no memory left (exit code {code}).", is_jvm=True)
    if code in (-9, 137):
        what = (
            "The JVM of this session was killed. The operating system ends a process in this way when memory "
            "runs out (its log says so)."
        )
        return _advise(what, is_jvm=False)
    what = f"The JVM of this session has ended (exit code {code}); its log says why. Start a new session."
    return f"[SPARK_ENDED] {what}"


def _advise(what: str, *, is_jvm: bool) -> str:
    """Add what to change to an explanation."""
    more = (
        f"Give it more before the session starts ({DRIVER_MEMORY} of a local session, or {EXECUTOR_MEMORY})"
        if is_jvm
        else f"Leave more of the machine to it: fewer cores, or less for JVMs ({DRIVER_MEMORY})"
    )
    less = (
        "let an epoch bring less (maxFilesPerTrigger, maxOffsetsPerTrigger), carry fewer or smaller columns, "
        "or give a shorter window"
    )
    again = "Start the query again: if it has a checkpoint, it continues from it."
    return f"[OUT_OF_MEMORY] {what} {more}; or {less}. {again}"
