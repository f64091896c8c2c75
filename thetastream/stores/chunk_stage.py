"""Writes the rows of one attempt of a task as chunks."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import Chunk, cut, list_keys, seal_chunk
from thetastream.stores.description import Description
from thetastream.stores.part_name import CHUNKS, make_part_name
from thetastream.stores.sorted_stage import SortedStage
from thetastream.stores.staged import Origin

SORTED_ROWS, SORTED_BYTES = 1 << 16, 1 << 25
"""So many rows or bytes are sorted together, so that rows with the same key are in few chunks."""


class ChunkStage(SortedStage):
    """Writes rows in chunks."""

    def __init__(self, table: ChunkTable, origin: Origin, description: Description) -> None:
        super().__init__(make_part_name(origin, CHUNKS), description, SORTED_ROWS, SORTED_BYTES)
        self._table = table
        self._nbytes = self._chunks = 0

    def write(self, rows: pa.Table) -> None:
        chunks = [
            seal_chunk(self._name, Chunk(self._chunks + number, data, list_keys(part, self._description)))
            for number, (part, data) in enumerate(cut(rows))
        ]
        self._table.write(self._name, chunks)
        self._chunks += len(chunks)
        self._nbytes += sum(len(chunk.data) for chunk in chunks)

    def end(self) -> tuple[int, Mapping[str, Any]]:
        return self._nbytes, {"chunks": self._chunks}
