"""Blocks: the form in which tuples travel between operators.

A block is an Arrow record batch (ESJ calls it TUPLE_BLK). ``thetastream.core.columns`` lists its columns.

``RowFacts`` has the bytes of each row of a batch, so that pieces of results stay small although rows are
wide.
"""

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.errors import StateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import Derived, PairMeasure

D = TypeVar("D", bound=Derived)

ROWS_PER_BLOCK = 1 << 17
BYTES_PER_BLOCK = 1 << 24
"""The size at which a block is complete. Spark copies a block several times in memory, so it must not be
large."""
FILLER = "number of a filler"
"""The column that is 0 for rows and positive for fillers. No alias is this name, as it is no identifier."""

FREE_BYTES = 1 << 25
"""Bytes of blocks that the first task of an epoch sends without fillers behind them. T tasks send at most
``FREE_BYTES * (1 + ln T)`` bytes in this way, so this also bounds what they add to a batch."""

STEP = 1 << 13
"""Bytes of a row for each filler behind it, so that a batch holds about 80 MB. Batches of blocks with 330 MB
needed more direct memory than a JVM with a heap of 1 GB has."""

LARGEST_TUPLE = 1 << 29
"""The largest tuple that a block can hold, in bytes. Buffers that grow by doubling must stay below 2 GiB."""

PACKED = "packed row"
"""The only other column if rows have very many columns: a list of one struct, or NULL in a filler."""


def gather(
    batches: Iterable[pa.RecordBatch],
    rows_at_once: int = ROWS_PER_BLOCK,
    bytes_at_once: int = BYTES_PER_BLOCK,
    most_bytes: int = BYTES_PER_BLOCK,
) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches until each result has ``rows_at_once`` rows or ``bytes_at_once`` bytes.

    Batches of more than ``most_bytes`` bytes are cut, down to one row.
    """
    gathered: list[pa.RecordBatch] = []
    n_rows = nbytes = 0
    for batch in batches:
        for part in cut(batch, most_bytes):
            if gathered and nbytes + part.nbytes > most_bytes:
                yield concat(gathered)
                gathered, n_rows, nbytes = [], 0, 0
            gathered.append(part)
            n_rows += part.num_rows
            nbytes += part.nbytes
            if n_rows >= rows_at_once or nbytes >= bytes_at_once:
                yield concat(gathered)
                gathered, n_rows, nbytes = [], 0, 0
    if gathered:
        yield concat(gathered)


def cut(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of ``most_bytes`` bytes at most, or of one row; yield none without rows.

    >>> batch = pa.RecordBatch.from_pydict({"text": ["a" * 10, "b" * 90, "c" * 10, "d" * 10]})
    >>> [part.num_rows for part in cut(batch, 60)]
    [1, 1, 2]
    """
    if batch.num_rows > 1 and batch.nbytes > most_bytes:
        half = batch.num_rows // 2
        yield from cut(batch.slice(0, half), most_bytes)
        yield from cut(batch.slice(half), most_bytes)
    elif batch.num_rows:
        yield batch


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate one or more batches of the same schema.

    Raises
    ------
    StateError
        EPOCH_TOO_LARGE if the values of a column have more than 2 GiB together.
    """
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        raise StateError(
            "EPOCH_TOO_LARGE",
            f"the {sum(batch.num_rows for batch in batches)} tuples that a unit gets in an epoch have "
            f"{sum(batch.nbytes for batch in batches):,} bytes, and a column can hold 2 GiB; make epochs "
            "smaller (maxFilesPerTrigger, maxOffsetsPerTrigger), or use more units",
        ) from error


def make_nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Declare every column nullable, because Spark may decide anew in each epoch which columns are."""
    return pa.RecordBatch.from_arrays(
        batch.columns, schema=pa.schema([field.with_nullable(True) for field in batch.schema])
    )


def pack(batch: pa.RecordBatch) -> pa.Buffer:
    """Serialise the batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def make_binary(block: pa.Buffer) -> pa.Array:
    """Make a binary array of one value, without copying it.

    >>> make_binary(pa.py_buffer(b"block")).to_pylist()
    [b'block']
    """
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(struct.pack("=ii", 0, len(block))), block]
    )


def unpack(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Read what ``pack`` wrote, without copying."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


class RowFacts:
    """What is computed from the rows of a batch when it is first needed: their bytes, and arrays of searches.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    widest : int, optional
        The bytes of the widest row, if they are known.

    Examples
    --------
    >>> rows = RowFacts(pa.RecordBatch.from_pydict({"id": [1, 2, 3], "text": ["a", None, "long text"]}))
    >>> rows.each.tolist(), rows.widest
    ([13, 12, 21], 21)
    """

    def __init__(self, batch: pa.RecordBatch, widest: int | None = None) -> None:
        self.batch = batch
        self._widest = widest
        self._kept: dict[Hashable, Derived] = {}

    @property
    def mean(self) -> float:
        """The mean over all rows."""
        nbytes = int(self.batch.nbytes)
        return nbytes / max(1, int(self.batch.num_rows))

    @cached_property
    def widest(self) -> int:
        """The bytes of the widest row; 0 without rows."""
        if self._widest is not None:
            return self._widest
        return int(self.each.max()) if len(self.each) else 0

    @cached_property
    def each(self) -> Int64s:
        """The bytes of each row."""
        total = np.zeros(self.batch.num_rows, dtype=np.int64)
        for column in self.batch.columns:
            total += measure_values(column)
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that were computed so far."""
        return sum(one.nbytes for one in self._kept.values())

    def derive(self, measure: PairMeasure, column: str) -> Derived:
        """Return what ``PairMeasure.derive`` computes from a column."""
        return self.keep((measure, column), lambda: measure.derive(self.batch.column(column)))

    def keep(self, key: Hashable, compute: Callable[[], D]) -> D:
        """Return what was kept under a key, or compute and keep it."""
        if key not in self._kept:
            self._kept[key] = compute()
        return cast(D, self._kept[key])


def measure_values(column: pa.Array) -> Int64s:
    """Compute the bytes of each value of an array, without validity bits."""
    n, kind = len(column), column.type
    if isinstance(column, pa.ExtensionArray):
        return measure_values(column.storage)
    if pa.types.is_struct(kind):
        total = np.zeros(n, dtype=np.int64)
        for number in range(kind.num_fields):
            total += measure_values(column.field(number))
        return total
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(column.offsets, dtype=np.int64)
        inner = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        ends = np.zeros(int(offsets[-1]) + 1 if n else 1, dtype=np.int64)
        for values in inner:
            ends[1:] += np.cumsum(measure_values(values)[: len(ends) - 1])
        return np.diff(ends[offsets]) + offsets.itemsize // 2 if n else np.zeros(0, dtype=np.int64)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _subtract_offsets(column, np.dtype(np.int32))
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _subtract_offsets(column, np.dtype(np.int64))
    try:
        return np.full(n, max(1, kind.bit_width // 8), dtype=np.int64)
    except ValueError:  # a type without a fixed width, of which no offsets are known
        return np.full(n, -(-column.nbytes // max(1, n)), dtype=np.int64)


def _subtract_offsets(column: pa.Array, width: np.dtype[np.signedinteger]) -> Int64s:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=width, count=len(column) + 1, offset=column.offset * width.itemsize)
    return np.diff(offsets).astype(np.int64) + width.itemsize


def cut_pairs(sizes: Int64s, limit: int) -> Iterator[slice]:
    """Cut a sequence into stretches whose sizes add up to ``limit`` at most; a larger element is alone.

    >>> [(s.start, s.stop) for s in cut_pairs(np.array([3, 4, 5, 20, 1, 1]), 10)]
    [(0, 2), (2, 3), (3, 4), (4, 6)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield slice(start, stop)
        start = stop


def cut_matches(
    mine: RowFacts, rows: Int64s, theirs: RowFacts, others: Int64s, limit: int
) -> Iterator[slice]:
    """Cut pairs of the rows ``rows`` of one batch with ``others`` of another one, as ``cut_pairs`` does."""
    if len(rows) * (mine.widest + theirs.widest) <= limit:
        yield slice(0, len(rows))
        return
    yield from cut_pairs(mine.each[rows] + theirs.each[others], limit)


class Matches(NamedTuple):
    """Joined tuples: row i of ``left`` matches row i of ``right``."""

    left: pa.RecordBatch
    right: pa.RecordBatch
    signs: pa.Array | None = None
    """The sign of each pair, 1 or -1; None if no stream has deletes."""

    def take(self, rows: Int64s) -> "Matches":
        """Select the pairs at these positions."""
        signs = None if self.signs is None else self.signs.take(pa.array(rows))
        return Matches(self.left.take(rows), self.right.take(rows), signs)

    @property
    def columns(self) -> list[pa.Array]:
        """The columns of the left tuples, those of the right tuples, and the signs if there are any."""
        return [*self.left.columns, *self.right.columns, *([] if self.signs is None else [self.signs])]


def count_fillers(task: int, sent: int, nbytes: int) -> int:
    """Count the fillers that go behind a block.

    Parameters
    ----------
    task : int
        The number of the task in its stage. Task t sends ``FREE_BYTES / (t + 1)`` bytes without fillers.
    sent : int
        The bytes of the blocks that the task has sent before.
    nbytes : int
        The bytes of the block.

    Examples
    --------
    >>> count_fillers(0, 0, FREE_BYTES), count_fillers(1, 0, FREE_BYTES)
    (0, 2048)
    >>> count_fillers(0, FREE_BYTES, 10 * STEP)
    10
    """
    beyond = sent + nbytes - FREE_BYTES // (task + 1)
    return max(0, min(nbytes, beyond)) // STEP


def drop_fillers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the fillers that ``fill_up`` has put behind wide rows."""
    if FILLER not in batch.schema.names:
        return batch
    if PACKED in batch.schema.names:
        return pa.RecordBatch.from_struct_array(batch.column(PACKED).flatten())
    is_tuple = pc.equal(batch.column(FILLER), 0)
    tuples = batch.drop_columns([FILLER])
    return tuples if pc.all(is_tuple).as_py() else tuples.filter(is_tuple)
