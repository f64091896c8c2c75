"""Calculations over both streams: their values, and the arguments of aggregates that are read as such."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from thetastream.aggregates import NotFoldable
from thetastream.aggregates.operands import (
    ABSOLUTE,
    ADD,
    AND,
    DOUBLE,
    EQUAL,
    LESS,
    MULTIPLY,
    NOT,
    OR,
    SUBTRACT,
    WHERE,
    Calculation,
    SideColumn,
    list_columns,
)
from thetastream.conditions import parse
from thetastream.core.blocks import Matches
from thetastream.core.errors import ThetastreamError
from thetastream.core.sides import Side
from thetastream.families.views.calculations import (
    _check_types,
    _read_operation,
    find_compared_type,
    read_condition,
)

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


def condition(operator, *operands):
    return Calculation(operator, operands, "boolean", False)


def test_floats_are_compared_in_the_order_of_spark():
    order = [-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]
    pairs = [(x, y) for x in [*order, None] for y in [*order, None]]
    matches = matches_of(
        *(pa.array(values, pa.float64(), from_pandas=False) for values in zip(*pairs, strict=True))
    )

    def rank(value):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)

    wanted = {
        LESS: [None if None in pair else rank(pair[0]) < rank(pair[1]) for pair in pairs],
        EQUAL: [None if None in pair else rank(pair[0]) == rank(pair[1]) for pair in pairs],
    }
    for operator, truth in wanted.items():
        assert condition(operator, X, Y).read(matches).to_pylist() == truth


@pytest.mark.parametrize(
    ("left", "right", "is_less", "is_equal"),
    [
        (pa.array([1, None], pa.int32()), pa.array([2**40, 1]), [True, None], [False, None]),
        (
            pa.array([Decimal("1.50"), Decimal("0.01")], pa.decimal128(12, 2)),
            pa.array([Decimal("1.5000"), Decimal("0.0101")], pa.decimal128(20, 4)),
            [False, True],
            [True, False],
        ),
        (
            pa.array([2**62, -3]),
            pa.array([Decimal("4611686018427387904.0"), Decimal("-2.5")], pa.decimal128(21, 1)),
            [False, True],
            [True, False],
        ),
        (pa.array(["z", "a"]), pa.array(["ä", "a"]), [True, False], [False, True]),
    ],
)
def test_other_values_are_compared_exactly(left, right, is_less, is_equal):
    matches = matches_of(left, right)
    assert condition(LESS, X, Y).read(matches).to_pylist() == is_less
    assert condition(EQUAL, X, Y).read(matches).to_pylist() == is_equal


def test_conditions_have_three_values():
    values = [True, False, None]
    left, right = ([pair[n] for pair in [(x, y) for x in values for y in values]] for n in (0, 1))
    matches = matches_of(pa.array(left), pa.array(right))
    assert condition(AND, X, Y).read(matches).to_pylist() == [
        *(True, False, None),
        *(False, False, False),
        *(None, False, None),
    ]
    assert condition(OR, X, Y, X).read(matches).to_pylist() == [
        *(True, True, True),
        *(True, False, None),
        *(True, None, None),
    ]
    assert condition(NOT, X).read(matches).to_pylist() == [False] * 3 + [True] * 3 + [None] * 3


@pytest.mark.parametrize(
    ("text", "operator", "operands"),
    [
        ("r.x = s.y", EQUAL, ["r.x", "s.y"]),
        ("r.x < s.y + 1", LESS, ["r.x", "s.y + 1"]),
        ("r.x > s.y", LESS, ["s.y", "r.x"]),
        ("r.x >= s.y", NOT, ["(r.x) < (s.y)"]),
        ("r.x <= s.y", NOT, ["(s.y) < (r.x)"]),
        ("r.x <> s.y", NOT, ["r.x = s.y"]),
        ("r.x != s.y", NOT, ["r.x = s.y"]),
        ("abs(r.x - s.y) < 0.5", LESS, ["abs((r.x) - (s.y))", "0.5"]),
        ("s.y BETWEEN r.x AND r.x + 2", AND, ["(s.y) >= (r.x)", "(s.y) <= (r.x + 2)"]),
        ("r.x = s.y AND r.k AND s.z", AND, ["r.x = s.y", "r.k", "s.z"]),
        ("r.x = s.y AND r.k OR s.z AND NOT r.j", OR, ["r.x = s.y AND r.k", "s.z AND NOT r.j"]),
        ("NOT r.x = s.y", NOT, ["r.x = s.y"]),
        ("NOT (r.x OR s.y)", NOT, ["(r.x OR s.y)"]),
        ("(r.x = s.y)", EQUAL, ["r.x", "s.y"]),
        ("NOT r.x <> s.y", NOT, ["r.x <> s.y"]),
        ("r.x <=> s.y", None, []),
        ("r.x NOT BETWEEN s.y AND 2", None, []),
        ("r.x IN (s.y, 2)", None, []),
        ("r.k LIKE s.k", None, []),
        ("r.x = s.y IS NULL", None, []),
        ("r.x <> s.y IS NULL", None, []),
        ("r.x <> s.y = r.k", None, []),
        ("r.x XOR s.y", None, []),
        ("r.x * s.y", None, []),
    ],
)
def test_the_outermost_condition_is_read(text, operator, operands):
    found = read_condition(parse(text))
    if operator is None:
        assert found is None
    else:
        assert (found.operator, [operand.text for operand in found.operands]) == (operator, operands)


@pytest.mark.parametrize(
    ("left", "right", "common", "is_taken"),
    [
        ("int", "bigint", "bigint", True),
        ("int", "double", "double", True),
        ("decimal(12,2)", "bigint", "decimal(22,2)", True),
        ("decimal(38,2)", "decimal(20,4)", "decimal(38,2)", False),
        ("string", "string", "string", True),
        ("string", "int", "bigint", False),
        ("string collate UTF8_LCASE", "string collate UTF8_LCASE", "string collate UTF8_LCASE", False),
        ("timestamp", "date", "timestamp", False),
        ("timestamp", "timestamp", "timestamp", True),
    ],
)
def test_values_are_compared_in_the_type_of_spark(left, right, common, is_taken):
    types = {"l": left, "r": right, "coalesce((l), (r))": common}

    def find():
        return find_compared_type(parse("l"), parse("r"), lambda phrase: types[phrase.text])

    if is_taken:
        assert find() == common
    else:
        with pytest.raises(NotFoldable, match="do not compare"):
            find()
