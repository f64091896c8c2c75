"""Collects the rows of one attempt of a task, and writes many at a time, sorted by the keys of the store."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from thetastream.stores.description import Description
from thetastream.stores.staged import BoundsFinder, Stage, Staged, find_column


class SortedStage(Stage):
    """The base of stages that write many rows at a time. A subclass defines ``write`` and ``end``.

    Collected rows are written as soon as they are ``most_rows`` rows or have ``most_bytes`` bytes.
    """

    def __init__(self, name: str, description: Description, most_rows: int, most_bytes: int) -> None:
        self._name, self._description = name, description
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._bounds = BoundsFinder(description.bounded)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Write rows, which are sorted if the store has keys."""

    @abstractmethod
    def end(self) -> tuple[int, Mapping[str, Any]]:
        """End after the last rows. Return the number of bytes that were written, and the seal."""

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._bounds.add(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= self._most_rows or self._waiting_bytes >= self._most_bytes:
            self._write_waiting()

    def close(self) -> Staged | None:
        if self._waiting:
            self._write_waiting()
        if not self._rows:
            return None
        nbytes, seal = self.end()
        return Staged(self._name, self._rows, nbytes, self._bounds.bounds, seal=seal)

    def _write_waiting(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        self.write(sort_by_keys(rows, self._description.keys) if self._description.keys else rows)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def sort_by_keys(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sort rows by their keys."""
    import pyarrow.compute as pc

    columns = {f"k{n}": find_column(table, key) for n, key in enumerate(keys)}
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    return table.take(order)
