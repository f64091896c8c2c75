"""Computes the columns that a user selected from the blocks that a unit emits, with Arrow alone.

    block columns c0, c1, ...  ->  a.id, struct a, result_time

A block holds a TIMESTAMP as a number of microseconds since 1970, so a cast restores it. Only columns that a
cast restores can be computed here.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


class ColumnSource(ABC):
    """How one selected column follows from a block."""

    @abstractmethod
    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Compute the column as an array of this type."""

    @property
    @abstractmethod
    def read(self) -> tuple[str, ...]:
        """The block columns that the column follows from."""


@dataclass(frozen=True)
class BlockColumn(ColumnSource):
    """A column of a stream."""

    name: str

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        array = block.column(self.name)
        return array if array.type == kind else array.cast(kind)

    @property
    def read(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True)
class TupleColumn(ColumnSource):
    """All columns of a stream, as one struct."""

    fields: tuple[BlockColumn, ...]

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        arrays = [field.compute(block, kind.field(n).type) for n, field in enumerate(self.fields)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


@dataclass(frozen=True)
class LatestTime(ColumnSource):
    """The latest of several event times of one type; NULL if one of them is NULL."""

    times: tuple[BlockColumn, ...]

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        # Arrow compares no instants with a time zone in this way, but their microseconds.
        arrays = [time.compute(block, pa.int64()) for time in self.times]
        return pc.max_element_wise(*arrays, skip_nulls=False).cast(kind)

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(time.name for time in self.times)


def project(block: pa.RecordBatch, sources: Sequence[ColumnSource], schema: pa.Schema) -> pa.RecordBatch:
    """Compute the selected columns of a block.

    Examples
    --------
    >>> block = pa.RecordBatch.from_pydict({"c0": [7], "c1": [5], "c2": [6]})
    >>> schema = pa.schema([("id", pa.int64()), ("result_time", pa.timestamp("us"))])
    >>> sources = BlockColumn("c0"), LatestTime((BlockColumn("c1"), BlockColumn("c2")))
    >>> project(block, sources, schema).to_pydict()
    {'id': [7], 'result_time': [datetime.datetime(1970, 1, 1, 0, 0, 0, 6)]}
    """
    arrays = [source.compute(block, field.type) for source, field in zip(sources, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
