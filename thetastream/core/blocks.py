"""Blocks: the form in which tuples travel between operators.

A block is an Arrow record batch (ESJ calls it TUPLE_BLK). ``thetastream.core.columns`` lists its columns.
"""

import struct
from collections.abc import Iterable, Iterator

import pyarrow as pa

ROWS_PER_BLOCK = 1 << 17
BYTES_PER_BLOCK = 1 << 26
"""The size at which a block is complete. It keeps blocks of wide tuples well below the 2 GiB limits of Arrow
and Spark."""


def gather(
    batches: Iterable[pa.RecordBatch],
    rows_at_once: int = ROWS_PER_BLOCK,
    bytes_at_once: int = BYTES_PER_BLOCK,
) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches until each result has ``rows_at_once`` rows or ``bytes_at_once`` bytes."""
    gathered: list[pa.RecordBatch] = []
    n_rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        n_rows += batch.num_rows
        nbytes += batch.nbytes
        if n_rows >= rows_at_once or nbytes >= bytes_at_once:
            yield concat(gathered)
            gathered, n_rows, nbytes = [], 0, 0
    if gathered:
        yield concat(gathered)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate one or more batches of the same schema."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


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
