"""The process in which a service runs the statements of its clients, one at a time.

DuckDB bounds the memory of tables, but not that of a single value, and it does not interrupt a function that
makes a value. So a statement runs in a process whose memory the operating system bounds (``RLIMIT_DATA``),
and which the service kills if a statement takes too long (``thetastream.service.statement_pool``). It runs in
a sandbox of the system (``thetastream.service.sandbox``).

The process opens the rows of a statement itself, and keeps recent results in memory as every reader does.
They do not count for the limit of a statement.

When the process is ready, it writes one byte. A request is its length and a pickle of (function that opens
the rows, statement, media type). The length 0 stops the statement, because its client has left. An answer is
the length and the text of JSON with the error or null, and then the length and the text of the encoded rows.
The rows are encoded here, because JSON may need far more memory than their table: Arrow may have a text once
that is in every row. The service unpickles nothing that comes from this process.

An answer is JSON or an Arrow IPC stream. JSON has no NaN, no infinite numbers, no bytes and no times. They
are written as Spark's ``to_json`` writes them: ``"NaN"``, ``"Infinity"``, base64, and times in ISO form.
Integers keep all their digits.
"""

import base64
import json
import os
import pickle
import struct
import sys
import traceback
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from math import isfinite, isnan
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.dataset

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.stopping import Stop
from thetastream.results.frugal_rows import FrugalRows
from thetastream.results.question import ask, open_database
from thetastream.service.traceless import leaves_no_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTH = struct.Struct("<Q")
KEPT_BYTES = 1 << 30
"""What the process may keep of earlier statements: recent results, values of keys, and memory that DuckDB
does not return. If it keeps more, it ends, and another one starts."""
SPARE_BYTES = 128 << 20
"""What a statement may take beyond its memory: stacks of threads, and what Arrow reads ahead from files."""
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
CHUNK_ROWS = 1000
"""The number of rows that are values of Python at one time, because these need much memory."""
DAY_US = 86_400_000_000


def run(arguments: "Sequence[str]") -> NoReturn:
    """Answer requests until the service ends, and end this process."""
    # Python cannot shut down while the other thread reads, so the process ends without that.
    try:
        main(int(arguments[0]), int(arguments[1]), float(arguments[2]))
    except Exception:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(memory: int, max_rows: int, max_s: float) -> None:
    """Answer requests on the standard input until it ends.

    Parameters
    ----------
    memory : int
        The memory of a statement, in bytes.
    max_rows : int
        The largest number of rows of an answer.
    max_s : float
        The longest time of a statement, in seconds.
    """
    # What libraries print must not come between answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    arrived: SimpleQueue[tuple[bytes, Stop]] = SimpleQueue()
    Thread(target=_read_requests, args=(sys.stdin.buffer, arrived), daemon=True).start()
    # Load DuckDB before the memory is measured.
    database = open_database(f"{memory}B")
    ask(pa.table({"x": [1]}), "SELECT x FROM results", database=database)
    largest = _measure_bytes() + KEPT_BYTES
    answers.write(b".")
    answers.flush()
    is_last = False
    while not is_last:
        request, stop = arrived.get()
        open_rows, sql, media_type = pickle.loads(request)  # noqa: S301 (the service has written it)
        answer, error, is_clean = b"", None, False
        try:
            rows = open_rows()
            if isinstance(rows, pyarrow.dataset.Dataset):
                rows = FrugalRows(rows)
            with _limit_memory(_measure_bytes() + memory + SPARE_BYTES):
                table = ask(rows, sql, max_rows=max_rows, max_s=max_s, stop=stop, database=database)
                answer = encode_table(table, media_type)
            del table
            is_clean = leaves_no_trace(database, sql)
        except ThetastreamError as refusal:
            # DuckDB's error of memory has no condition of its own.
            is_large = refusal.condition == "STORE_QUERY" and "out of memory" in refusal.message.casefold()
            error = _refuse_large(memory) if is_large else _describe(refusal)
        except MemoryError:  # Arrow's error is one too.
            error = _refuse_large(memory)
        # What a statement without enough memory has used stays with DuckDB. A new process has all of it.
        is_last = _measure_bytes() > largest or (error is not None and error[1] == "TOO_LARGE")
        _write(answers, {"error": error, "is_last": is_last}, answer)
        # The next statement is that of another client. It finds nothing of this one, whatever this one did.
        if not is_clean:
            database.close()
            database = open_database(f"{memory}B")


def _read_requests(pipe: BinaryIO, arrived: "SimpleQueue[tuple[bytes, Stop]]") -> None:
    """Read requests until the service closes the pipe or ends. Then end this process at once."""
    import duckdb

    stop = Stop()
    while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        if length:
            stop = Stop()
            arrived.put((pipe.read(length), stop))
        else:
            # DuckDB refuses to interrupt a statement that has ended in the meantime. Its database is closed.
            with suppress(duckdb.Error):
                stop.set()
    os._exit(0)


def _refuse_large(memory: int) -> list[str]:
    what = f"a statement may use {memory / 1e6:,.0f} MB, and this one needs more"
    return _describe(QueryError("TOO_LARGE", f"{what}: ask for less, by since, until or key"))


def _describe(error: ThetastreamError) -> list[str]:
    return [type(error).__name__, error.condition, error.message]


def _write(pipe: BinaryIO, head: dict[str, object], answer: bytes) -> None:
    for text in (json.dumps(head).encode(), answer):
        pipe.write(LENGTH.pack(len(text)))
        pipe.write(text)
    pipe.flush()


def _measure_bytes() -> int:
    """Measure the private memory of this process, which counts for the limit. Only Linux has the figure."""
    if sys.platform != "linux":
        return 0
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


@contextmanager
def _limit_memory(nbytes: int) -> "Iterator[None]":
    """Bound the private memory of this process. Other systems than Linux do not count all of it."""
    if sys.platform != "linux":
        yield
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def encode_table(rows: pa.Table, media_type: str) -> bytes:
    """Write a table as an Arrow IPC stream or as a JSON array with one object for each row.

    >>> encode_table(pa.table({"x": [1.5, float("nan"), None]}), JSON)
    b'[{"x":1.5},{"x":"NaN"},{"x":null}]'

    Raises
    ------
    QueryError
        STORE_QUERY if the media type cannot have a value of the table, as JSON a time after the year 9999.
    """
    try:
        return _encode_arrow(rows) if media_type == ARROW else _encode_rows(rows)
    except (ValueError, ArithmeticError, RecursionError) as error:  # ArrowInvalid is a ValueError.
        hint = "Cast such values to VARCHAR" + ("" if media_type == ARROW else ", or accept Arrow")
        what = f"a value of the answer cannot be written as {media_type}: {error}"
        raise QueryError("STORE_QUERY", f"{what}. {hint}") from error


def _encode_arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _encode_rows(rows: pa.Table) -> bytes:
    for column in rows.columns:
        for times in chain.from_iterable(map(_find_times, column.chunks)):
            _refuse_lost_times(times)
    text = bytearray(b"[")
    for start in range(0, len(rows), CHUNK_ROWS):
        if start:
            text += b","
        text += encode_json(rows.slice(start, CHUNK_ROWS).to_pylist())[1:-1]
    text += b"]"
    return bytes(text)


def _find_times(array: pa.Array) -> "Iterator[pa.Array]":
    """Find the arrays of TIME in an array, which may be nested."""
    kind = array.type
    if pa.types.is_time64(kind):
        yield array
    elif pa.types.is_map(kind):
        yield from chain(_find_times(array.keys), _find_times(array.items))
    elif pa.types.is_struct(kind):
        yield from chain.from_iterable(map(_find_times, array.flatten()))
    elif pa.types.is_union(kind):
        yield from chain.from_iterable(_find_times(array.field(n)) for n in range(kind.num_fields))
    elif pa.types.is_nested(kind) and hasattr(array, "flatten"):
        yield from _find_times(array.flatten())


def _refuse_lost_times(times: pa.Array) -> None:
    """Raise ValueError if Python has no such time of a day: it is midnight at the end, or has nanoseconds."""
    per_us = 1000 if times.type.unit == "ns" else 1
    numbers = times.drop_null().view(pa.int64()).to_numpy()
    if (numbers >= DAY_US * per_us).any() or (numbers % per_us).any():
        raise ValueError("24:00:00, or a time with nanoseconds, would become another time")


def encode_json(value: Any) -> bytes:
    """Write plain values of Python as JSON."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return value
