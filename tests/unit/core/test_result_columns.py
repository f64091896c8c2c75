"""Selected columns that units compute with Arrow."""

import pyarrow as pa
import pytest

from thetastream.core.columns import BlockColumn, LatestTime, TupleColumn, project


@pytest.mark.parametrize("zone", ["UTC", None])
def test_columns_have_the_types_of_the_user(zone: str | None) -> None:
    instant = pa.timestamp("us", zone)
    times = [pa.array([5, 7, None]), pa.array([6, 2, 3])]
    block = pa.RecordBatch.from_arrays(
        [*(times if zone else [one.cast(instant) for one in times]), pa.array([["x"], None, []])],
        names=["c0", "c1", "c2"],
    )
    a, b = BlockColumn("c0"), BlockColumn("c1")
    tags = pa.list_(pa.string())
    schema = pa.schema(
        [
            ("t", instant),
            ("pair", pa.struct([("at", instant), ("tags", tags)])),
            ("result_time", instant),
        ]
    )
    found = project(block, [a, TupleColumn((b, BlockColumn("c2"))), LatestTime((a, b))], schema)
    assert found.schema.equals(schema)
    assert found["t"].cast(pa.int64()).to_pylist() == [5, 7, None]
    assert found["result_time"].cast(pa.int64()).to_pylist() == [6, 7, None]
    assert [row["tags"] for row in found["pair"].to_pylist()] == [["x"], None, []]
