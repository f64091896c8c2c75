"""Calculations over both streams: their values, and the arguments of aggregates that are read as such."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from thetastream.aggregate import NotFoldable
from thetastream.aggregate.operands import (
    ABSOLUTE,
    ADD,
    DOUBLE,
    MULTIPLY,
    SUBTRACT,
    WHERE,
    Calculation,
    SideColumn,
    list_columns,
)
from thetastream.core.sides import Side
from thetastream.engine.matching import Matches
from thetastream.errors import ThetastreamError
from thetastream.plan.fold_calculations import _check_types, _read_operation
from thetastream.predicate import parse

X, Y = SideColumn(Side.LEFT, "x"), SideColumn(Side.RIGHT, "y")
PYTHON = {ADD: lambda x, y: x + y, SUBTRACT: lambda x, y: x - y, MULTIPLY: lambda x, y: x * y}


def matches_of(left, right):
    return Matches(pa.RecordBatch.from_pydict({"x": left}), pa.RecordBatch.from_pydict({"y": right}))


@draw_cases(40)
@given(
    st.sampled_from(sorted(PYTHON)),
    st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))] * 2)),
    st.booleans(),
)
def test_integers_are_calculated_exactly_or_wrap_around(operator, pairs, is_checked):
    left, right = ([pair[n] for pair in pairs] for n in (0, 1))
    matches = matches_of(pa.array(left, pa.int32()), pa.array(right, pa.int32()))
    exact = [None if None in pair else PYTHON[operator](*pair) for pair in pairs]
    small = Calculation(operator, (X, Y), "int", is_checked)
    overflows = any(value is not None and not -(2**31) <= value < 2**31 for value in exact)
    if overflows and is_checked:
        with pytest.raises(ThetastreamError, match=r"ARITHMETIC_OVERFLOW.*beyond int"):
            small.read(matches)
    else:
        wrapped = [None if value is None else (value + 2**31) % 2**32 - 2**31 for value in exact]
        assert small.read(matches).to_pylist() == wrapped
    if all(value is None or -(2**63) <= value < 2**63 for value in exact):
        assert Calculation(operator, (X, Y), "bigint", True).read(matches).to_pylist() == exact


@draw_cases(40)
@given(
    st.sampled_from(sorted(PYTHON)),
    st.lists(st.tuples(st.integers(-(10**11), 10**11), st.integers(-(2**31), 2**31 - 1)), min_size=1),
)
def test_decimals_are_calculated_exactly(operator, pairs):
    prices = [Decimal(cents) / 100 for cents, _ in pairs]
    amounts = [amount for _, amount in pairs]
    matches = matches_of(pa.array(prices, pa.decimal128(12, 2)), pa.array(amounts, pa.int32()))
    types = {ADD: "decimal(13,2)", SUBTRACT: "decimal(13,2)", MULTIPLY: "decimal(23,2)"}
    found = Calculation(operator, (X, Y), types[operator], True).read(matches)
    assert str(found.type) == types[operator].replace("decimal(", "decimal128(").replace(",", ", ")
    assert found.to_pylist() == [
        PYTHON[operator](*pair) for pair in zip(prices, map(Decimal, amounts), strict=True)
    ]


def test_null_nan_and_filters():
    matches = matches_of(
        pa.array([1.0, None, math.nan, math.inf], from_pandas=False), pa.array([2, 3, 4, None], pa.int64())
    )
    total = Calculation(ADD, (X, Y), "double", True).read(matches).to_pylist()
    assert total[:2] == [3.0, None]
    assert math.isnan(total[2])
    assert total[3] is None
    is_kept = matches_of([True, None, False], [1, 2, 3])
    assert Calculation(WHERE, (X, Y), "bigint", True).read(is_kept).to_pylist() == [1, None, None]
    far = matches_of([2**53 + 1], [-5])
    assert Calculation(DOUBLE, (X,), "double", True).read(far).to_pylist() == [float(2**53 + 1)]
    assert Calculation(ABSOLUTE, (Y,), "bigint", True).read(far).to_pylist() == [5]


def test_the_columns_of_each_side_are_listed():
    both = Calculation(SUBTRACT, (Calculation(MULTIPLY, (X, Y), "int", True), Y), "int", True)
    assert list_columns([both, X], Side.LEFT) == ["x", "x"]
    assert list_columns([both], Side.RIGHT) == ["y", "y"]


@pytest.mark.parametrize(
    ("text", "operator", "operands"),
    [
        ("r.x - s.y - r.z", SUBTRACT, ["r.x - s.y", "r.z"]),
        ("r.x - (s.y - r.z)", SUBTRACT, ["r.x", "(s.y - r.z)"]),
        ("r.x * s.y / 2", None, []),
        ("r.x / 2 * s.y", MULTIPLY, ["r.x / 2", "s.y"]),
        ("r.x * s.y + 1 > 2", None, []),
        ("r.x || s.y + 1", None, []),
        ("r.x + s.y & 1", None, []),
        ("-r.x * s.y", MULTIPLY, ["-r.x", "s.y"]),
        ("-(r.x * s.y)", None, []),
        ("abs(r.x - s.y) * 2", MULTIPLY, ["abs(r.x - s.y)", "2"]),
        ("abs(r.x - s.y)", ABSOLUTE, ["r.x - s.y"]),
        ("greatest(r.x, s.y)", None, []),
        ("CAST(r.x - s.y AS DOUBLE)", DOUBLE, ["r.x - s.y"]),
        ("CAST(r.x - s.y AS INT)", None, []),
        ("CASE WHEN (r.b) THEN (s.x) END", WHERE, ["(r.b)", "(s.x)"]),
        ("CASE WHEN (r.b) THEN s.x ELSE 1 END", None, []),
        ("CASE r.b WHEN s.x THEN 1 END", None, []),
        ("r.a[s.x]", None, []),
    ],
)
def test_the_outermost_operator_is_read(text, operator, operands):
    found = _read_operation(parse(text))
    if operator is None:
        assert found is None
    else:
        assert (found.operator, [operand.text for operand in found.operands]) == (operator, operands)


@pytest.mark.parametrize(
    ("operator", "operands", "result", "is_taken"),
    [
        (ADD, ["int", "double"], "double", True),
        (ADD, ["decimal(12,2)", "bigint"], "decimal(23,2)", True),
        (ADD, ["decimal(12,2)", "double"], "double", False),
        (MULTIPLY, ["decimal(30,3)", "decimal(30,3)"], "decimal(38,6)", False),
        (MULTIPLY, ["decimal(18,4)", "decimal(10,2)"], "decimal(29,6)", True),
        (ABSOLUTE, ["decimal(12,2)"], "decimal(12,2)", True),
        (DOUBLE, ["decimal(12,2)"], "double", False),
        (SUBTRACT, ["timestamp", "timestamp"], "interval day to second", False),
        (WHERE, ["boolean", "string"], "string", True),
    ],
)
def test_types_are_taken_if_arrow_gives_the_type_of_spark(operator, operands, result, is_taken):
    if is_taken:
        _check_types(parse("x"), operator, operands, result)
    else:
        with pytest.raises(NotFoldable):
            _check_types(parse("x"), operator, operands, result)
