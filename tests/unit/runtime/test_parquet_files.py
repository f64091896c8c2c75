"""Files of a stream are read as Spark's reader reads them, or are refused by name."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.core.errors import StateError
from thetastream.runtime.parquet_files import ParquetColumns

INSTANT = pa.timestamp("us", "UTC")
DAY = datetime.date(2026, 11, 30)
NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(table: pa.Table, name: str = "a.parquet", **options: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **options)
        return f"file:{path}"

    return write_file


def read(path: str, ignores_case: bool = True, **types: pa.DataType) -> list[dict[str, Any]]:
    columns = ParquetColumns(pa.schema(list(types.items())), ignores_case)
    return [row for batch in columns.read(path) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("found", "wanted", "value"),
    [
        (pa.int8(), pa.int64(), -3),
        (pa.uint32(), pa.int64(), 2**32 - 1),
        (pa.uint8(), pa.int16(), 255),
        (pa.int32(), pa.float64(), 2**31 - 1),
        (pa.float32(), pa.float64(), 0.5),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), Decimal("123.45")),
        (pa.large_string(), pa.string(), "ž"),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "word"),
        (pa.binary(3), pa.binary(), b"abc"),
        (pa.timestamp("ms", "UTC"), INSTANT, NOON),
        (pa.timestamp("ns", "Europe/Prague"), INSTANT, NOON),
        (pa.date32(), pa.date32(), DAY),
        (pa.list_(pa.float32()), pa.list_(pa.field("element", pa.float32())), [0.5, None]),
        (pa.large_list(pa.int32()), pa.list_(pa.field("element", pa.int64())), [7]),
        (pa.list_(pa.float32(), 2), pa.list_(pa.field("element", pa.float32())), [0.5, 1.5]),
        (pa.null(), pa.list_(pa.field("element", pa.float32())), None),
    ],
)
def test_values_of_a_narrower_type_are_kept(
    write: Write, found: pa.DataType, wanted: pa.DataType, value: Any
) -> None:
    path = write(pa.table({"c": pa.array([value, None], found)}))
    assert read(path, c=wanted) == [{"c": value}, {"c": None}]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint32(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(9, 4), pa.decimal128(9, 2)),
        (pa.string(), pa.binary()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (INSTANT, pa.timestamp("us")),
        (pa.date32(), INSTANT),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
    ],
)
def test_a_type_whose_values_may_not_fit_is_refused(
    write: Write, found: pa.DataType, wanted: pa.DataType
) -> None:
    path = write(pa.table({"c": pa.nulls(2, found)}))
    with pytest.raises(StateError, match=r"SOURCE_FILE.*column 'c' of type"):
        read(path, c=wanted)


def test_a_time_that_loses_a_part_is_refused(write: Write) -> None:
    path = write(pa.table({"c": pa.array([1_000, 1_001], pa.timestamp("ns", "UTC"))}))
    with pytest.raises(StateError, match=r"SOURCE_FILE.*value in 'c'"):
        read(path, c=INSTANT)


def test_a_time_without_a_zone_is_an_instant_of_utc(write: Write) -> None:
    path = write(pa.table({"c": pa.array([5], pa.timestamp("us"))}))
    assert read(path, c=INSTANT) == [{"c": datetime.datetime(1970, 1, 1, 0, 0, 0, 5, datetime.UTC)}]


def test_instants_of_96_bits_are_read(write: Write) -> None:
    path = write(pa.table({"c": pa.array([NOON], INSTANT)}), use_deprecated_int96_timestamps=True)
    assert read(path, c=INSTANT) == [{"c": NOON}]
    with pytest.raises(StateError, match=r"SOURCE_FILE"):
        read(path, c=pa.timestamp("us"))


def test_columns_are_found_by_name(write: Write) -> None:
    path = write(pa.table({"ID": [1], "x": [2], "more": [3]}))
    assert read(path, x=pa.int64(), id=pa.int64(), lacks=pa.string()) == [{"x": 2, "id": 1, "lacks": None}]
    assert read(path, ignores_case=False, id=pa.int64()) == [{"id": None}]
    both = write(pa.table({"ID": [1], "Id": [2]}), "both.parquet")
    for name in ("id", "Id"):
        with pytest.raises(StateError, match=r"SOURCE_FILE.*several columns"):
            read(both, **{name: pa.int64()})
    assert read(both, ignores_case=False, Id=pa.int64()) == [{"Id": 2}]


def test_values_in_folders_are_refused(write: Write) -> None:
    path = write(pa.table({"x": [1, 2]}), "day=2026-11-30/a.parquet")
    assert read(path, x=pa.int64()) == [{"x": 1}, {"x": 2}]
    with pytest.raises(StateError, match=r"SOURCE_FILE.*folder.*'Day'"):
        read(path, Day=pa.date32())
    # Folders around the stream give no values.
    root = path.removeprefix("file:").removesuffix("/a.parquet") + "/"
    (batch,) = ParquetColumns(pa.schema([("day", pa.date32())]), root=root).read(path)
    assert batch.to_pylist() == [{"day": None}, {"day": None}]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, write: Write) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing")
    for name in ("broken", "gone"):
        with pytest.raises(StateError, match=f"SOURCE_FILE.*{name}.parquet cannot be read"):
            read(f"file:{tmp_path}/{name}.parquet", x=pa.int64())
    path = write(pa.table({"x": list(range(100_000))}), compression="none")
    file = Path(path.removeprefix("file:"))
    data = bytearray(file.read_bytes())
    data[4:24] = bytes(20)  # the header of the first page
    file.write_bytes(data)
    with pytest.raises(StateError, match=r"SOURCE_FILE"):
        read(path, x=pa.int64())


def test_dates_by_the_former_calendar_are_refused(write: Write) -> None:
    schema = pa.schema([("d", pa.date32()), ("x", pa.int64())])
    marked = schema.with_metadata({"org.apache.spark.legacyDateTime": ""})
    path = write(pa.table({"d": [DAY], "x": [1]}, schema=marked))
    with pytest.raises(StateError, match=r"SOURCE_FILE.*calendar"):
        read(path, d=pa.date32())
    assert read(path, x=pa.int64()) == [{"x": 1}]
    for version, is_refused in (("2.4.8", True), ("3.0.3", False), ("4.3.0", False)):
        days = pa.table({"d": [[DAY]]}).replace_schema_metadata({"org.apache.spark.version": version})
        path = write(days, f"{version}.parquet")
        if is_refused:
            with pytest.raises(StateError, match=r"SOURCE_FILE.*calendar"):
                read(path, d=pa.list_(pa.date32()))
        else:
            assert read(path, d=pa.list_(pa.date32())) == [{"d": [DAY]}]


def test_wide_rows_are_read_in_small_batches(write: Write) -> None:
    path = write(pa.table({"t": ["w" * (1 << 20)] * 40}), use_dictionary=False, compression="none")
    batches = list(ParquetColumns(pa.schema([("t", pa.string())])).read(path))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.num_rows for batch in batches) <= 16


def test_repeated_wide_values_are_read_in_small_batches(write: Write) -> None:
    path = write(pa.table({"t": ["w" * 10_000] * 20_000}))
    batches = list(ParquetColumns(pa.schema([("t", pa.string())])).read(path))
    assert sum(batch.num_rows for batch in batches) == 20_000
    assert max(batch.nbytes for batch in batches) < 100_000_000
