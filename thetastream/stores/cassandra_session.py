"""Connections to Apache Cassandra: one session for each process and address, and statements over it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from thetastream.core.errors import QueryError
from thetastream.results.backend import make_unreachable

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
