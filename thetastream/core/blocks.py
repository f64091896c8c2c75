"""Blocks: the form in which tuples travel between operators.

A block is an Arrow record batch (ESJ calls it TUPLE_BLK). ``thetastream.core.columns`` lists its columns.
"""

import struct
from collections.abc import Iterable, Iterator

import pyarrow as pa

from thetastream.errors import StateError

ROWS_PER_BLOCK = 1 << 17
BYTES_PER_BLOCK = 1 << 24
"""The size at which a block is complete. Spark copies a block several times in memory, so it must not be
large."""


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
