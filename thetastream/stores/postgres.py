"""``th.PostgresStore``: results in a table of PostgreSQL.

    "pairs"           the results, with the version of the commit that named them
    "pairs_staged"    the staged rows that no commit has named yet
    "pairs_commits"   the log of commits

A task copies its rows into the second table. A commit moves the rows that it names into the first table and
adds its entry to the log, in one transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from thetastream.errors import QueryError, StoreError
from thetastream.stores.description import Description
from thetastream.stores.logged import LoggedStore
from thetastream.stores.part_name import read_part_name
from thetastream.stores.postgres_columns import LONGEST_COLUMN, PART, refuse_names, write_name, write_path
from thetastream.stores.postgres_log import PostgresLog
from thetastream.stores.postgres_rows import decode
from thetastream.stores.postgres_stage import PostgresStage
from thetastream.stores.postgres_tables import PostgresTables
from thetastream.stores.selection import Selection
from thetastream.stores.staged import Origin, Stage, Staged

LONGEST_NAME = LONGEST_COLUMN - len("_staged_part")
"""The largest number of bytes of the name of a store's table, to which the store adds endings."""


@dataclass(frozen=True)
class PostgresStore(LoggedStore):
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
    deletes_at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
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
    def tables(self) -> PostgresTables:
        """The tables of the store."""
        return PostgresTables(self.url, self.table)

    @property
    def log(self) -> PostgresLog:
        return PostgresLog(self.tables, self.name)

    def describe(self, description: Description) -> None:
        refuse_names(description.schema.names)
        self.tables.make(description)
        super().describe(description)

    def open_stage(self, origin: Origin, description: Description) -> Stage:
        return PostgresStage(self.tables, origin, description)

    def sweep(self) -> int:
        epochs, swept = self.list_last_epochs(), 0
        staged = self.tables.quote("staged")
        with self.tables.connect() as connection:
            names = connection.execute(f'SELECT DISTINCT "{PART}" FROM {staged}').fetchall()
            for (name,) in names:
                origin = read_part_name(name)
                if origin is not None and origin[1] <= epochs.get(origin[0], -1):
                    connection.execute(f'DELETE FROM {staged} WHERE "{PART}" = %s', [name])
                    swept += 1
        return swept

    def open_staged(self, staged: Iterable[Staged], selection: Selection) -> pa.Table:
        named = list(staged)
        schema, names = self.description.schema, [one.name for one in named]
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
        with self.tables.connect() as connection:
            sql = f"SELECT {columns} FROM {self.tables.quote()} WHERE {' AND '.join(wheres)}"
            rows = decode(connection.execute(sql, values).fetchall(), schema)
        wanted = sum(one.rows for one in named)
        if not selection.ranges and rows.num_rows != wanted and not self._has_forgotten(names):
            what = f"{self.name} must have the {wanted} rows that its commits name; it has {rows.num_rows}"
            raise StoreError("STORE_DAMAGED", f"{what}. Restore a backup")
        return rows

    def _has_forgotten(self, names: list[str]) -> bool:
        """Whether ``forget`` has deleted rows of one of these parts meanwhile."""
        return not self.read_history().dropped.keys().isdisjoint(names)

    def find_damage(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        """Yield a sentence for each part of which rows are altered or gone."""
        with self.tables.connect() as connection:
            for one in staged:
                found, total = self.tables.sum_rows(connection, self.tables.quote(), one.name, description)
                if found != one.rows:
                    yield f"{one.name} must have {one.rows} rows; it has {found}"
                elif str(total) != one.seal["sum"]:
                    yield f"{one.name} must have the rows that its commit names, and a value is altered"
