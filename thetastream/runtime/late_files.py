"""Keeps late tuples in Parquet files, exactly once.

    folder/query=<id>/epoch=<number>/<join>-<unit>.parquet

A row has the column ``alias`` and one struct column per stream. The struct column that ``alias`` names holds
the tuple; the others are NULL. A tuple of changes has the field ``_change_type`` too. All files have all
columns, because Spark takes the columns of a folder from one of its files. Each late tuple is written by the
one unit that counts it. The name of a file follows from the query, the epoch, the join and the unit. An epoch
that runs again finds the same late tuples, so it replaces a file by an equal one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from thetastream.core.columns import ColumnSource
from thetastream.core.folder import Folder
from thetastream.engine.counters import LateTuples


@dataclass(frozen=True)
class LateColumn:
    """One column of a stream: its name, how it follows from blocks, and its type in files."""

    field: str
    source: ColumnSource
    type: pa.DataType


@dataclass(frozen=True)
class LateFiles:
    """The folder of late tuples, and the columns of each stream. It is pickled and sent to the workers."""

    folder: str
    """Path or URI, the same for driver and workers."""
    join: str
    """The digest of the joined query. It tells two joins of one Spark query apart."""
    streams: tuple[tuple[str, tuple[LateColumn, ...]], ...]
    """(alias, columns) of each stream."""

    def write(self, query: str, epoch: int, unit: int, tuples: Sequence[LateTuples]) -> None:
        """Write the late tuples that a unit counted in an epoch."""
        if not tuples:
            return
        table = pa.concat_tables([self._as_rows(stream, batch) for stream, batch in tuples])
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        folder = Folder(self.folder, f"query={query}/epoch={epoch}")
        folder.make()
        folder.write(f"{self.join}-{unit}.parquet", sink.getvalue())

    def _as_rows(self, stream: int, batch: pa.RecordBatch) -> pa.Table:
        """Write late tuples of one stream as rows with the column ``alias`` and a struct column."""
        alias, columns = self.streams[stream]
        n, rows = batch.num_rows, {}
        for other, fields in self.streams:
            type_ = pa.struct([(column.field, column.type) for column in fields])
            rows[other] = pa.nulls(n, type_)
        rows[alias] = pa.StructArray.from_arrays(
            [column.source.compute(batch, column.type) for column in columns],
            names=[column.field for column in columns],
        )
        return pa.table({"alias": pa.array([alias] * n, pa.string()), **rows})
