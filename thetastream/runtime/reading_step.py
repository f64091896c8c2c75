"""The step of a Spark task that reads files of a stream and routes their tuples, without rows of Spark.

    paths -> rows of files -> rows that may have partners -> block columns -> router -> rows of the exchange

Spark keeps the watermark. Each row of the exchange has the latest event time that was read before it. Two
rows behind all others have the earliest and the latest event time of the task, also if no tuple was routed.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import LARGEST_TUPLE, RowFacts
from thetastream.core.columns import EMPTY, HASH
from thetastream.core.errors import StateError
from thetastream.core.keys import mix
from thetastream.lowering.plain_columns import Conversion, PlainColumn, PlainColumns
from thetastream.runtime.parquet_files import ParquetColumns
from thetastream.runtime.routing_step import Batches, make_rows, repeat_nothing

READ_TIME = "read_time"
"""The column of rows of the exchange from which Spark computes the watermark."""


@dataclass(frozen=True)
class StreamReading:
    """How a stream is read and made into blocks. Picklable."""

    alias: str
    stream: int
    files: ParquetColumns
    columns: PlainColumns
    has_hash: bool
    """Whether blocks have a hash of each tuple, which spreads the tuples over units."""
    time: str | None
    """The event time; None if there is none."""
    counts_all: bool
    """Whether rows that have no partners move the watermark too."""
    first_unit: int
    """The grouping key of a unit, to which the last rows of a task go."""


def make_reading_step(
    reading: StreamReading, route: Callable[[Batches], Batches]
) -> Callable[[Batches], Batches]:
    """Make the function that turns batches of paths into rows of the exchange.

    ``route`` is the step that routes batches of block columns. If there is an event time, the rows have the
    column ``READ_TIME`` in addition.
    """
    wanted = reading.columns.fields
    if reading.time is not None:
        wanted = tuple(dict.fromkeys((*wanted, reading.time)))

    def read_and_route(paths: Batches) -> Batches:
        times = _EventTimes()

        def read() -> Batches:
            for path in list_paths(paths):
                n_read = 0
                for rows in reading.files.read(path, wanted):
                    numbered = _number(rows, path, n_read) if reading.has_hash else rows
                    n_read += rows.num_rows
                    kept = _select(reading.columns, numbered)
                    if reading.time is not None:
                        times.add((rows if reading.counts_all else kept).column(reading.time))
                    _refuse_large(kept, reading.alias)
                    yield _build(reading.columns, kept)

        batches = read()
        # Rows that call the units come before those with tuples, and have an event time too.
        first = [*islice(batches, 1)]
        for rows in route(chain(first, batches)):
            yield rows if reading.time is None else _add_time(rows, times.latest)
        if times.latest is not None:
            for time_us in (times.earliest, times.latest):
                row = make_rows([reading.first_unit], EMPTY, reading.stream, 0, repeat_nothing(1))
                yield _add_time(row, time_us)

    return read_and_route


class _EventTimes:
    """The earliest and the latest event time that a task has read, in microseconds; None without one."""

    def __init__(self) -> None:
        self.earliest: int | None = None
        self.latest: int | None = None

    def add(self, column: pa.Array) -> None:
        """Take the event times of more rows in."""
        least, most = pc.min_max(column.cast(pa.int64())).values()
        if most.is_valid:
            self.earliest = min(one for one in (self.earliest, least.as_py()) if one is not None)
            self.latest = max(one for one in (self.latest, most.as_py()) if one is not None)


def _number(rows: pa.RecordBatch, path: str, n_read: int) -> pa.RecordBatch:
    """Add a number to each row of a file, behind those that were read before.

    Any numbers spread tuples over units, if they are the same when the task runs again.
    """
    places = np.arange(n_read, n_read + rows.num_rows, dtype=np.uint64)
    numbers = mix(places ^ np.uint64(zlib.crc32(path.encode()) << 32))
    return rows.append_column(HASH, pa.array(numbers.view(np.int64)))


def list_paths(batches: Batches) -> list[str]:
    """List the paths in the first column of batches."""
    return [path for batch in batches for path in batch.column(0).to_pylist()]


def _add_time(rows: pa.RecordBatch, time_us: int | None) -> pa.RecordBatch:
    times = pa.array([time_us] * rows.num_rows, pa.timestamp("us", "UTC"))
    return rows.append_column(READ_TIME, times)


def _select(columns: PlainColumns, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Select the rows that may have partners."""
    for name in columns.required:
        if rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
    passing = [one.check(rows.column(one.field)) for one in columns.filters]
    return rows.filter(reduce(pc.and_kleene, passing)) if passing else rows


def _refuse_large(rows: pa.RecordBatch, alias: str) -> None:
    """Raise if a row does not fit into a block."""
    if rows.nbytes > LARGEST_TUPLE:
        widest = RowFacts(rows).widest
        if widest > LARGEST_TUPLE:
            what = f"a tuple of stream {alias!r} has {widest} bytes, and a block can hold {LARGEST_TUPLE}"
            raise StateError("TUPLE_TOO_LARGE", f"{what}; keep large values in files, join their names")


def _build(columns: PlainColumns, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make the block columns of rows."""
    blocks = {column.name: _convert(column, rows.column(column.field)) for column in columns.columns}
    if HASH in rows.schema.names:
        blocks[HASH] = rows.column(HASH)
    return pa.RecordBatch.from_pydict(blocks)


def _convert(column: PlainColumn, values: pa.Array) -> pa.Array:
    if column.conversion is Conversion.MICROS:
        return values.cast(pa.int64())
    return _hash(values) if column.conversion is Conversion.HASH else values


def _hash(values: pa.Array) -> pa.Array:
    """Compute Spark's ``hash`` of texts or bytes, none of which is NULL."""
    from thetastream.kernels.spark_hash import hash_bytes

    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)
    hashes = np.empty(len(values), np.int32)
    hash_bytes(np.frombuffer(data or b"", np.uint8), ends, hashes)
    return pa.array(hashes)
