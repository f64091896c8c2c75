"""Files of late tuples have the columns of all streams, whichever of them were late."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.core.columns import BlockColumn
from thetastream.engine.counters import LateTuples
from thetastream.joins.ask.settings import read_late_folder
from thetastream.runtime.late_files import LateColumn, LateFiles

FILES = (
    (
        "a",
        (
            LateColumn("id", BlockColumn("c0"), pa.int32()),
            LateColumn("ts", BlockColumn("c1"), pa.timestamp("us", "UTC")),
        ),
    ),
    ("b", (LateColumn("tags", BlockColumn("c2"), pa.list_(pa.string())),)),
)


def test_each_file_has_all_columns(tmp_path: Path) -> None:
    files = LateFiles(str(tmp_path), "join", FILES)
    left = pa.RecordBatch.from_pydict({"c0": pa.array([7], pa.int32()), "c1": pa.array([5_000_000])})
    right = pa.RecordBatch.from_pydict({"c2": [["x"], None]})
    files.write("q", 3, 0, [LateTuples(0, left)])
    files.write("q", 3, 1, [LateTuples(1, right), LateTuples(0, left)])
    files.write("q", 4, 1, [])
    first, second = (pq.read_table(tmp_path / "query=q" / "epoch=3" / f"join-{n}.parquet") for n in (0, 1))
    assert first.schema.equals(second.schema)
    assert [str(field.type) for field in first.schema[1].type] == ["int32", "timestamp[us, tz=UTC]"]
    assert first.select(["alias", "b"]).to_pylist() == [{"alias": "a", "b": None}]
    assert second["alias"].to_pylist() == ["b", "b", "a"]
    assert second["b"].to_pylist() == [{"tags": ["x"]}, {"tags": None}, None]
    assert [row and row["id"] for row in second["a"].to_pylist()] == [None, None, 7]
    assert not (tmp_path / "query=q" / "epoch=4").exists()
    files.write("q", 3, 0, [LateTuples(0, left)])
    assert len(list((tmp_path / "query=q" / "epoch=3").iterdir())) == 2


@pytest.mark.parametrize("alias", ["alias", "Query", "epoch"])
def test_a_stream_must_not_have_the_name_of_a_column_of_the_files(alias: str) -> None:
    assert read_late_folder(None, "s3://late", ["a", "b"]) == ("s3://late", [])  # type: ignore[arg-type]
    _, problems = read_late_folder(None, "s3://late", ["a", alias])  # type: ignore[arg-type]
    assert [problem.condition for problem in problems] == ["INVALID_ALIAS"]
