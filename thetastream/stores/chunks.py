"""Chunks: rows as bytes that a database keeps under a name and a number, and the keys by which it finds them.

    rows of an attempt  ->  sorted by key  ->  chunks of at most ``CHUNK_ROWS`` rows, as Arrow's IPC stream

The database keeps the bytes that Arrow wrote and does not read them, so every type of Arrow can be kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

import pyarrow as pa

from thetastream.stores.description import Description
from thetastream.stores.key_bytes import has_key_bytes, write_keys
from thetastream.stores.staged import find_column, find_type

CHUNK_ROWS, CHUNK_BYTES = 1 << 10, 1 << 18
"""The largest numbers of rows and of bytes of a chunk. A chunk of one row may have more bytes."""
Place = tuple[str, int]
"""The place of a chunk: the name of the part, and the number of the chunk in the part."""
DIGEST_BYTES = 16
"""The bytes of the digest at the end of a sealed chunk."""
KeyBytes = tuple[int, bytes]
"""The number of a key column in the description, and a value as bytes of ``key_bytes``."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of an attempt."""

    number: int
    data: bytes
    keys: tuple[KeyBytes, ...]
    """All values of all key columns in the rows."""


def cut(rows: pa.Table) -> Iterator[tuple[pa.Table, bytes]]:
    """Cut rows into parts of the size of a chunk, each with its bytes."""
    for start in range(0, rows.num_rows, CHUNK_ROWS):
        yield from _halve(rows.slice(start, CHUNK_ROWS))


def _halve(rows: pa.Table) -> Iterator[tuple[pa.Table, bytes]]:
    data, half = encode(rows), rows.num_rows // 2
    if len(data) <= CHUNK_BYTES or not half:
        yield rows, data
    else:
        yield from _halve(rows.slice(0, half))
        yield from _halve(rows.slice(half))


def seal_chunk(name: str, chunk: Chunk) -> Chunk:
    """Append the place of a chunk, and a digest of its rows and its place."""
    place = f"{name} {chunk.number}".encode()
    body = chunk.data + place + len(place).to_bytes(2)
    return replace(chunk, data=body + _digest(body))


def unseal_chunk(data: bytes) -> tuple[Place, bytes]:
    """Read what ``seal_chunk`` wrote: the place of a chunk, and its rows as an IPC stream.

    >>> unseal_chunk(seal_chunk("part", Chunk(7, b"rows", ())).data)
    (('part', 7), b'rows')

    Raises
    ------
    ValueError
        If the bytes do not fit their digest.
    """
    body = data[:-DIGEST_BYTES]
    if len(body) < 2 or _digest(body) != data[-DIGEST_BYTES:]:
        raise ValueError("a chunk of rows does not fit its digest")
    end = len(body) - 2
    start = end - int.from_bytes(body[end:])
    name, _, number = body[start:end].decode().rpartition(" ")
    return (name, int(number)), body[:start]


def _digest(body: bytes) -> bytes:
    return sha256(body).digest()[:DIGEST_BYTES]


def encode(rows: pa.Table) -> bytes:
    """Write rows as an IPC stream of Arrow."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def decode(data: bytes) -> pa.Table:
    """Read what ``encode`` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def list_keys(rows: pa.Table, description: Description) -> tuple[KeyBytes, ...]:
    """List the values of all key columns whose type can be written as bytes."""
    return tuple(
        (number, value)
        for number, column in enumerate(description.keys)
        if has_key_bytes(find_type(description.schema, column))
        for value in write_keys(find_column(rows, column))
    )


def read_chunks(data: Iterable[bytes], description: Description) -> list[Chunk]:
    """Make chunks from their bytes, which are in the order of their numbers."""
    found = ((one, *unseal_chunk(one)) for one in data)
    return [Chunk(n, one, list_keys(decode(rows), description)) for one, (_, n), rows in found]
