"""The tables of a store in PostgreSQL, and connections to the database."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thetastream.errors import QueryError
from thetastream.stores.base import make_unreachable
from thetastream.stores.description import Description
from thetastream.stores.postgres_columns import PART, VERSION, is_indexed, write_name, write_path
from thetastream.stores.postgres_rows import name_type
from thetastream.stores.staged import find_type, split_path

if TYPE_CHECKING:
    import psycopg

SETTINGS = "-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=1 -c bytea_output=hex"
"""The settings on which the text of a row depends. The seal of staged rows is a sum over such texts."""
INSTALL = "pip install 'thetastream[postgres]'"


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
