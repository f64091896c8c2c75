"""Brings results out of the units in batches of limited size.

Out of the stateful operator, they leave as pandas frames of Arrow arrays, which PySpark turns back into Arrow
without touching a value (``thetastream.runtime.arrow_frame``), at 4 million rows a second. The counters of a
unit's epoch leave as one extra row. Ordered results leave as packed blocks, because another exchange follows.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from thetastream.core.blocks import STEP, gather, make_binary, pack, unpack
from thetastream.core.columns import BLOCK
from thetastream.engine.counters import Counters
from thetastream.engine.predicate_time import PredicateTime

if TYPE_CHECKING:
    import pandas as pd

COUNTERS = "counters"
"""Column of the operator's output that holds the counters of a unit's epoch as JSON, in one extra row."""
ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 12, 1 << 23
"""Rows and bytes at which a frame of results is full.

Small pieces are collected into one frame, because each frame costs Spark a millisecond or two, and a Python
predicate may leave only one pair of a thousand candidates.
"""
MOST_BYTES = 1 << 25
"""The largest frame of results that has more than one row."""


def count_emitted(pieces: Iterable[list[pa.Array]], counters: Counters) -> Iterator[list[pa.Array]]:
    """Add the bytes of the pieces to the counters, and hand the pieces on unchanged."""
    for columns in pieces:
        counters.emitted_bytes += sum(column.nbytes for column in columns)
        yield columns


def time_work(pieces: Iterable[list[pa.Array]], counters: Counters) -> Iterator[list[pa.Array]]:
    """Count the time until each piece is found, and how much of it predicates take. Hand the pieces on
    unchanged."""
    source, busy_s, in_predicates = iter(pieces), 0.0, PredicateTime(perf_counter)
    while True:
        began_s = perf_counter()
        with in_predicates.is_current():
            piece = next(source, None)
        busy_s += perf_counter() - began_s
        counters.busy_ms = round(1e3 * busy_s)
        counters.predicate_us = round(1e6 * in_predicates.seconds)
        if piece is None:
            return
        yield piece


def write_counters(unit: int, counters: Counters) -> str:
    """Write one unit's counters of one epoch as JSON."""
    return json.dumps({"unit": unit, **asdict(counters)})


def gather_batches(pieces: Iterable[Sequence[pa.Array]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Collect pieces of results into batches of ``schema``, and keep their order.

    A batch has ``MOST_BYTES`` at most, or one row.
    """
    batches = (build_result_batch(columns, schema) for columns in pieces)
    return gather(batches, ROWS_AT_ONCE, BYTES_AT_ONCE, MOST_BYTES)


def build_result_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of the columns, with a counters column of NULLs if ``schema`` has one."""
    arrays = list(columns)
    if COUNTERS in schema.names:
        arrays.append(pa.nulls(len(columns[0]), pa.string()))
    # The type of a nested column may forbid NULLs inside its values. A stream has one schema, so it is cast.
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def build_counters_batch(unit: int, counters: Counters, schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of one row that holds the counters and is otherwise NULL."""
    arrays = [pa.nulls(1, field.type) for field in schema][:-1]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([write_counters(unit, counters)])], schema=schema)


def _make_frame(batch: pa.RecordBatch) -> "pd.DataFrame":
    from thetastream.runtime.arrow_frame import make_frame

    return make_frame(batch)


class Emitter(ABC):
    """Turns columns of results and counters into frames of the operator's output schema.

    ``schema`` is an Arrow schema whose last column holds the counters.
    """

    is_packing: ClassVar[bool] = False
    """Whether frames have one column of packed batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def gather_results(self, pieces: Iterable[Sequence[pa.Array]]) -> "Iterator[pd.DataFrame]":
        """Collect many small pieces into few frames and keep their order."""
        for batch in gather_batches(pieces, self._schema):
            yield self._pack_frame(batch)

    def frame_counters(self, unit: int, counters: Counters) -> "pd.DataFrame":
        """Make a frame of one row that holds the counters and is otherwise NULL."""
        return self._pack_frame(build_counters_batch(unit, counters, self._schema))

    @abstractmethod
    def _pack_frame(self, batch: pa.RecordBatch) -> "pd.DataFrame":
        """Make a frame of a batch of the schema."""


class FrameEmitter(Emitter):
    """Emits frames with one pandas column per result column."""

    def _pack_frame(self, batch: pa.RecordBatch) -> "pd.DataFrame":
        return _make_frame(batch)


class BlockEmitter(Emitter):
    """Emits frames with one binary column, which holds packed result batches.

    Rows without a block follow a large block (``thetastream.spark.dataflow.wide_rows``).
    """

    is_packing = True

    def _pack_frame(self, batch: pa.RecordBatch) -> "pd.DataFrame":
        block = make_binary(pack(batch))
        fillers = pa.nulls(block.nbytes // STEP, block.type)
        return _make_frame(pa.RecordBatch.from_pydict({BLOCK: pa.concat_arrays([block, fillers])}))


def unpack_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack the blocks that ``BlockEmitter`` packed."""
    for batch in batches:
        for value in batch.column(0).drop_null():
            yield unpack(value.as_buffer())
