"""The bytes of each row of a batch, by which pieces of results stay small although rows are wide."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Int64s


class RowBytes:
    """The bytes of the rows of a batch.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    widest : int, optional
        The bytes of the widest row, if they are known.

    Examples
    --------
    >>> rows = RowBytes(pa.RecordBatch.from_pydict({"id": [1, 2, 3], "text": ["a", None, "long text"]}))
    >>> rows.each.tolist(), rows.widest
    ([13, 12, 21], 21)
    """

    def __init__(self, batch: pa.RecordBatch, widest: int | None = None) -> None:
        self._batch = batch
        self._widest = widest

    @property
    def mean(self) -> float:
        """The mean over all rows."""
        nbytes = int(self._batch.nbytes)
        return nbytes / max(1, int(self._batch.num_rows))

    @cached_property
    def widest(self) -> int:
        """The bytes of the widest row; 0 without rows."""
        if self._widest is not None:
            return self._widest
        return int(self.each.max()) if len(self.each) else 0

    @cached_property
    def each(self) -> Int64s:
        """The bytes of each row."""
        total = np.zeros(self._batch.num_rows, dtype=np.int64)
        for column in self._batch.columns:
            total += measure_values(column)
        return total


def measure_values(column: pa.Array) -> Int64s:
    """Compute the bytes of each value of an array, without validity bits."""
    n, kind = len(column), column.type
    if isinstance(column, pa.ExtensionArray):
        return measure_values(column.storage)
    if pa.types.is_struct(kind):
        total = np.zeros(n, dtype=np.int64)
        for number in range(kind.num_fields):
            total += measure_values(column.field(number))
        return total
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(column.offsets, dtype=np.int64)
        inner = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        ends = np.zeros(int(offsets[-1]) + 1 if n else 1, dtype=np.int64)
        for values in inner:
            ends[1:] += np.cumsum(measure_values(values)[: len(ends) - 1])
        return np.diff(ends[offsets]) + offsets.itemsize // 2 if n else np.zeros(0, dtype=np.int64)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _subtract_offsets(column, np.dtype(np.int32))
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _subtract_offsets(column, np.dtype(np.int64))
    try:
        return np.full(n, max(1, kind.bit_width // 8), dtype=np.int64)
    except ValueError:  # a type without a fixed width, of which no offsets are known
        return np.full(n, -(-column.nbytes // max(1, n)), dtype=np.int64)


def _subtract_offsets(column: pa.Array, width: np.dtype[np.signedinteger]) -> Int64s:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=width, count=len(column) + 1, offset=column.offset * width.itemsize)
    return np.diff(offsets).astype(np.int64) + width.itemsize


def cut_pairs(sizes: Int64s, limit: int) -> Iterator[slice]:
    """Cut a sequence into stretches whose sizes add up to ``limit`` at most; a larger element is alone.

    >>> [(s.start, s.stop) for s in cut_pairs(np.array([3, 4, 5, 20, 1, 1]), 10)]
    [(0, 2), (2, 3), (3, 4), (4, 6)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield slice(start, stop)
        start = stop
