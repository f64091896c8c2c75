"""Results leave the stateful operator.

Flat (atomic) columns leave as a pandas frame of Arrow-backed columns, which PySpark turns back into
Arrow without touching a value: 4 million rows a second. Nested columns leave as packed blocks and
are unpacked one step later, in ``mapInArrow``; PySpark would convert them row by row. Counters of a
unit's epoch travel as one extra row.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from thetastream.aggregate import Fold, view_of
from thetastream.blocks import gather, pack, unpack
from thetastream.joiner.unit import Counters, Matches

COUNTERS = "counters"
BLOCK = "block"
ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 12, 1 << 23
"""Results that leave in one frame, at least: a frame costs Spark's exchange with Python a millisecond or two,
and a Python predicate may leave a single one of a thousand candidates."""


class Emitter(Protocol):
    """Turns columns of results and counters into frames of the operator's output schema."""

    @property
    def columns(self) -> pa.Schema: ...
    def results(self, columns: Sequence[pa.Array]) -> Any: ...
    def gathered(self, pieces: Iterable[Sequence[pa.Array]]) -> Iterator[Any]: ...
    def counters(self, unit: int, counters: Counters) -> Any: ...


def outcome(fold: Fold | None, matches: Iterable[Matches]) -> Iterator[list[pa.Array]]:
    """The columns that leave a unit: its matches, or their view if there is something to fold."""
    if fold is None:
        for piece in matches:
            yield [*piece.left.columns, *piece.right.columns]
        return
    for rows in view_of(fold, matches).rows():
        yield rows.columns


def weighed(pieces: Iterable[list[pa.Array]], counters: Counters) -> Iterator[list[pa.Array]]:
    """The pieces as they are; their bytes are counted."""
    for columns in pieces:
        counters.emitted_bytes += sum(column.nbytes for column in columns)
        yield columns


def counters_json(unit: int, counters: Counters) -> str:
    """One unit's counters of one epoch, as text."""
    return json.dumps({"unit": unit, **asdict(counters)})


def result_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The columns, and a NULL counters column if ``schema`` has one."""
    arrays = list(columns)
    if COUNTERS in schema.names:
        arrays.append(pa.nulls(len(columns[0]), pa.string()))
    # Nested values come as Spark knew them, perhaps without NULLs inside; a stream has one schema.
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def counters_batch(unit: int, counters: Counters, schema: pa.Schema) -> pa.RecordBatch:
    """A row that is NULL but for the counters."""
    arrays = [pa.nulls(1, field.type) for field in schema][:-1]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([counters_json(unit, counters)])], schema=schema)


def _frame(batch: pa.RecordBatch) -> pd.DataFrame:
    columns = {
        name: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])), copy=False)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pd.DataFrame(columns, copy=False)


class _Emitter:
    """``schema`` in Arrow, counters last."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def columns(self) -> pa.Schema:
        """The columns of results."""
        return self._schema.remove(len(self._schema) - 1)

    def results(self, columns: Sequence[pa.Array]) -> pd.DataFrame:
        """A frame of result columns."""
        return self._framed(result_batch(columns, self._schema))

    def gathered(self, pieces: Iterable[Sequence[pa.Array]]) -> Iterator[pd.DataFrame]:
        """Many small pieces in few frames, in their order."""
        batches = (result_batch(columns, self._schema) for columns in pieces)
        for batch in gather(batches, ROWS_AT_ONCE, BYTES_AT_ONCE):
            yield self._framed(batch)

    def counters(self, unit: int, counters: Counters) -> pd.DataFrame:
        """A frame of one row that is NULL but for the counters."""
        return self._framed(counters_batch(unit, counters, self._schema))

    def _framed(self, batch: pa.RecordBatch) -> pd.DataFrame:
        raise NotImplementedError


class FlatEmitter(_Emitter):
    """One pandas column per result column."""

    def _framed(self, batch: pa.RecordBatch) -> pd.DataFrame:
        return _frame(batch)


class BlockEmitter(_Emitter):
    """One binary column of packed result batches."""

    def _framed(self, batch: pa.RecordBatch) -> pd.DataFrame:
        data = pa.array([pack(batch)], type=pa.binary())
        return _frame(pa.RecordBatch.from_pydict({BLOCK: data}))


def unpack_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The ``mapInArrow`` step behind ``BlockEmitter``."""
    for batch in batches:
        for value in batch.column(0):
            yield unpack(value.as_buffer())
