"""Changes that are applied to a Delta table: by key, each epoch once."""

from decimal import Decimal
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


@pytest.mark.parametrize("type_", [pa.list_(pa.int32()), pa.struct([("x", pa.int32())])], ids=str)
def test_a_key_has_plain_values(tmp_path: Path, type_: pa.DataType) -> None:
    held = Description(describe_value(type_).schema, None, ("v",))
    with pytest.raises(StoreError, match=r"CHANGES_KEY.*plain values, and 'v' is"):
        apply_changes_to(str(tmp_path / "t"), held, change_value(type_, None, "insert"), "q", 0)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    deltalake.write_deltalake(table, pa.table({"o_id": [1]}))
    with pytest.raises(StoreError, match=r"STORE_SCHEMA.*has the columns o_id"):
        apply_changes_to(table, HELD, make_changes((1, "a", 1.0, "insert")), "q", 0)


def change_value(type_: pa.DataType, value: object, kind: str) -> pa.Table:
    schema = pa.schema([("id", pa.int32()), ("v", type_), ("_change_type", pa.string())])
    return pa.Table.from_pylist([{"id": 1, "v": value, "_change_type": kind}], schema=schema)


def describe_value(type_: pa.DataType) -> Description:
    return Description(pa.schema([("id", pa.int32()), ("v", type_)]), None, ("id",))


@pytest.mark.parametrize(
    ("type_", "value", "there"),
    [
        (pa.float64(), 1.7, pa.int32()),
        (pa.float64(), 1.1, pa.float32()),
        (pa.int64(), 5_000_000_000, pa.int32()),
        (pa.decimal128(10, 4), Decimal("1.1234"), pa.decimal128(10, 2)),
        (pa.string(), "x", pa.int32()),
        (pa.list_(pa.float64()), [1.1], pa.list_(pa.float32())),
    ],
    ids=str,
)
def test_a_table_that_rounds_values_is_refused(
    type_: pa.DataType, value: object, there: pa.DataType, tmp_path: Path
) -> None:
    """The delete of a rounded value would find no row."""
    table = str(tmp_path / "t")
    deltalake.DeltaTable.create(table, schema=describe_value(there).schema)
    with pytest.raises(StoreError, match=r"STORE_SCHEMA.*column 'v' of the Delta table .* cast the column"):
        apply_changes_to(table, describe_value(type_), change_value(type_, value, "insert"), "q", 0)


@pytest.mark.parametrize(
    ("type_", "value", "there"),
    [
        (pa.int8(), -1, pa.field("v", pa.int64())),
        (pa.float32(), 1.1, pa.field("v", pa.float64())),
        (pa.decimal128(5, 2), Decimal("1.12"), pa.field("v", pa.decimal128(10, 4))),
        (pa.list_(pa.int32()), [1], pa.field("v", pa.list_(pa.field("item", pa.int32(), nullable=False)))),
    ],
    ids=str,
)
def test_a_table_may_have_wider_types(
    type_: pa.DataType, value: object, there: pa.Field, tmp_path: Path
) -> None:
    table, held = str(tmp_path / "t"), describe_value(type_)
    deltalake.DeltaTable.create(table, schema=pa.schema([there, ("id", pa.int32())]))
    for epoch, (kind, left) in enumerate((("insert", 1), ("delete", 0))):
        assert apply_changes_to(table, held, change_value(type_, value, kind), "q", epoch)
        assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == left


def test_rows_that_break_a_constraint_of_the_table_are_no_damage(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int32()), pa.field("v", pa.int32(), nullable=False)])
    deltalake.DeltaTable.create(table, schema=schema)
    with pytest.raises(StoreError, match=r"STORE_SCHEMA.*refuses rows by a constraint"):
        apply_changes_to(table, describe_value(pa.int32()), change_value(pa.int32(), None, "insert"), "q", 0)


def test_a_delete_finds_a_row_with_the_other_zero(tmp_path: Path) -> None:
    table, held = str(tmp_path / "t"), describe_value(pa.float64())
    assert apply_changes_to(table, held, change_value(pa.float64(), -0.0, "insert"), "q", 0)
    assert apply_changes_to(table, held, change_value(pa.float64(), 0.0, "delete"), "q", 1)
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 0
