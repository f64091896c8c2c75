"""Chunks of rows in Apache HBase, and the index of their keys, which HBase keeps in order.

    key of the row                       value
    "n" name                             nothing: the list of names
    "c" name 0 number                    a chunk
    "k" column value 0 0 name 0 number   the name and the number of a chunk that has this value

The name is written before its chunks and removed after them, so that ``sweep`` finds all chunks.
"""

from collections.abc import Iterator, Sequence

from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import Chunk, Place
from thetastream.stores.hbase_rows import BATCH_ROWS, HBaseRows

_END = b"\0\0"


class HBaseTable(ChunkTable):
    """Chunks and keys in one table."""

    def __init__(self, rows: HBaseRows) -> None:
        self._rows = rows

    def make(self) -> None:
        self._rows.make()

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._rows.write({_locate_name(name): b""})
        self._rows.write({_locate_chunk(name, one.number): one.data for one in chunks}, BATCH_ROWS)
        self._rows.write(
            {
                _locate_key(column, value, name, one.number): f"{one.number} {name}".encode()
                for one in chunks
                for column, value in one.keys
            }
        )

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        for name in names:
            for _, data in self._rows.scan(*_locate_chunks(name), batch=BATCH_ROWS):
                yield data

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        return self._rows.read([_locate_chunk(*place) for place in places])

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        prefix = b"k" + bytes([column])
        start = prefix + (b"" if low is None else _escape(low))
        # In an escaped value, 1 never follows 0, so the last row that is found belongs to ``high``.
        stop = b"k" + bytes([column + 1]) if high is None else prefix + _escape(high) + b"\0\1"
        found = [value for _, value in self._rows.scan(start, stop, limit=limit + 1)]
        if len(found) > limit:
            return None
        places = (value.decode().split(" ", 1) for value in dict.fromkeys(found))
        return [(name, int(number)) for number, name in places]

    def list_names(self) -> Iterator[str]:
        return (key[1:].decode() for key, _ in self._rows.scan(b"n", b"o"))

    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        keys = (_locate_key(*key, name, one.number) for one in chunks for key in one.keys)
        self._rows.remove(keys)
        self._rows.remove(_locate_chunk(name, one.number) for one in chunks)
        self._rows.remove([_locate_name(name)])


def _locate_name(name: str) -> bytes:
    return b"n" + name.encode()


def _locate_chunk(name: str, number: int) -> bytes:
    return b"c" + name.encode() + b"\0" + number.to_bytes(4)


def _locate_chunks(name: str) -> tuple[bytes, bytes]:
    return b"c" + name.encode() + b"\0", b"c" + name.encode() + b"\1"


def _locate_key(column: int, value: bytes, name: str, number: int) -> bytes:
    return b"k" + bytes([column]) + _escape(value) + _END + _locate_chunk(name, number)[1:]


def _escape(value: bytes) -> bytes:
    """Write a value so that, followed by ``_END``, it is not the beginning of another value. Order is kept.

    >>> _escape(b"a") + _END < _escape(b"a\\0") + _END < _escape(b"a\\1") + _END < _escape(b"ab") + _END
    True
    """
    return value.replace(b"\0", b"\0\xff")
