"""Keeps late tuples in Parquet files, exactly once.

    folder/query=<id>/epoch=<number>/<join>-<unit>.parquet

A row has the column ``alias`` and one struct column per stream, of which the one named by ``alias`` holds the
tuple. All files have all columns, because Spark takes the columns of a folder from one of its files. Each
late tuple is written by the one unit that counts it. The name of a file follows from the query, the epoch,
the join and the unit. An epoch that runs again judges the same tuples late, so it replaces a file by an equal
one. A file appears under its name with all its rows or not at all.
"""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from thetastream.engine.counters import LateTuples


@dataclass(frozen=True)
class LateColumn:
    """One column of a stream: its name, its name in blocks, and its type in files."""

    field: str
    block_column: str
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
        system, root = _open(self.folder)
        home = f"{root.rstrip('/')}/query={query}/epoch={epoch}"
        system.create_dir(home, recursive=True)
        # Spark does not read files whose names begin with a dot.
        path, temporary = (
            f"{home}/{self.join}-{unit}.parquet",
            f"{home}/.{self.join}-{unit}.{uuid.uuid4().hex}",
        )
        with system.open_output_stream(temporary) as file:
            pq.write_table(table, file)
        try:
            system.move(temporary, path)
        except OSError:
            # HDFS refuses to rename a file to a name that exists.
            system.delete_file(path)
            system.move(temporary, path)

    def _as_rows(self, stream: int, batch: pa.RecordBatch) -> pa.Table:
        """Write late tuples of one stream as rows with the column ``alias`` and a struct column."""
        alias, columns = self.streams[stream]
        n, rows = batch.num_rows, {}
        for other, fields in self.streams:
            type_ = pa.struct([(column.field, column.type) for column in fields])
            rows[other] = pa.nulls(n, type_)
        rows[alias] = pa.StructArray.from_arrays(
            [batch.column(column.block_column).cast(column.type) for column in columns],
            names=[column.field for column in columns],
        )
        return pa.table({"alias": pa.array([alias] * n, pa.string()), **rows})


def _open(folder: str) -> tuple[fs.FileSystem, str]:
    """Open a folder that is a path or a URI."""
    if "://" in folder or folder.startswith("file:"):
        system, path = fs.FileSystem.from_uri(folder)
        return system, str(path)
    return fs.LocalFileSystem(), os.path.abspath(folder)
