"""``th.HBaseStore``: results in a table of Apache HBase, found by values and ranges of their keys.

    key of the row                       value
    "l" number                           an entry of the log
    "m"                                  the note of the log
    "n" name                             nothing: the list of names
    "c" name 0 number                    a chunk
    "k" column value 0 0 name 0 number   the name and the number of a chunk that has this value

HBase keeps rows in the order of their keys. One step checks that an entry does not exist, and writes it. The
name is written before its chunks and removed after them, so that ``sweep`` finds all chunks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from thetastream.core.errors import QueryError
from thetastream.results.backend import NOTE
from thetastream.results.chunks import Chunk, ChunkBackend, Place
from thetastream.results.description import Description
from thetastream.results.store import Store
from thetastream.stores.hbase_rows import BATCH_ROWS, HBaseRows

_NAME = re.compile(r"(\w+:)?\w[\w.-]*", re.ASCII)


class HBaseBackend(ChunkBackend):
    """Entries, chunks and keys in one table."""

    def __init__(self, rows: HBaseRows) -> None:
        self._rows = rows

    def newest(self) -> int:
        for key, _ in self._rows.scan(b"l" + b"\xff" * 9, b"l", batch=1, limit=1, is_reverse=True):
            return int.from_bytes(key[1:])
        return -1

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        if with_later:
            for key, text in self._rows.scan(_locate(n), b"m"):
                yield int.from_bytes(key[1:]), text
        elif (found := self._rows.find(_locate(n))) is not None:
            yield n, found

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        return self._rows.write_new(_locate(n), text.encode())

    def mark(self, note: str) -> None:
        self._rows.write({_locate(NOTE): note.encode()})

    def make(self, description: Description) -> None:
        self._rows.make()

    def names(self) -> Iterator[tuple[str, None]]:
        return ((key[1:].decode(), None) for key, _ in self._rows.scan(b"n", b"o"))

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

    def fetch(self, wanted: Mapping[str, Sequence[int] | None]) -> Iterator[bytes]:
        for name, numbers in wanted.items():
            if numbers is None:
                for _, data in self._rows.scan(*_locate_chunks(name), batch=BATCH_ROWS):
                    yield data
        places = ((name, numbers) for name, numbers in wanted.items() if numbers is not None)
        yield from self._rows.read([_locate_chunk(name, one) for name, numbers in places for one in numbers])

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

    def drop(self, name: str, chunks: Sequence[Chunk]) -> None:
        keys = (_locate_key(*key, name, one.number) for one in chunks for key in one.keys)
        self._rows.remove(keys)
        self._rows.remove(_locate_chunk(name, one.number) for one in chunks)
        self._rows.remove([_locate_name(name)])


@dataclass(frozen=True)
class HBaseStore(Store):
    """Results in a table of Apache HBase, over its Thrift server. It needs the package happybase.

    Rows are kept in chunks, as Arrow wrote them, so columns may have any type. A question by a value or a
    range of a key reads only the chunks that have such keys, unless it costs less to read all chunks.

    Parameters
    ----------
    address : str
        Host and port of the Thrift server, as in ``"host:9090"``. The driver and all workers connect to it.
    table : str
        The name of the table, with its namespace if this is not the default one. The store makes the table.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.HBaseStore("host:9090", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    address: str
    table: str

    kind: ClassVar[str] = "hbase"
    schemes: ClassVar[tuple[str, ...]] = ("hbase",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", self.address.removeprefix("hbase://"))
        if not _NAME.fullmatch(self.table):
            what = "table must have letters, digits, underscores, points and hyphens"
            raise QueryError("BAD_VALUE", f"{what}, not {self.table!r}")
        HBaseRows.read_address(self.address)

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    @property
    def backend(self) -> HBaseBackend:
        return HBaseBackend(HBaseRows(self.address, self.table))


def _locate(n: int) -> bytes:
    """Locate an entry, or what lies beside the entries.

    >>> _locate(1), _locate(NOTE)
    (b'l\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01', b'm')
    """
    return b"m" * -n if n < 0 else b"l" + n.to_bytes(8)


_END = b"\0\0"


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
