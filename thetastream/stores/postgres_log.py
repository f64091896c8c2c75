"""The log of a store in PostgreSQL. One transaction adds a version and moves the rows that it names."""

from collections.abc import Iterator, Mapping
from typing import Any

from thetastream.stores.log import Log
from thetastream.stores.postgres_columns import PART
from thetastream.stores.postgres_tables import PostgresTables


class PostgresLog(Log):
    """The log of a store in its table of commits."""

    def __init__(self, tables: PostgresTables, name: str) -> None:
        super().__init__(name)
        self._tables, self._table = tables, tables.quote("commits")

    def find_newest(self) -> int:
        found = self._select(f"SELECT coalesce(max(version), -1) FROM {self._table}")
        return int(found[0][0]) if found else -1

    def find_text(self, version: int) -> object:
        found = self._select(f"SELECT entry FROM {self._table} WHERE version = {int(version)}")
        return found[0][0] if found else None

    def list_texts(self, after: int) -> Iterator[tuple[int, object]]:
        sql = f"SELECT version, entry FROM {self._table} WHERE version > {int(after)} ORDER BY version"
        yield from self._select(sql)

    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        import psycopg

        tables = self._tables
        names = [one["name"] for one in entry.get("staged", ())]
        dropped = [one["name"] for one in entry.get("dropped", ())]
        try:
            with tables.connect() as connection:
                # The version is the primary key of the table, so only one writer succeeds. The other writers
                # read its entry and try the next version.
                connection.execute(f"INSERT INTO {self._table} VALUES (%s, %s)", [version, text])
                moved = f'DELETE FROM {tables.quote("staged")} WHERE "{PART}" = ANY(%s) RETURNING *'
                inserting = f"INSERT INTO {tables.quote()} SELECT *, %s FROM moved"
                connection.execute(f"WITH moved AS ({moved}) {inserting}", [names, version])
                connection.execute(f'DELETE FROM {tables.quote()} WHERE "{PART}" = ANY(%s)', [dropped])
        except psycopg.errors.UniqueViolation:
            return False
        return True

    def _select(self, sql: str) -> list[Any]:
        import psycopg

        try:
            with self._tables.connect() as connection:
                return connection.execute(sql).fetchall()
        except psycopg.errors.UndefinedTable:
            return []
