"""Blocks: how tuples travel. An Arrow record batch, one per destination unit, side and role.

Block columns: the payload ``c0, c1, ...``, the computed keys ``k0, k1, ...``; for models that
route by hash a tuple hash, which is dropped before the block is packed. ESJ calls it TUPLE_BLK.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from thetastream.models.base import Hashes, Model, Places
from thetastream.types import Role, Side

HASH_COLUMN = "h"
ROWS_PER_BLOCK = 1 << 17
BYTES_PER_BLOCK = 1 << 26
"""A block stays well below Arrow's and Spark's 2 GiB limits, however wide its tuples are."""


def gather(
    batches: Iterable[pa.RecordBatch],
    rows_at_once: int = ROWS_PER_BLOCK,
    bytes_at_once: int = BYTES_PER_BLOCK,
) -> Iterator[pa.RecordBatch]:
    """Batches of about so many rows out of many small ones."""
    held: list[pa.RecordBatch] = []
    n_rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        n_rows += batch.num_rows
        nbytes += batch.nbytes
        if n_rows >= rows_at_once or nbytes >= bytes_at_once:
            yield concat(held)
            held, n_rows, nbytes = [], 0, 0
    if held:
        yield concat(held)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch out of several of the same schema; at least one must be given."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with every column nullable: Spark may find out anew each epoch which of them are."""
    return pa.RecordBatch.from_arrays(
        batch.columns, schema=pa.schema([field.with_nullable(True) for field in batch.schema])
    )


def pack(batch: pa.RecordBatch) -> bytes:
    """The batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def unpack(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Inverse of ``pack``, without copying."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def route(
    model: Model,
    side: Side,
    batch: pa.RecordBatch,
    places: Callable[[Side, pa.RecordBatch], Places] | None = None,
) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
    """(unit, role, block) for every destination of the rows of ``batch``; equal blocks are one object.

    ``places`` says where the rows lie, for a model that asks for it.
    """
    tuples = None
    if HASH_COLUMN in batch.schema.names:
        tuples = batch.column(HASH_COLUMN).to_numpy(zero_copy_only=False)
        batch = batch.drop_columns([HASH_COLUMN])
    found = places(side, batch) if places is not None else None
    taken: tuple[object, pa.RecordBatch] = (None, batch)
    for unit, role, rows in model.route(side, batch.num_rows, Hashes(tuples, found)):
        if rows is None:
            yield unit, role, batch
            continue
        if taken[0] is not rows:
            taken = rows, batch.take(rows)
        yield unit, role, taken[1]
