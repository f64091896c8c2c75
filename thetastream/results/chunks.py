"""Chunks: rows as bytes that a database keeps under a name and a number, and the keys by which it finds them.

    rows of an attempt  ->  sorted by key  ->  chunks of at most ``CHUNK_ROWS`` rows, as Arrow's IPC stream

The database keeps the bytes that Arrow wrote and does not read them, so every type of Arrow can be kept.

A task writes its chunks under a name that no other attempt has. They are results when a commit names them, so
a commit moves no rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pyarrow as pa

from thetastream.results.description import Description
from thetastream.results.selection import Selection, has_key_bytes, write_key, write_keys
from thetastream.results.staged import (
    CHUNKS,
    Origin,
    SortedStage,
    Stage,
    Staged,
    find_column,
    find_type,
    make_part_name,
)

CHUNK_ROWS, CHUNK_BYTES = 1 << 10, 1 << 18
"""The largest numbers of rows and of bytes of a chunk. A chunk of one row may have more bytes."""
Place = tuple[str, int]
"""The place of a chunk: the name of the part, and the number of the chunk in the part."""
DIGEST_BYTES = 16
"""The bytes of the digest at the end of a sealed chunk."""
KeyBytes = tuple[int, bytes]
"""The number of a key column in the description, and a value as bytes of ``key_bytes``."""
SORTED_ROWS, SORTED_BYTES = 1 << 16, 1 << 25
"""So many rows or bytes are sorted together, so that rows with the same key are in few chunks."""

ALL_ENTRIES = 1 << 31
"""A limit that no question reaches."""
LEAST_LIMIT = 1000
"""The least limit of a question. A question reads all chunks if it has more index entries than its limit."""


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
    pa.ArrowInvalid
        If the bytes do not fit their digest.
    """
    body = data[:-DIGEST_BYTES]
    if len(body) < 2 or _digest(body) != data[-DIGEST_BYTES:]:
        raise pa.ArrowInvalid("a chunk of rows does not fit its digest")
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


class ChunkBackend(ABC):
    """What backends of chunks share: ``stage``, ``open``, ``remove`` and ``check``.

    A subclass has the other methods of ``Backend``, and keeps bytes: it writes, fetches, finds and drops
    them.
    """

    @abstractmethod
    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Write chunks, and then the keys by which they are found."""

    @abstractmethod
    def fetch(self, wanted: Mapping[str, Sequence[int] | None]) -> Iterator[bytes]:
        """Read the chunks with these numbers by name; None stands for all chunks of the name."""

    @abstractmethod
    def drop(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Remove the keys of these chunks, and then all chunks of the name."""

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        """Find the chunks with keys from ``low`` to ``high``, both inclusive; None is an open end.

        It returns None if the index does not answer such a range, or has more than ``limit`` entries for it.
        By default there is no index.
        """
        return None

    def stage(self, origin: Origin, description: Description) -> Stage:
        """Open a stage that writes chunks."""
        return ChunkStage(self, origin, description)

    def open(self, staged: Sequence[Staged], selection: Selection, description: Description) -> pa.Table:
        """Read the selected rows of all chunks, or of those that have the selected keys."""
        wanted, fetched = self._select(staged, selection, description)
        tables, found = [description.schema.empty_table()], set()
        for data in self.fetch(fetched):
            place, body = unseal_chunk(data)
            if place not in wanted or place in found:
                raise pa.ArrowInvalid(f"chunk {place[1]} of {place[0]} is at the place of another one")
            found.add(place)
            rows = decode(body)
            tables.append(rows if selection.filter is None else rows.filter(selection.filter))
        if len(found) < len(wanted):
            raise pa.ArrowInvalid(f"{len(wanted) - len(found)} of {len(wanted)} chunks are gone")
        return pa.concat_tables(tables)

    def remove(self, names: Iterable[str], description: Description) -> None:
        """Remove parts. The chunks say which keys belong to them."""
        for name in names:
            self.drop(name, read_chunks(self.fetch({name: None}), description))

    def check(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Yield a sentence for each part whose chunks or whose entries of the index are damaged or gone."""
        for one in staged:
            try:
                rows = self.open([one], Selection(), description)
                chunks = read_chunks(self.fetch({one.name: None}), description)
            except pa.ArrowInvalid as error:
                yield f"{one.name}: {error}"
                continue
            if rows.num_rows != one.rows:
                yield f"{one.name} must have {one.rows} rows; it has {rows.num_rows}"
            yield from self._find_lost_keys(one.name, chunks)

    def _find_lost_keys(self, name: str, chunks: Sequence[Chunk]) -> Iterator[str]:
        places: dict[KeyBytes, set[Place]] = {}
        for chunk in chunks:
            for key in chunk.keys:
                places.setdefault(key, set()).add((name, chunk.number))
        for (column, value), wanted in places.items():
            found = self.find(column, value, value, ALL_ENTRIES)
            if found is not None and not wanted <= set(found):
                yield f"{name} must have all entries of the index of keys, and those of {value!r} are gone"

    def _select(
        self, staged: Sequence[Staged], selection: Selection, description: Description
    ) -> tuple[set[Place], Mapping[str, Sequence[int] | None]]:
        """Select the chunks that may have selected rows, and say what ``fetch`` gets for them."""
        names = {one.name for one in staged}
        limit = LEAST_LIMIT + sum(one.rows for one in staged) // CHUNK_ROWS
        for column, low, high in sorted(list_ranges(selection, description), key=_has_several_values):
            places = self.find(column, low, high, limit)
            if places is not None:
                found: dict[str, list[int]] = {}
                for name, number in places:
                    if name in names:
                        found.setdefault(name, []).append(number)
                return {(name, number) for name, numbers in found.items() for number in numbers}, found
        everything = {(one.name, number) for one in staged for number in range(one.seal["chunks"])}
        return everything, dict.fromkeys(names)


class ChunkStage(SortedStage):
    """Writes rows in chunks."""

    def __init__(self, backend: ChunkBackend, origin: Origin, description: Description) -> None:
        super().__init__(make_part_name(origin, CHUNKS), description, SORTED_ROWS, SORTED_BYTES)
        self._backend = backend
        self._nbytes = self._chunks = 0

    def write(self, rows: pa.Table) -> None:
        chunks = [
            seal_chunk(self._name, Chunk(self._chunks + number, data, list_keys(part, self._description)))
            for number, (part, data) in enumerate(cut(rows))
        ]
        self._backend.write(self._name, chunks)
        self._chunks += len(chunks)
        self._nbytes += sum(len(chunk.data) for chunk in chunks)

    def end(self) -> tuple[int, Mapping[str, Any]]:
        return self._nbytes, {"chunks": self._chunks}


def list_ranges(
    selection: Selection, description: Description
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """List the selected ranges of key columns: (number of the column, lower end, upper end) as bytes."""
    for one in selection.ranges:
        end = one.high if one.low is None else one.low
        if one.column in description.keys and end is not None and has_key_bytes(end.type):
            low, high = (None if end is None else write_key(end) for end in (one.low, one.high))
            yield description.keys.index(one.column), low, high


def _has_several_values(wanted: tuple[Any, bytes | None, bytes | None]) -> bool:
    """Whether a range may have more than one value. Ranges of one value are looked up first."""
    return wanted[1] != wanted[2]
