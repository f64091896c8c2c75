"""A store of changes keeps each insert and delete, and reads the rows that hold."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.stores import KINDS, SCHEMA, START, commit_rows
from thetastream.core.errors import StoreError
from thetastream.results.description import Description
from thetastream.results.question import query
from thetastream.results.store import Store
from thetastream.stores import ParquetStore

CHANGES = SCHEMA.append(pa.field("_change_type", pa.string()))
HELD = Description(CHANGES, "result_time", ("a.symbol", "id"), has_deletes=True)


def make_changes(*changes: tuple[int, str]) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = []
    for number, kind in changes:
        time = START.replace(minute=number)
        pair = {"symbol": f"s{number % 3}", "ts": time}
        rows.append({"id": number, "a": pair, "result_time": time, "_change_type": kind})
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES)


@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_a_store_reads_the_rows_that_hold(empty: Store) -> None:
    store = empty
    store.describe(HELD)
    commit_rows(store, 0, HELD, make_changes((1, "insert"), (2, "insert"), (2, "insert"), (3, "insert")))
    commit_rows(store, 1, HELD, make_changes((1, "delete"), (2, "delete"), (4, "delete")))
    commit_rows(store, 2, HELD, make_changes((1, "insert"), (5, "insert")))

    def read(**asked: Any) -> list[int]:
        found = store.read(**asked)
        assert found.schema.names == ["id", "a", "result_time"]
        return sorted(found["id"].to_pylist())

    assert read() == [1, 2, 3, 5]
    assert read(snapshot=1) == [1, 2, 2, 3]
    assert read(snapshot=2) == [2, 3]
    assert read(since=START.replace(minute=2), until=START.replace(minute=5)) == [2, 3]
    assert read(key={"a.symbol": "s1"}) == [1]
    assert read(key={"id": 4}) == []
    assert read(key={"id": 17}) == []
    log = store.read(changes=True)
    assert len(log) == 9
    assert log.schema.names[-1] == "_change_type"
    assert store.read_snapshot(2)["_change_type"].to_pylist() == ["delete"] * 3
    assert query(store, "SELECT sum(id) AS n FROM results").to_pydict() == {"n": [11]}
    asked = "SELECT count(*) AS n FROM results WHERE _change_type = 'delete'"
    assert query(store, asked, changes=True).to_pydict() == {"n": [3]}
    store.compact()
    assert read() == [1, 2, 3, 5]
    with pytest.raises(StoreError, match="STORE_CHANGES"):
        store.forget(2)


def test_a_store_of_changes_takes_no_other_rows(tmp_path: Path) -> None:
    empty = ParquetStore(str(tmp_path))
    empty.describe(HELD)
    assert empty.description == HELD
    with pytest.raises(StoreError, match=r"STORE_SCHEMA.*whether rows may be deleted"):
        empty.describe(Description(CHANGES, "result_time", ("a.symbol", "id")))


def test_the_description_of_other_stores_is_as_before() -> None:
    assert list(Description(SCHEMA).as_json()) == ["schema", "time", "keys"]
