"""``th.CassandraStore``: results in tables of Apache Cassandra, found by the values of their keys.

    pairs            ((name), number)                          -> the bytes of a chunk
    pairs_keys       ((column, bucket), value, name, number)   -> nothing: the chunk has a row with this value
    pairs_commits    ((part), number)                          -> an entry of the log

The rows of one attempt of a task are one partition. A bucket is a hash of the value, and a partition of the
index has all values of one bucket. The entries of one partition are sent in one batch, which Cassandra
applies as one write. One statement for each entry would take many times as long. A lightweight transaction
writes each entry of the log once. ``LOG_ROWS`` entries are a partition.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count, groupby, islice
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit
from zlib import crc32

from thetastream.core.arguments import refuse_non_text
from thetastream.core.errors import QueryError
from thetastream.results.backend import NOTE, make_unreachable
from thetastream.results.chunks import Chunk, ChunkBackend, Place
from thetastream.results.description import Description
from thetastream.results.store import Store

LONGEST_NAME = 48 - len("_commits")
"""The largest number of characters of the name of a store's table. Cassandra allows 48 characters."""
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
LOG_ROWS = 100_000
"""The number of entries in a partition, which then has about 50 MB. The note has a partition of its own."""

BUCKETS = 256
"""The number of partitions of the index for each key column. Existing stores depend on it."""
BATCH_ENTRIES = 500
"""The largest number of entries of the index in one batch."""
Entry = tuple[int, int, bytes, str, int]
"""An entry of the index: column, bucket, value, name and number."""

INSTALL = "pip install 'thetastream[cassandra]'"
CONCURRENT = 32
"""The largest number of statements of a task that run at the same time."""
TIMEOUT_S = 60
"""The longest time that a statement waits for an answer, in seconds."""


@dataclass(frozen=True)
class CassandraTables:
    """The address of the tables of a store, and statements over them."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    table: str
    user: str
    """Empty if the servers ask for no user."""
    password: str = field(repr=False)

    @classmethod
    def read(cls, url: str, table: str) -> "CassandraTables":
        """Read an address.

        Raises
        ------
        QueryError
            BAD_VALUE.

        Examples
        --------
        >>> found = CassandraTables.read("cassandra://one,two:9043/results", "pairs")
        >>> found.hosts, found.port, found.keyspace
        (('one', 'two'), 9043, 'results')
        """
        try:
            parts = urlsplit(url)
            hosts, port = tuple((parts.hostname or "").split(",")), parts.port or 9042
        except ValueError:
            hosts, port = (), 0
        keyspace = parts.path.removeprefix("/") if hosts else ""
        if parts.scheme != "cassandra" or not all(hosts) or not keyspace or '"' in keyspace:
            # The address is not shown, because it may hold a password.
            what = "the address of a store in Cassandra must name hosts and a keyspace"
            raise QueryError("BAD_VALUE", f'{what}, as in "cassandra://host1,host2:9042/results"')
        user, password = (unquote(text or "") for text in (parts.username, parts.password))
        return cls(hosts, port, keyspace, table, user, password)

    def quote(self, suffix: str = "") -> str:
        """Quote the keyspace and the name of the table, or of another table of the store."""
        table = f"{self.table}_{suffix}" if suffix else self.table
        return f'"{self.keyspace}"."{table}"'

    def run(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, and return its rows."""
        session, statement = self._prepare(text)
        return session.execute(statement, values)

    def find(self, text: str, values: Sequence[Any]) -> Any:
        """Read the first row with a serial read; None if there is no such row or no such table.

        A serial read sees all finished conditional writes, and completes those that are under way.
        """
        self._connect()
        from cassandra import ConsistencyLevel, InvalidRequest

        try:
            session, statement = self._prepare(text)
        except InvalidRequest:
            return None
        bound = statement.bind(values)
        bound.consistency_level = ConsistencyLevel.SERIAL
        return session.execute(bound).one()

    def run_each(self, text: str, values: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Run a statement for each of these values, several at a time; return the rows of each in order."""
        from cassandra.concurrent import execute_concurrent_with_args

        session, statement = self._prepare(text)
        found = execute_concurrent_with_args(
            session, statement, values, concurrency=CONCURRENT, results_generator=True
        )
        return (rows for _, rows in found)

    def run_batches(self, text: str, batches: Iterable[Sequence[Sequence[Any]]]) -> None:
        """Run a statement for the values of each batch, several batches at a time.

        The values of one batch belong to one partition, so that the server applies them as one write.
        """
        session, statement = self._prepare(text)
        from cassandra.concurrent import execute_concurrent
        from cassandra.query import BatchStatement, BatchType

        def make_batch(values: Sequence[Sequence[Any]]) -> tuple[Any, None]:
            batch = BatchStatement(BatchType.UNLOGGED)
            for one in values:
                batch.add(statement, one)
            return batch, None

        running = execute_concurrent(
            session, map(make_batch, batches), concurrency=CONCURRENT, results_generator=True
        )
        for _ in running:
            pass

    def make(self, columns: str, suffix: str = "") -> None:
        """Make a table unless it is there."""
        self._connect().execute(f"CREATE TABLE IF NOT EXISTS {self.quote(suffix)} ({columns})")

    def _connect(self) -> Any:
        return _connect(self.hosts, self.port, self.user, self.password, os.getpid())

    def _prepare(self, text: str) -> tuple[Any, Any]:
        return _prepare(self.hosts, self.port, self.user, self.password, text, os.getpid())


class CassandraBackend(ChunkBackend):
    """Entries, chunks and keys in three tables. The index finds single values of a key and no ranges."""

    def __init__(self, tables: CassandraTables) -> None:
        self._tables = tables
        self._log, self._chunks, self._keys = (tables.quote(one) for one in ("commits", "", "keys"))

    def newest(self) -> int:
        # The last entries of a partition may be gone, so the end is where a whole partition is missing.
        text = f"SELECT version FROM {self._log} WHERE part = ? ORDER BY version DESC LIMIT 1"
        newest = -1
        for part in count():
            found = self._tables.find(text, (part,))
            if found is None:
                break
            newest = int(found[0])
        return newest

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        first = n // LOG_ROWS
        if not with_later:
            text = f"SELECT entry FROM {self._log} WHERE part = ? AND version = ?"
            found = self._tables.find(text, (first, n))
            yield from () if found is None else ((n, found[0]),)
            return
        text = f"SELECT version, entry FROM {self._log} WHERE part = ? AND version >= ?"
        for part in count(first):
            is_empty = True
            for newer, entry in self._tables.run(text, (part, n)):
                is_empty = False
                yield newer, entry
            # The last entries of the first partition may be gone, so the next one is read in any case.
            if is_empty and part > first:
                return

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        from cassandra import OperationTimedOut, WriteTimeout

        insert = f"INSERT INTO {self._log} (part, version, entry) VALUES (?, ?, ?) IF NOT EXISTS"
        try:
            return bool(self._tables.run(insert, (n // LOG_ROWS, n, text)).was_applied)
        except (OperationTimedOut, WriteTimeout):
            # The row may have been written although the answer is lost. A serial read completes writes that
            # are under way, so it finds the row in this case.
            return (n, text) in self.read(n)

    def mark(self, note: str) -> None:
        insert = f"INSERT INTO {self._log} (part, version, entry) VALUES (?, ?, ?)"
        self._tables.run(insert, (NOTE // LOG_ROWS, NOTE, note))

    def make(self, description: Description) -> None:
        self._tables.make("part int, version int, entry text, PRIMARY KEY (part, version)", "commits")
        self._tables.make("name text, number int, data blob, PRIMARY KEY (name, number)")
        columns = "column int, bucket int, value blob, name text, number int"
        self._tables.make(f"{columns}, PRIMARY KEY ((column, bucket), value, name, number)", "keys")

    def names(self) -> Iterator[tuple[str, None]]:
        return ((name, None) for (name,) in self._tables.run(f"SELECT DISTINCT name FROM {self._chunks}"))

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        text = f"INSERT INTO {self._chunks} (name, number, data) VALUES (?, ?, ?)"
        for _ in self._tables.run_each(text, [(name, one.number, one.data) for one in chunks]):
            pass
        text = f"INSERT INTO {self._keys} (column, bucket, value, name, number) VALUES (?, ?, ?, ?, ?)"
        self._tables.run_batches(text, batch_entries(name, chunks))

    def fetch(self, wanted: Mapping[str, Sequence[int] | None]) -> Iterator[bytes]:
        text = f"SELECT data FROM {self._chunks} WHERE name = ?"
        whole = [(name,) for name, numbers in wanted.items() if numbers is None]
        places = [(name, number) for name, numbers in wanted.items() for number in numbers or ()]
        each = (self._tables.run_each(text, whole), self._tables.run_each(f"{text} AND number = ?", places))
        return (data for rows in chain(*each) for (data,) in rows)

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        if low is None or low != high:
            return None
        text = f"SELECT name, number FROM {self._keys} WHERE column = ? AND bucket = ? AND value = ?"
        rows = self._tables.run(text, (column, find_bucket(low), low))
        found = [(name, number) for name, number in islice(rows, limit + 1)]
        return found if len(found) <= limit else None

    def drop(self, name: str, chunks: Sequence[Chunk]) -> None:
        wheres = "column = ? AND bucket = ? AND value = ? AND name = ? AND number = ?"
        self._tables.run_batches(f"DELETE FROM {self._keys} WHERE {wheres}", batch_entries(name, chunks))
        self._tables.run(f"DELETE FROM {self._chunks} WHERE name = ?", (name,))


@dataclass(frozen=True)
class CassandraStore(Store):
    """Results in tables of Apache Cassandra. It needs the package cassandra-driver.

    Rows are kept in chunks, as Arrow wrote them, so columns may have any type. A question by the value of a
    key reads only the chunks that have this value. A question by a range reads all chunks of the tasks whose
    bounds overlap the range.

    Parameters
    ----------
    url : str
        The address at which the driver and all workers connect, as in
        ``"cassandra://user:password@host1,host2:9042/results"``. Its path is a keyspace, which must exist.
        The address is a part of the options of the query.
    table : str
        The name of the table. The store makes this table, and two more whose names begin with it.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.CassandraStore("cassandra://host/results", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    url: str
    table: str

    kind: ClassVar[str] = "cassandra"
    schemes: ClassVar[tuple[str, ...]] = ("cassandra",)

    def __post_init__(self) -> None:
        refuse_non_text(self.url, "url", '"cassandra://host/results"')
        refuse_non_text(self.table, "table", '"pairs"')
        if not _NAME.fullmatch(self.table) or len(self.table) > LONGEST_NAME:
            what = f"table must be a letter and up to {LONGEST_NAME - 1} more letters, digits, underscores"
            raise QueryError("BAD_VALUE", f"{what}, not {self.table!r}")
        CassandraTables.read(self.url, self.table)

    def __repr__(self) -> str:
        """Describe the store without its address, which may hold a password."""
        return f"CassandraStore(..., {self.table!r})"

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    @property
    def backend(self) -> CassandraBackend:
        return CassandraBackend(CassandraTables.read(self.url, self.table))


def find_bucket(value: bytes) -> int:
    """Find the bucket of a value, which is the same in every process.

    >>> find_bucket(b"x")
    131
    """
    return crc32(value) % BUCKETS


def batch_entries(name: str, chunks: Sequence[Chunk]) -> Iterator[list[Entry]]:
    """Yield the entries of the index for these chunks, in batches of one partition each.

    >>> list(batch_entries("part", [Chunk(0, b"", ((0, b"x"), (1, b"x"))), Chunk(1, b"", ((0, b"x"),))]))
    [[(0, 131, b'x', 'part', 0), (0, 131, b'x', 'part', 1)], [(1, 131, b'x', 'part', 0)]]
    """
    entries = sorted(
        (column, find_bucket(value), value, name, one.number) for one in chunks for column, value in one.keys
    )
    for _, of_partition in groupby(entries, key=lambda entry: entry[:2]):
        while batch := list(islice(of_partition, BATCH_ENTRIES)):
            yield batch


@cache
def _connect(hosts: tuple[str, ...], port: int, user: str, password: str, pid: int) -> Any:
    """Connect once in each process. A forked process cannot use the connections of its parent."""
    try:
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
    except ImportError as error:
        what = f"a store in Cassandra needs cassandra-driver, and {error.name} is missing: {INSTALL}"
        raise QueryError("MISSING_PACKAGE", what) from error
    profile = ExecutionProfile(
        TokenAwarePolicy(DCAwareRoundRobinPolicy()),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=TIMEOUT_S,
    )
    provider = PlainTextAuthProvider(user, password) if user else None
    cluster = Cluster(hosts, port, auth_provider=provider, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        return cluster.connect()
    except NoHostAvailable as error:
        raise make_unreachable("Cassandra", error) from error


@cache
def _prepare(
    hosts: tuple[str, ...], port: int, user: str, password: str, text: str, pid: int
) -> tuple[Any, Any]:
    session = _connect(hosts, port, user, password, pid)
    return session, session.prepare(text)
