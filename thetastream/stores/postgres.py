"""``th.PostgresStore``: results in a table of PostgreSQL.

    "pairs"           the results, with the number of the entry that named them
    "pairs_staged"    the staged rows that no commit has named yet
    "pairs_commits"   the entries of the log

A task copies its rows into the second table. A commit moves the rows that it names into the first table and
adds its entry to the log, in one transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from thetastream.core.arguments import refuse_non_text
from thetastream.core.errors import QueryError
from thetastream.results.backend import NOTE, make_unreachable
from thetastream.results.description import Description
from thetastream.results.selection import Selection
from thetastream.results.staged import (
    ROWS,
    BoundsFinder,
    Origin,
    Stage,
    Staged,
    find_type,
    make_part_name,
    split_path,
)
from thetastream.results.store import Store
from thetastream.stores.postgres_rows import decode, encode, name_type

if TYPE_CHECKING:
    import psycopg

LONGEST_COLUMN = 63
"""The largest number of bytes of a name in PostgreSQL."""

LONGEST_NAME = LONGEST_COLUMN - len("_staged_part")
"""The largest number of bytes of the name of a store's table, to which the store adds endings."""
SETTINGS = "-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=1 -c bytea_output=hex"
"""The settings on which the text of a row depends. The seal of staged rows is a sum over such texts."""
INSTALL = "pip install 'thetastream[postgres]'"

PART, VERSION = "thetastream_part", "thetastream_version"
"""The columns that this store adds: the part to which a row belongs, and the commit that named the part."""


@dataclass(frozen=True)
class PostgresTables:
    """The address and the names of the tables of a store."""

    url: str = field(repr=False)
    """The address, which may hold a password."""
    table: str

    def quote(self, suffix: str = "") -> str:
        """Quote the name of the table, or of another table or index of the store."""
        return write_name(f"{self.table}_{suffix}" if suffix else self.table)

    def connect(self) -> "psycopg.Connection[Any]":
        """Connect to the database."""
        try:
            import psycopg
        except ImportError as error:
            what = f"a store in PostgreSQL needs psycopg, and {error.name} is missing: {INSTALL}"
            raise QueryError("MISSING_PACKAGE", what) from error
        try:
            return psycopg.connect(self.url, options=SETTINGS)
        except psycopg.ProgrammingError:  # Its text shows the address with the password.
            what = "the address of PostgreSQL cannot be read: it must be a URI or a list of key=value"
            hint = "encode special characters in user and password, as in %40 for @"
            raise QueryError("BAD_VALUE", f"{what}; {hint}") from None
        except psycopg.Error as error:
            raise make_unreachable("PostgreSQL", error) from error

    def sum_rows(
        self, connection: "psycopg.Connection[Any]", table: str, part: str, description: Description
    ) -> tuple[int, int]:
        """Count the rows of a part in a quoted table, and add a hash of each row."""
        columns = ", ".join(write_name(field.name) for field in description.schema).replace("%", "%%")
        hashes = f"coalesce(sum(hashtextextended(ROW({columns})::text, 0)), 0)"
        found = connection.execute(
            f'SELECT count(*), {hashes} FROM {table} WHERE "{PART}" = %s', [part]
        ).fetchone()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def make(self, description: Description) -> None:
        """Make the tables and their indexes unless they exist."""
        with self.connect() as connection:
            # If several queries start at the same time, the lock lets one of them make the tables.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self.table])
            connection.execute(self._write_statements(description))

    def _write_statements(self, description: Description) -> str:
        named = ((write_name(field.name), name_type(field.type)) for field in description.schema)
        columns = ", ".join(f"{name} {kind}" for name, kind in named)
        statements = [
            f'CREATE TABLE IF NOT EXISTS {self.quote()} ({columns}, "{PART}" TEXT, "{VERSION}" BIGINT)',
            f'CREATE TABLE IF NOT EXISTS {self.quote("staged")} ({columns}, "{PART}" TEXT)',
            f"CREATE TABLE IF NOT EXISTS {self.quote('commits')} (version BIGINT PRIMARY KEY, entry TEXT)",
            f'CREATE INDEX IF NOT EXISTS {self.quote("part")} ON {self.quote()} ("{PART}")',
            f'CREATE INDEX IF NOT EXISTS {self.quote("staged_part")} ON {self.quote("staged")} ("{PART}")',
        ]
        for number, column in enumerate(description.bounded):
            path = split_path(description.schema, column)
            if len(path) > 1 and not is_indexed(find_type(description.schema, column)):
                continue
            expression = write_path(path, description.schema)
            index = self.quote(f"by_{number}")
            statements.append(f"CREATE INDEX IF NOT EXISTS {index} ON {self.quote()} (({expression}))")
        return "; ".join(statements)


class PostgresBackend:
    """Entries and rows in three tables."""

    def __init__(self, tables: PostgresTables) -> None:
        self._tables = tables
        self._rows, self._staged, self._log = (tables.quote(one) for one in ("", "staged", "commits"))

    def newest(self) -> int:
        found = self._select(f"SELECT coalesce(max(version), -1) FROM {self._log}")
        return int(found[0][0]) if found else -1

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        sign = ">=" if with_later else "="
        sql = f"SELECT version, entry FROM {self._log} WHERE version {sign} {int(n)} ORDER BY version"
        yield from self._select(sql)

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        import psycopg

        staged, dropped = ([one["name"] for one in entry.get(key, ())] for key in ("staged", "dropped"))
        try:
            with self._tables.connect() as connection:
                # The number is the primary key of the table, so only one writer succeeds. The other writers
                # read its entry and try the next number.
                connection.execute(f"INSERT INTO {self._log} VALUES (%s, %s)", [n, text])
                moved = f'DELETE FROM {self._staged} WHERE "{PART}" = ANY(%s) RETURNING *'
                inserting = f"INSERT INTO {self._rows} SELECT *, %s FROM moved"
                connection.execute(f"WITH moved AS ({moved}) {inserting}", [staged, n])
                connection.execute(f'DELETE FROM {self._rows} WHERE "{PART}" = ANY(%s)', [dropped])
        except psycopg.errors.UniqueViolation:
            return False
        return True

    def mark(self, note: str) -> None:
        writing = "ON CONFLICT (version) DO UPDATE SET entry = EXCLUDED.entry"
        with self._tables.connect() as connection:
            connection.execute(f"INSERT INTO {self._log} VALUES (%s, %s) {writing}", [NOTE, note])

    def make(self, description: Description) -> None:
        refuse_names(description.schema.names)
        self._tables.make(description)

    def stage(self, origin: Origin, description: Description) -> Stage:
        return PostgresStage(self._tables, origin, description)

    def open(self, staged: Sequence[Staged], selection: Selection, description: Description) -> pa.Table:
        schema, names = description.schema, [one.name for one in staged]
        # psycopg reads a percent sign as the beginning of a value, unless it comes twice.
        columns = ", ".join(write_name(field.name) for field in schema).replace("%", "%%")
        wheres, values = [f'"{PART}" = ANY(%s)'], [names]
        for one in selection.ranges:
            column = write_path(one.path, schema).replace("%", "%%")
            for sign, end in ((">=", one.low), ("<=" if one.includes_high else "<", one.high)):
                if end is not None:
                    value = end.as_py()
                    if isinstance(value, str) and "\0" in value:
                        what = "PostgreSQL compares no text with the character NUL"
                        raise QueryError("BAD_VALUE", f"{what}, as in key {one.column!r}: {value!r}")
                    wheres.append(f"{column} {sign} %s")
                    values.append(value)
        with self._tables.connect() as connection:
            sql = f"SELECT {columns} FROM {self._rows} WHERE {' AND '.join(wheres)}"
            rows = decode(connection.execute(sql, values).fetchall(), schema)
        wanted = sum(one.rows for one in staged)
        if not selection.ranges and rows.num_rows != wanted:
            raise pa.ArrowInvalid(f"there must be {wanted} rows, and {rows.num_rows} are there")
        return rows

    def names(self) -> Iterator[tuple[str, None]]:
        return ((name, None) for (name,) in self._select(f'SELECT DISTINCT "{PART}" FROM {self._staged}'))

    def remove(self, names: Iterable[str], description: Description) -> None:
        with self._tables.connect() as connection:
            connection.execute(f'DELETE FROM {self._staged} WHERE "{PART}" = ANY(%s)', [list(names)])

    def check(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        with self._tables.connect() as connection:
            for one in staged:
                found, total = self._tables.sum_rows(connection, self._rows, one.name, description)
                if found != one.rows:
                    yield f"{one.name} must have {one.rows} rows; it has {found}"
                elif str(total) != one.seal["sum"]:
                    yield f"{one.name} must have the rows that its commit names, and a value is altered"

    def _select(self, sql: str) -> list[Any]:
        """Read rows; none if there is no such table."""
        import psycopg

        try:
            with self._tables.connect() as connection:
                return connection.execute(sql).fetchall()
        except psycopg.errors.UndefinedTable:
            return []


@dataclass(frozen=True)
class PostgresStore(Store):
    """Results in a table of PostgreSQL. It needs the package psycopg.

    Struct columns and lists become columns of type JSONB. Columns of time become TIMESTAMPTZ or TIMESTAMP.
    The table has two more columns, ``thetastream_part`` and ``thetastream_version``: the part to which the
    row belongs, and the commit that has named the part. It has an index for the time and for each key. Texts
    are compared by their code points, as in Spark, and may not contain the character NUL.

    Parameters
    ----------
    url : str
        The address at which the driver and all workers connect, as in ``"postgresql://user@host/database"``.
        It is a part of the options of the query, so keep a password in ``~/.pgpass`` on all machines instead.
    table : str
        The name of the table. The store makes this table, and two more whose names begin with it.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.PostgresStore("postgresql:///results", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    url: str
    table: str

    kind: ClassVar[str] = "postgres"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")
    deletes_at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_non_text(self.url, "url", '"postgresql:///results"')
        refuse_non_text(self.table, "table", '"pairs"')
        nbytes = len(self.table.encode())
        if not 0 < nbytes <= LONGEST_NAME:
            # PostgreSQL cuts longer names, so the three tables would get the same name.
            what = f"table must be a name of 1 to {LONGEST_NAME} bytes"
            raise QueryError("BAD_VALUE", f"{what}, and {self.table!r} has {nbytes}")
        if "%" in self.table:
            raise QueryError("BAD_VALUE", f"table must have no percent sign, not {self.table!r}")

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    @property
    def variables(self) -> tuple[str, ...]:
        return ("PG", "SSL_CERT_")

    def __repr__(self) -> str:
        """Describe the store without its address, which may hold a password."""
        return f"PostgresStore(..., {self.table!r})"

    @property
    def backend(self) -> PostgresBackend:
        return PostgresBackend(PostgresTables(self.url, self.table))


class PostgresStage(Stage):
    """Copies rows over one connection, which ends with the stage."""

    def __init__(self, tables: PostgresTables, origin: Origin, description: Description) -> None:
        self._tables, self._description = tables, description
        self._name = make_part_name(origin, ROWS)
        self._bounds = BoundsFinder(description.bounded)
        self._rows = self._nbytes = 0
        self._connection: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._connection is None:
            self._connection = self._tables.connect()
        self._bounds.add(batch)
        part = pa.array([self._name] * batch.num_rows)
        text = encode(batch.append_column(PART, part))
        with self._connection.cursor() as cursor:
            copying = f"COPY {self._tables.quote('staged')} FROM STDIN (FORMAT csv)"
            with cursor.copy(copying) as copy:
                copy.write(text)
        self._rows += batch.num_rows
        self._nbytes += len(text)

    def close(self) -> Staged | None:
        if self._connection is None:
            return None
        table = self._tables.quote("staged")
        _, total = self._tables.sum_rows(self._connection, table, self._name, self._description)
        self._connection.commit()
        self._connection.close()
        return Staged(self._name, self._rows, self._nbytes, self._bounds.bounds, seal={"sum": str(total)})


def refuse_names(names: list[str]) -> None:
    """Raise if a table of results cannot have columns with these names.

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    for name in names:
        if name in (PART, VERSION):
            what = f"a table of PostgreSQL has a column {name!r} of the store itself"
            raise QueryError("STORE_COLUMN", f"{what}; rename the column of the results")
        if len(name.encode()) > LONGEST_COLUMN:
            what = f"PostgreSQL cuts names of columns after {LONGEST_COLUMN} bytes, as {name!r}"
            raise QueryError("STORE_COLUMN", f"{what}; rename it")


def write_name(name: str) -> str:
    """Quote the name of a column, a table or an index."""
    return '"' + name.replace('"', '""') + '"'


def write_path(path: tuple[str, ...], schema: pa.Schema) -> str:
    """Write the expression for a column, or for a field of a column of type JSONB with the field's type."""
    head, *rest = path
    if not rest:
        return write_name(head)
    *inner, last = ("'" + name.replace("'", "''") + "'" for name in rest)
    fields = "".join(f"->{name}" for name in inner)
    text, kind = f"({write_name(head)}{fields}->>{last})", find_type(schema, ".".join(path))
    return f"decode({text}, 'hex')" if pa.types.is_binary(kind) else f"{text}::{name_type(kind)}"


def is_indexed(kind: pa.DataType) -> bool:
    """Whether a field of this type can have an index. Times cannot: their text depends on the session."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))
