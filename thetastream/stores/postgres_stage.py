"""Copies the rows of one attempt of a task into the table of staged rows in PostgreSQL."""

from typing import Any

import pyarrow as pa

from thetastream.stores.description import Description
from thetastream.stores.part_name import ROWS, make_part_name
from thetastream.stores.postgres_columns import PART
from thetastream.stores.postgres_rows import encode
from thetastream.stores.postgres_tables import PostgresTables
from thetastream.stores.staged import BoundsFinder, Origin, Stage, Staged


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
