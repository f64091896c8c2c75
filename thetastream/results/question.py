"""``th.query`` asks a store in SQL, over results that do not change while the statement runs.

DuckDB runs the statement in memory. It sees one table, ``results``. It cannot open files or
connections, load extensions or change settings.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Timer
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thetastream.core.arguments import refuse_non_text
from thetastream.core.errors import QueryError
from thetastream.core.stopping import Stop
from thetastream.results.store import SnapshotChoice, Store, refuse_other

if TYPE_CHECKING:
    import duckdb

INSTALL = "pip install 'thetastream[query]'"
RESULTS = "results"
"""The name of the table that a statement reads."""
_REGISTER = "register_external_resource_type"
"""A function of DuckDB 2 that changes the database for all later statements, and no setting forbids it."""


def query(
    store: Store,
    sql: str,
    snapshot: SnapshotChoice = None,
    *,
    since: Any = None,
    until: Any = None,
    key: Mapping[str, Any] | None = None,
    changes: bool = False,
    memory: str = "1GB",
) -> pa.Table:
    """Ask a store one question in SQL. It needs the package duckdb.

    The statement reads the table ``results``. Its rows are fixed when the statement begins: later commits do
    not change the answer.

    Parameters
    ----------
    store : Store
    sql : str
        One SELECT statement of DuckDB, as in ``"SELECT a.symbol, count(*) FROM results GROUP BY ALL"``.
    snapshot : int, Snapshot, datetime or str, optional
        The results of all snapshots up to this one, by its number or as of a time. By default, all committed
        results.
    since, until, key
        The rows of ``results``, which are selected as in ``ParquetStore.read``. This is faster than the same
        conditions in ``sql``, because the store leaves out files by their bounds.
    changes : bool
        Whether ``results`` has all inserts and deletes, as in ``ParquetStore.read``.
    memory : str
        The memory that all statements of this process with the same value may use together.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    QueryError
        STORE_QUERY if the statement is not one SELECT, or fails; BAD_VALUE; MISSING_PACKAGE; or an error of
        ``read``.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.ParquetStore("out/pairs")
    >>> th.query(store, "SELECT count(*) AS n FROM results", snapshot=7)  # doctest: +SKIP
    """
    refuse_other(store)
    refuse_non_text(memory, "memory", '"1GB"')
    rows = store.open(snapshot, since, until, key, changes)
    return ask(rows, sql, memory)


def ask(
    rows: Any,
    sql: str,
    memory: str = "1GB",
    *,
    max_rows: int | None = None,
    max_s: float | None = None,
    stop: Stop | None = None,
    database: "duckdb.DuckDBPyConnection | None" = None,
) -> pa.Table:
    """Run one SELECT over ``rows``, a table or data set of Arrow. ``stop`` may interrupt it.

    ``database`` is one that ``open_database`` has made. By default, all statements of this process share one.

    Raises
    ------
    QueryError
        STORE_QUERY, MISSING_PACKAGE, TOO_MANY_ROWS if the answer has more than ``max_rows`` rows, or
        TOO_SLOW if it takes longer than ``max_s`` seconds.
    """
    try:
        import duckdb
    except ImportError as error:
        what = f"questions in SQL need DuckDB, and {error.name} is missing: {INSTALL}"
        raise QueryError("MISSING_PACKAGE", what) from error

    try:
        # Each cursor has its own tables. Opening a database takes ten times as long as opening a cursor.
        with (database or _share_database(memory, os.getpid())).cursor() as connection:
            connection.register(RESULTS, rows)
            answer = connection.sql(_read_statement(connection, sql))
            _refuse_offsets(answer)
            if max_rows is not None:
                answer = answer.limit(max_rows + 1)
            try:
                with _interrupt_after(connection, max_s), (stop or Stop()).attach(connection.interrupt):
                    found = answer.to_arrow_table()
            finally:
                _refuse_traces(connection)
    except duckdb.InterruptException as error:
        raise make_slow(max_s) from error
    except (duckdb.Error, pa.ArrowInvalid) as error:  # Arrow has no lists in 64 lists.
        text = str(error).partition("\n")[0]
        if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
            text += f" The table {RESULTS} has the columns {', '.join(rows.schema.names)}"
        raise QueryError("STORE_QUERY", f"DuckDB cannot answer the question: {text}") from error
    if max_rows is not None and found.num_rows > max_rows:
        raise make_many(max_rows)
    return found


def make_many(max_rows: int) -> QueryError:
    """Make the error of an answer that has too many rows."""
    what = f"an answer must have at most {max_rows:,} rows, and this has more: add LIMIT, or ask for less"
    return QueryError("TOO_MANY_ROWS", what)


def make_slow(max_s: float | None) -> QueryError:
    """Make the error of a question that took too long."""
    what = f"the question was stopped after {max_s or 0:g} s: ask for less, by since, until or key"
    return QueryError("TOO_SLOW", what)


def _refuse_offsets(answer: "duckdb.DuckDBPyRelation") -> None:
    """Raise if a column has a type whose values Arrow cannot have: it would have 10:00:00 for 10:00:00+02.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    for name, kind in zip(answer.columns, answer.types, strict=True):
        if re.search(r"\bTIME WITH TIME ZONE", str(kind)):
            what = f"column {name!r} of an answer cannot have the type {kind}, whose offset would be lost"
            raise QueryError("STORE_QUERY", f"{what}: cast it to VARCHAR or to TIME")


def _read_statement(connection: "duckdb.DuckDBPyConnection", sql: str) -> str:
    """Return the one SELECT of a question.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    import duckdb

    if not isinstance(sql, str):
        raise QueryError("STORE_QUERY", f"a question must be one SELECT statement, not {sql!r}")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError("STORE_QUERY", f"a question must be a text of Unicode: {error}") from error
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(one.type).rpartition(".")[2] for one in statements) or "nothing"
        raise QueryError("STORE_QUERY", f"a question must be one SELECT statement, not {kinds}")
    return str(statements[0].query)


def _refuse_traces(connection: "duckdb.DuckDBPyConnection") -> None:
    """Raise if a statement has left something in the database, and let later statements use another one.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    if not _can_leave_traces():
        return
    if connection.execute("SELECT 1 FROM duckdb_external_resource_types() LIMIT 1").fetchone() is not None:
        _share_database.cache_clear()
        raise QueryError("STORE_QUERY", f"a question must only read, and this one calls {_REGISTER}")


@cache
def _can_leave_traces() -> bool:
    """Whether this version of DuckDB has a function that changes the database."""
    import duckdb

    sql = "SELECT 1 FROM duckdb_functions() WHERE function_name = ? LIMIT 1"
    with duckdb.connect(":memory:") as connection:
        return connection.execute(sql, [_REGISTER]).fetchone() is not None


@contextmanager
def _interrupt_after(connection: "duckdb.DuckDBPyConnection", max_s: float | None) -> Iterator[None]:
    """Interrupt the statement of the connection if the block takes longer than ``max_s`` seconds."""
    if max_s is None:
        yield
        return
    alarm = Timer(max_s, connection.interrupt)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


@cache
def _share_database(memory: str, process: int) -> "duckdb.DuckDBPyConnection":
    """Open the database that all statements of a process share."""
    return open_database(memory)


def open_database(memory: str) -> "duckdb.DuckDBPyConnection":
    """Open an empty database that cannot open files or connections, and tells no folder of this machine."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET GLOBAL memory_limit = ?", [memory])
    connection.execute("SET GLOBAL temp_directory = ''")
    connection.execute("SET GLOBAL secret_directory = ''")
    # Errors about extensions and their repositories would name the home of the user. An empty text stands
    # for it.
    connection.execute("SET GLOBAL extension_directory = 'none'")
    connection.execute("SET GLOBAL home_directory = 'none'")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection
