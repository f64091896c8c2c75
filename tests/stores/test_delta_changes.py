"""Changes that are applied to a Delta table: by key, each epoch once."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thetastream.core.errors import StoreError
from thetastream.results.description import Description
from thetastream.stores.delta import apply_changes_to

deltalake = pytest.importorskip("deltalake")
SCHEMA = pa.schema(
    [
        ("o_id", pa.int64()),
        ('c "id"', pa.string()),
        ("price", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
HELD = Description(SCHEMA, None, ("o_id", 'c "id"'))
NAN = float("nan")


def make_changes(*changes: tuple[int, str | None, float | None, str]) -> pa.Table:
    rows = [
        {"o_id": o, 'c "id"': c, "price": price, "ts": None, "tags": ["x"], "_change_type": kind}
        for o, c, price, kind in changes
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("_change_type", pa.string())))


def read(table: str) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["o_id"], row['c "id"'], repr(row["price"])) for row in rows)


@pytest.mark.parametrize(
    ("type_", "old", "new"),
    [
        (pa.list_(pa.int32()), [1], [2]),
        (pa.struct([("x", pa.float64())]), {"x": NAN}, {"x": None}),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], None),
    ],
    ids=["list", "struct", "map"],
)
def test_a_delete_names_a_row_by_its_nested_values_too(
    type_: pa.DataType, old: object, new: object, tmp_path: Path
) -> None:
    """The insert of an update comes an epoch before its delete."""
    schema = pa.schema([("id", pa.int32()), ("a", type_)])
    changed, held = schema.append(pa.field("_change_type", pa.string())), Description(schema, None, ("id",))
    table = str(tmp_path / "t")
    for epoch, (value, kind) in enumerate([(old, "insert"), (new, "insert"), (old, "delete")]):
        row = {"id": 1, "a": value, "_change_type": kind}
        assert apply_changes_to(table, held, pa.Table.from_pylist([row], schema=changed), "q", epoch)
    assert deltalake.DeltaTable(table).to_pyarrow_table().to_pylist() == [{"id": 1, "a": new}]
    gone = pa.Table.from_pylist([{"id": 1, "a": new, "_change_type": "delete"}], schema=changed)
    assert apply_changes_to(table, held, gone, "q", 3)
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 0


def test_changes_are_applied_by_key_and_once(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    first = make_changes((1, "a", 1.0, "insert"), (2, "a", NAN, "insert"), (3, "a", None, "insert"))
    assert apply_changes_to(table, HELD, first, "q", 0)
    assert read(table) == [(1, "a", "1.0"), (2, "a", "nan"), (3, "a", "None")]
    second = make_changes(
        (1, "a", 1.0, "delete"),
        (1, "a", 1.5, "insert"),
        (2, "a", NAN, "delete"),
        (3, "a", 99.0, "delete"),  # The table has another row of this key, which stays.
        (4, "z", 1.0, "delete"),
    )
    assert apply_changes_to(table, HELD, second, "q", 3)
    expected = [(1, "a", "1.5"), (3, "a", "None")]
    assert read(table) == expected
    # The epochs run again, and another query has epochs of its own.
    assert not apply_changes_to(table, HELD, second, "q", 3)
    assert not apply_changes_to(table, HELD, first, "q", 0)
    assert read(table) == expected
    assert apply_changes_to(table, HELD, make_changes((3, "a", None, "delete")), "other", 0)
    assert read(table) == [(1, "a", "1.5")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (((1, "a", 1.0, "insert"), (1, "a", 2.0, "insert")), "o_id = 1, c \"id\" = 'a' is twice"),
        (((1, "a", 1.0, "delete"), (1, "a", 2.0, "delete")), "is twice in one epoch"),
        (((1, None, 1.0, "insert"),), "is NULL"),
    ],
)
def test_a_key_that_is_no_key_is_refused(tmp_path: Path, changes: Any, why: str) -> None:
    with pytest.raises(StoreError, match=f"CHANGES_KEY.*{why}"):
        apply_changes_to(str(tmp_path / "t"), HELD, make_changes(*changes), "q", 0)
    assert not (tmp_path / "t").exists()


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    deltalake.write_deltalake(table, pa.table({"o_id": [1]}))
    with pytest.raises(StoreError, match=r"STORE_SCHEMA.*has the columns o_id"):
        apply_changes_to(table, HELD, make_changes((1, "a", 1.0, "insert")), "q", 0)
