"""``th.HBaseStore``: results in a table of Apache HBase, found by values and ranges of their keys.

    key of the row                       value, in the column d:d
    "l" number                           an entry of the log
    "m"                                  the note of the log
    "n" name                             nothing: the list of names
    "c" name 0 number                    a chunk
    "k" column value 0 0 name 0 number   the name and the number of a chunk that has this value

HBase keeps rows in the order of their keys. One step checks that an entry does not exist, and writes it. The
name is written before its chunks and removed after them, so that ``sweep`` finds all chunks. Every call opens
a connection of its own, because the Thrift server closes connections that are idle for a minute.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from thetastream.core.arguments import refuse_non_text
from thetastream.core.errors import QueryError
from thetastream.results.backend import NOTE, make_unreachable
from thetastream.results.chunks import Chunk, ChunkBackend, Place
from thetastream.results.description import Description
from thetastream.results.store import Store

_NAME = re.compile(r"(\w+:)?\w[\w.-]*", re.ASCII)

_END = b"\0\0"

INSTALL = "pip install 'thetastream[hbase]'"
COLUMN = b"d:d"
TIMEOUT_MS = 60_000
"""The longest time that a call waits for an answer, in milliseconds."""
BATCH_ROWS = 32
"""The number of chunks in one call."""


@dataclass(frozen=True)
class HBaseRows:
    """The rows of one table."""

    address: str
    table: str

    @staticmethod
    def read_address(address: str) -> tuple[str, int]:
        """Read host and port.

        Raises
        ------
        QueryError
            BAD_VALUE.

        Examples
        --------
        >>> HBaseRows.read_address("host:9090")
        ('host', 9090)
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            what = "the address of a Thrift server of HBase must be a host and a port"
            raise QueryError("BAD_VALUE", f'{what}, as in "host:9090", not {address.rpartition("@")[2]!r}')
        return host, int(port)

    def make(self) -> None:
        """Make the table unless it is there."""
        with self._connect() as connection:
            from Hbase_thrift import AlreadyExists

            with suppress(AlreadyExists):
                connection.create_table(self.table, {"d": {"max_versions": 1}})

    def find(self, key: bytes) -> bytes | None:
        """Read a row; None if there is no such row or no such table."""
        with self._connect() as connection:
            from Hbase_thrift import IOError as RefusedError

            try:
                found = connection.table(self.table).row(key, columns=[COLUMN])
            except RefusedError as error:
                if "TableNotFoundException" in str(error):
                    return None
                raise
        value: bytes | None = found.get(COLUMN)
        return value

    def read(self, keys: Sequence[bytes]) -> Iterator[bytes]:
        """Read single rows."""
        with self._open() as table:
            for start in range(0, len(keys), BATCH_ROWS):
                for _, row in table.rows(keys[start : start + BATCH_ROWS], columns=[COLUMN]):
                    yield row[COLUMN]

    def scan(
        self, start: bytes, stop: bytes, batch: int = 1000, limit: int | None = None, is_reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Read keys and rows from ``start`` up to but not including ``stop``.

        In reverse order, ``start`` is the greatest key, and ``stop`` is less.
        """
        with self._open() as table:
            options = {"batch_size": batch, "limit": limit, "reverse": is_reverse}
            for key, row in table.scan(row_start=start, row_stop=stop, columns=[COLUMN], **options):
                yield key, row[COLUMN]

    def write(self, rows: Mapping[bytes, bytes], batch: int = 1000) -> None:
        """Write rows."""
        with self._open() as table, table.batch(batch_size=batch) as writer:
            for key, value in rows.items():
                writer.put(key, {COLUMN: value})

    def write_new(self, key: bytes, value: bytes) -> bool:
        """Write a row in one atomic step unless it exists; return whether this call wrote it."""
        with self._connect() as connection:
            from Hbase_thrift import IOError as RefusedError
            from Hbase_thrift import Mutation
            from thriftpy2.thrift import TException

            mutation = Mutation(isDelete=False, column=COLUMN, value=value)
            try:
                table = self.table.encode()
                return bool(connection.client.checkAndPut(table, key, COLUMN, None, mutation, {}))
            except (OSError, TException, RefusedError):
                # The row may have been written although the answer is lost.
                return self.find(key) == value

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove rows."""
        with self._open() as table, table.batch(batch_size=1000) as writer:
            for key in keys:
                writer.delete(key)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with self._connect() as connection:
            yield connection.table(self.table)

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        try:
            import happybase
        except ImportError as error:
            what = f"a store in HBase needs happybase, and {error.name} is missing: {INSTALL}"
            raise QueryError("MISSING_PACKAGE", what) from error
        host, port = self.read_address(self.address)
        from thriftpy2.transport import TTransportException

        try:
            connection = happybase.Connection(host, port, timeout=TIMEOUT_MS)
        except TTransportException as error:
            raise make_unreachable("the Thrift server of HBase", error) from error
        try:
            yield connection
        finally:
            connection.close()


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
        refuse_non_text(self.address, "address", '"host:9090"')
        refuse_non_text(self.table, "table", '"pairs"')
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
