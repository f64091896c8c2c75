"""How the columns of a Parquet file of results are encoded."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thetastream.results.description import Description
from thetastream.results.staged import Origin
from thetastream.stores import ParquetStore

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("a", pa.struct([("name", pa.string()), ("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)


def write(folder: Path, n: int, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write a file of ``n`` rows; return the metadata of its columns by their paths."""
    store, description = ParquetStore(str(folder)), Description(SCHEMA, keys=keys)
    store.describe(description)
    rows = [
        {
            "id": f"id-{k}",
            "symbol": "AB"[k % 2],
            "price": k / 7,
            "a": {"name": f"name-{k}", "city": None if k % 3 else "Bonn"},
            "tags": [f"tag-{k}"],
        }
        for k in range(n)
    ]
    stage = store.open_stage(Origin("q", 0, "0"), description)
    stage.add(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    staged = stage.close()
    assert staged is not None
    group = pq.read_metadata(folder / staged.name).row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return {column.path_in_schema: column for column in columns}


def test_texts_have_a_dictionary_if_they_repeat(tmp_path: Path) -> None:
    columns = write(tmp_path, 1000)
    with_dictionary = [path for path, column in columns.items() if column.has_dictionary_page]
    assert with_dictionary == ["symbol", "a.city", "tags.list.element"]


def test_texts_have_statistics_if_they_are_keys(tmp_path: Path) -> None:
    columns = write(tmp_path, 100, keys=("id", "a.name"))
    with_statistics = [path for path, column in columns.items() if column.is_stats_set]
    assert with_statistics == ["id", "price", "a.name"]
    assert columns["a.name"].statistics.max == "name-99"
    assert columns["symbol"].has_dictionary_page


def test_columns_without_values_are_written(tmp_path: Path) -> None:
    store, description = ParquetStore(str(tmp_path)), Description(SCHEMA)
    store.describe(description)
    stage = store.open_stage(Origin("q", 0, "0"), description)
    stage.add(pa.RecordBatch.from_pylist([{}, {}], schema=SCHEMA))
    staged = stage.close()
    assert staged is not None
    assert pq.read_table(tmp_path / staged.name).to_pylist() == [dict.fromkeys(SCHEMA.names)] * 2
