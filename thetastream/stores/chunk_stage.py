"""Writes the rows of one attempt of a task as chunks."""

import pyarrow as pa

from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import Chunk, cut, list_keys
from thetastream.stores.description import Description
from thetastream.stores.parquet_stage import make_name, sort_by_keys
from thetastream.stores.staged import BoundsFinder, Origin, Stage, Staged

SORTED_ROWS, SORTED_BYTES = 1 << 16, 1 << 25
"""Rows and bytes that are sorted together, so that rows of one key lie in few chunks."""


class ChunkStage(Stage):
    """Collects rows, sorts them and writes them in chunks."""

    def __init__(self, table: ChunkTable, origin: Origin, description: Description) -> None:
        self._table, self._description = table, description
        self._name = make_name(origin)
        self._bounds = BoundsFinder(description.bounded)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = self._nbytes = self._chunks = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._bounds.add(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= SORTED_ROWS or self._waiting_bytes >= SORTED_BYTES:
            self._write()

    def close(self) -> Staged | None:
        if self._waiting:
            self._write()
        if not self._rows:
            return None
        return Staged(self._name, self._rows, self._nbytes, self._bounds.bounds)

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        if self._description.keys:
            rows = sort_by_keys(rows, self._description.keys)
        chunks = [
            Chunk(self._chunks + number, data, list_keys(part, self._description))
            for number, (part, data) in enumerate(cut(rows))
        ]
        self._table.write(self._name, chunks)
        self._chunks += len(chunks)
        self._rows += self._waiting_rows
        self._nbytes += sum(len(chunk.data) for chunk in chunks)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
