"""Columns: a store takes any names, and it refuses columns other than those of its first query."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.stores import HELD, KINDS, SCHEMA, commit_rows
from thetastream.core.errors import QueryError, StoreError
from thetastream.results.description import Description
from thetastream.results.store import Store
from thetastream.stores import DeltaStore


def test_other_columns_are_refused_by_name(store: Store) -> None:
    store.describe(HELD)
    other = Description(SCHEMA.remove(0).append(pa.field("n", pa.int32())), "result_time", ("a.symbol",))
    with pytest.raises(StoreError) as error:
        store.describe(other)
    assert error.value.condition == "STORE_SCHEMA"
    for words in ("'id' is int64 there and missing here", "'n' is missing there and int32 here", "key is"):
        assert words in str(error.value)
    assert store.description == HELD


@pytest.mark.parametrize(
    "schema",
    [pa.schema([("n", pa.int64()), ("N", pa.int64())]), pa.schema([("n", pa.list_(pa.time64("ns")))])],
    ids=["case", "type"],
)
def test_columns_that_a_delta_table_cannot_have_are_refused_before_it_is_made(
    tmp_path: Path, schema: pa.Schema
) -> None:
    with pytest.raises(QueryError, match=r"STORE_COLUMN.*Delta.*n"):
        DeltaStore(str(tmp_path)).describe(Description(schema))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_columns_may_have_any_name(empty: Store) -> None:
    names = ['say "x" %s', "growth%", "a.b", "it's", "Ä"]
    rows = pa.RecordBatch.from_arrays([pa.array([n, n + 1]) for n in range(5)], names=names)
    held = Description(rows.schema, None, tuple(names))
    empty.describe(held)
    commit_rows(empty, 0, held, rows)
    assert empty.read().to_pydict() == rows.to_pydict()
    for n, name in enumerate(names):
        assert empty.read(key={name: (n + 1, None)}).column(0).to_pylist() == [1]
