"""Rows of one table of Apache HBase over its Thrift server: a key, and bytes in the column ``d:d``.

Every call opens a connection of its own. The Thrift server closes connections that are idle for a minute.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.results.backend import make_unreachable

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
            raise QueryError("BAD_VALUE", f'{what}, as in "host:9090", not {address!r}')
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
