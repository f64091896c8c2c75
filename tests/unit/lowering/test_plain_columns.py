"""Block columns that follow from columns of a stream without Spark are found in its plan."""

import pyarrow as pa
import pytest

from thetastream.lowering.physical import Carried, Filter, SidePlan
from thetastream.lowering.plain_columns import Conversion, NotPlain, find_plain_columns
from thetastream.lowering.plain_filters import PlainFilter

SIDE = SidePlan(
    "A",
    (Filter.require("a.x"), Filter.require("`A`.`ts`")),
    (),
    (
        Carried("x", "c0", "int", "`A`.`x`", "c0"),
        Carried("ts", "c1", "bigint", "unix_micros(`A`.`ts`)", "timestamp_micros(c1)"),
    ),
)
TYPES = {"x": pa.int32(), "ts": pa.timestamp("us", "UTC"), "t": pa.string()}


def test_filters_of_a_plan_are_found() -> None:
    filters = (Filter.read("a.x BETWEEN 1 AND 5"), Filter.require("a.x"), Filter.read("a.t = 'A'"))
    found = find_plain_columns(SidePlan("A", filters, (("k0", "a.x"),), SIDE.carried), TYPES)
    assert found.filters == (
        PlainFilter("x", ">=", (1,)),
        PlainFilter("x", "<=", (5,)),
        PlainFilter("t", "=", ("A",)),
    )
    assert found.fields == ("x", "ts", "t")


def test_columns_of_a_plan_are_found() -> None:
    filters = (*SIDE.filters, Filter.require("A.T"))
    found = find_plain_columns(SidePlan("A", filters, (("k0", "hash(a.t)"),), SIDE.carried), TYPES)
    assert [(one.name, one.field, one.conversion) for one in found.columns] == [
        ("c0", "x", Conversion.SAME),
        ("c1", "ts", Conversion.MICROS),
        ("k0", "t", Conversion.HASH),
    ]
    assert found.required == found.fields == ("x", "ts", "t")


@pytest.mark.parametrize(
    ("computed", "filters"),
    [
        ("a.x + 1", SIDE.filters),
        ("hash(a.x)", (*SIDE.filters, Filter.require("a.x"))),
        ("hash(a.t)", SIDE.filters),  # Rows in which the text is NULL are not left out.
        ("unix_micros(a.x)", SIDE.filters),
        ("b.x", SIDE.filters),
        ("a.gone", SIDE.filters),
        ("a.x", (Filter.read("a.x > 3.5"),)),
        ("a.x", (Filter.require("a.x + 1"),)),
    ],
)
def test_spark_computes_what_is_more_than_a_column(computed: str, filters: tuple[Filter, ...]) -> None:
    plan = SidePlan("A", filters, (("k0", computed),), SIDE.carried)
    with pytest.raises(NotPlain, match=r"Spark (computes|evaluates) "):
        find_plain_columns(plan, TYPES)


def test_spark_computes_deletes_and_rows_without_columns() -> None:
    with pytest.raises(NotPlain, match="rows change"):
        find_plain_columns(SidePlan("A", (), (("w", "a.x"),), SIDE.carried), TYPES)
    with pytest.raises(NotPlain, match="none of its columns"):
        find_plain_columns(SidePlan("A", SIDE.filters, (), ()), TYPES)
