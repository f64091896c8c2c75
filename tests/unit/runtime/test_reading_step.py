"""The step that reads and routes reports event times, and numbers tuples, as the ordinary steps do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.core.columns import EMPTY, HASH, KIND
from thetastream.core.errors import StateError
from thetastream.lowering.plain_columns import Conversion, PlainColumn, PlainColumns
from thetastream.lowering.plain_filters import PlainFilter
from thetastream.runtime import reading_step
from thetastream.runtime.parquet_files import ParquetColumns
from thetastream.runtime.reading_step import READ_TIME, StreamReading, make_reading_step
from thetastream.runtime.routing_step import Batches, make_rows

INSTANT = pa.timestamp("us", "UTC")
FILES = ParquetColumns(pa.schema([("x", pa.int64()), ("ts", INSTANT)]))
COLUMNS = PlainColumns(
    (PlainColumn("c0", "x", Conversion.SAME), PlainColumn("c1", "ts", Conversion.MICROS)), ("x", "ts")
)


def write(folder: Path, name: str, x: list[int | None], ts: list[int | None]) -> str:
    pq.write_table(pa.table({"x": x, "ts": pa.array(ts, INSTANT)}), folder / name)
    return f"file:{folder / name}"


def run(
    paths: list[str], counts_all: bool = False, has_hash: bool = False, filters: tuple[PlainFilter, ...] = ()
) -> tuple[Any, Any]:
    """Return the blocks that were routed, and (kind, time) of each row of the exchange."""
    routed: list[pa.RecordBatch] = []

    def route(batches: Batches) -> Batches:
        for batch in batches:
            routed.append(batch)
            if batch.num_rows:
                yield make_rows([7], 0, 1, 0, pa.array([b"block"]))

    columns = replace(COLUMNS, filters=filters)
    reading = StreamReading("a", 1, FILES, columns, has_hash, "ts", counts_all, 5)
    listed = pa.RecordBatch.from_pydict({"path": paths})
    rows = [one for batch in make_reading_step(reading, route)(iter([listed])) for one in batch.to_pylist()]
    times = [(one[KIND], one[READ_TIME] and one[READ_TIME].microsecond) for one in rows]
    return [row for batch in routed for row in batch.to_pylist()], times


def test_the_last_rows_have_the_earliest_and_the_latest_time(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a", [1, 2], [5, 3]), write(tmp_path, "b", [3, None], [4, 9])]
    rows, times = run(paths)
    assert rows == [{"c0": 1, "c1": 5}, {"c0": 2, "c1": 3}, {"c0": 3, "c1": 4}]
    assert times == [(0, 5), (0, 5), (EMPTY, 3), (EMPTY, 5)]


def test_rows_without_a_key_move_the_watermark_only_if_they_should(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a", [None, None], [5, 3])]
    assert run(paths) == ([], [])
    assert run(paths, counts_all=True) == ([], [(EMPTY, 3), (EMPTY, 5)])


def test_rows_that_fail_a_filter_move_the_watermark_only_if_they_should(tmp_path: Path) -> None:
    filters = (PlainFilter("x", ">", (1,)), PlainFilter("x", "<", (5,)))
    paths = [write(tmp_path, "a", [1, 2, 5, None], [9, 3, 1, 2])]
    rows = [{"c0": 2, "c1": 3}]
    assert run(paths, filters=filters) == (rows, [(0, 3), (EMPTY, 3), (EMPTY, 3)])
    assert run(paths, True, filters=filters) == (rows, [(0, 9), (EMPTY, 1), (EMPTY, 9)])
    assert run(paths, filters=(PlainFilter("x", ">", (5,)),)) == ([], [])


def test_equal_tuples_have_different_numbers_and_the_same_ones_again(tmp_path: Path) -> None:
    paths = [write(tmp_path, name, [1] * 10_000, [5] * 10_000) for name in "ab"]
    numbers = [row[HASH] for row in run(paths, has_hash=True)[0]]
    assert len(set(numbers)) == 20_000
    assert numbers == [row[HASH] for row in run(paths, has_hash=True)[0]]


def test_a_tuple_that_no_block_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a", [1] * 100, [5] * 100)
    monkeypatch.setattr(reading_step, "LARGEST_TUPLE", 100)
    assert len(run([path])[0]) == 100
    monkeypatch.setattr(reading_step, "LARGEST_TUPLE", 10)
    with pytest.raises(StateError, match="TUPLE_TOO_LARGE"):
        run([path])
