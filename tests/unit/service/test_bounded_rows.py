"""Rows without a statement are read only as far as an answer may go."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from thetastream.core.errors import QueryError
from thetastream.service import Limits
from thetastream.service.limits import read_bounded

BATCH = pa.record_batch({"x": range(100), "s": ["y" * 1000] * 100})
LIMITS = Limits(rows=250, memory="4 MB", seconds=5)


@dataclass
class EndlessRows:
    """A data set that never ends, and that counts the batches that were read."""

    batch: pa.RecordBatch = field(default_factory=lambda: BATCH)
    pause_s: float = 0.0
    n_read: int = 0

    @property
    def schema(self) -> pa.Schema:
        return self.batch.schema

    def scanner(self, **options: Any) -> "EndlessRows":
        assert options["batch_readahead"] == options["fragment_readahead"] == 1
        return self

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            self.n_read += 1
            time.sleep(self.pause_s)
            yield self.batch


@pytest.mark.parametrize(
    ("rows", "condition", "n_read"),
    [
        (EndlessRows(), "TOO_MANY_ROWS", 3),
        (EndlessRows(pa.record_batch({"s": ["y" * 30_000] * 20})), "TOO_LARGE", 2),
        (EndlessRows(pa.record_batch({"x": [1]}), pause_s=0.15), "TOO_SLOW", 2),
    ],
    ids=["rows", "bytes", "seconds"],
)
def test_reading_stops_at_each_limit(rows: EndlessRows, condition: str, n_read: int) -> None:
    with pytest.raises(QueryError) as error:
        read_bounded(rows, Limits(rows=250, memory="4 MB", seconds=0.2))
    assert (error.value.condition, rows.n_read) == (condition, n_read)


@pytest.mark.parametrize(("first", "n_read"), [(1, 1), (100, 1), (101, 2), (250, 3)])
def test_the_first_rows_need_no_others(first: int, n_read: int) -> None:
    rows = EndlessRows()
    assert read_bounded(rows, LIMITS, first)["x"].to_pylist() == [n % 100 for n in range(first)]
    assert rows.n_read == n_read


def test_a_table_and_a_data_set_are_read_alike() -> None:
    table = pa.Table.from_batches([BATCH] * 2)
    for rows in (table, ds.dataset(table)):
        assert read_bounded(rows, LIMITS).equals(table)
        assert read_bounded(rows, LIMITS, 7).equals(table.slice(0, 7))
        assert read_bounded(rows, LIMITS, 1 << 62).equals(table)
    assert read_bounded(table.slice(0, 0), LIMITS).schema == table.schema
    with pytest.raises(QueryError, match="TOO_MANY_ROWS"):
        read_bounded(pa.Table.from_batches([BATCH] * 3), LIMITS)
