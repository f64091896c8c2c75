"""Conjuncts and comparisons are read from SQL text without Spark."""

import pytest
from pyspark import cloudpickle

from thetastream.conditions import parse, predicate, split_comparisons, split_conjuncts
from thetastream.conditions.names import find_references, qualify
from thetastream.conditions.refused import find_refused
from thetastream.core.errors import QueryError


def split(text: str) -> list[str]:
    return [conjunct.text for conjunct in split_conjuncts(parse(text))]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.x > b.y", ["a.x > b.y"]),
        ("a.x > b.y AND a.z = b.z", ["a.x > b.y", "a.z = b.z"]),
        ("a.x BETWEEN b.lo AND b.hi", ["a.x BETWEEN b.lo AND b.hi"]),
        (
            "a.x BETWEEN b.lo AND b.hi AND a.y BETWEEN 1 AND 2",
            ["a.x BETWEEN b.lo AND b.hi", "a.y BETWEEN 1 AND 2"],
        ),
        ("a.x NOT BETWEEN 1 AND 2 AND b.y", ["a.x NOT BETWEEN 1 AND 2", "b.y"]),
        ("(a.x > 1 AND (b.y < 2)) AND ((a.z = b.z))", ["a.x > 1", "b.y < 2", "a.z = b.z"]),
        ("(a.x > 1) AND (b.y < 2)", ["a.x > 1", "b.y < 2"]),
        ("a.x > 1 OR b.y < 2", ["a.x > 1 OR b.y < 2"]),
        ("a.x > 1 AND b.y < 2 OR a.z", ["a.x > 1 AND b.y < 2 OR a.z"]),
        ("a.z AND (a.x > 1 OR b.y < 2 AND a.q)", ["a.z", "a.x > 1 OR b.y < 2 AND a.q"]),
        ("NOT a.x > b.y AND a.z", ["NOT a.x > b.y", "a.z"]),
        ("NOT (a.x > b.y AND a.z)", ["NOT (a.x > b.y AND a.z)"]),
        (
            "CASE WHEN a.x = 1 AND b.y = 2 THEN a.s BETWEEN 1 AND 2 ELSE true END AND a.z",
            ["CASE WHEN a.x = 1 AND b.y = 2 THEN a.s BETWEEN 1 AND 2 ELSE true END", "a.z"],
        ),
        ("a.x BETWEEN CASE WHEN b.p AND b.q THEN 1 END AND 5 AND a.z", None),
        ("a.s = ' AND ' AND b.y = \" AND \"", ["a.s = ' AND '", 'b.y = " AND "']),
        ("a.s = 'it''s AND' AND b.y", ["a.s = 'it''s AND'", "b.y"]),
        (r"a.s = 'it\'s AND \\' AND b.y", [r"a.s = 'it\'s AND \\'", "b.y"]),
        (r"a.s = r'\' AND b.y", [r"a.s = r'\'", "b.y"]),
        ("a.`x AND y` = 1 AND `a`.`b``AND` = 2", ["a.`x AND y` = 1", "`a`.`b``AND` = 2"]),
        ("a.x /* AND */ > 1 AND b.y -- AND a.q\n AND a.z", ["a.x /* AND */ > 1", "b.y", "a.z"]),
        ("a.x /* one /* AND */ two */ > 1 AND b.y", ["a.x /* one /* AND */ two */ > 1", "b.y"]),
        ("exists(a.arr, x -> x > b.y AND x < 9) AND a.z", ["exists(a.arr, x -> x > b.y AND x < 9)", "a.z"]),
        ("a.end > a.case AND a.and = b.between", ["a.end > a.case", "a.and = b.between"]),
        ("a.x > b.y\nand\ta.z<b.z And a.q", ["a.x > b.y", "a.z<b.z", "a.q"]),
        ("a.m['k AND'] = 1 AND a.arr[b.i AND 1] = 2", ["a.m['k AND'] = 1", "a.arr[b.i AND 1] = 2"]),
        ("été.x > '😀 AND 😀' AND été.y", ["été.x > '😀 AND 😀'", "été.y"]),
        (
            "a.ts > INTERVAL '1' DAY AND a.x = 5L AND a.y < 3.5BD",
            ["a.ts > INTERVAL '1' DAY", "a.x = 5L", "a.y < 3.5BD"],
        ),
        ("AND", ["AND"]),
        ("a.x AND", ["a.x AND"]),
    ],
)
def test_conjuncts(text, parts):
    if parts is None:
        parts = [text.removesuffix(" AND a.z"), "a.z"]
    assert split(text) == parts


def test_every_conjunct_is_a_slice_of_the_text():
    text = "((a.x  >  b.y) AND /* c */ (a.z BETWEEN\n b.z AND 3))"
    assert all(part in text for part in split(text))


def compared(text: str) -> list[tuple[str, ...]]:
    return [
        (c.f.text, c.op, c.g.text) if c.limit is None else ("abs", c.f.text, c.g.text, c.op, c.limit.text)
        for c in split_comparisons(parse(text))
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.x=b.y", [("a.x", "=", "b.y")]),
        ("a.x == b.y", [("a.x", "=", "b.y")]),
        ("(a.x) <= (b.y + 1)", [("a.x", "<=", "b.y + 1")]),
        ("((a.x > b.y))", [("a.x", ">", "b.y")]),
        ("a.x + 1 >= -b.y", [("a.x + 1", ">=", "-b.y")]),
        ("a.x <> b.y", []),
        ("a.x != b.y", []),
        ("a.x <=> b.y", []),
        ("a.x !> b.y", []),
        ("a.x < b.y = true", []),
        ("a.x IS NULL = b.y", []),
        ("a.x = b.y IS NULL", []),
        ("a.x IN (1, 2) = b.y", []),
        ("a.x LIKE b.y", []),
        ("a.x > b.y OR a.x = 1", []),
        ("NOT a.x > b.y", []),
        ("! a.x > b.y", []),
        ("a.x << 2 > b.y", []),
        ("coalesce(a.x > 1, false) = b.y", [("coalesce(a.x > 1, false)", "=", "b.y")]),
        ("CASE WHEN a.x > 1 THEN 2 END < b.y", [("CASE WHEN a.x > 1 THEN 2 END", "<", "b.y")]),
        ("a.x BETWEEN b.lo AND b.hi", [("a.x", ">=", "b.lo"), ("a.x", "<=", "b.hi")]),
        ("(a.x) BETWEEN (b.lo) AND (b.hi - 1)", [("a.x", ">=", "b.lo"), ("a.x", "<=", "b.hi - 1")]),
        ("a.x NOT BETWEEN b.lo AND b.hi", []),
        ("a.x BETWEEN b.lo AND b.hi = true", []),
        ("abs(a.x - b.y) <= 5", [("abs", "a.x", "b.y", "<=", "5")]),
        ("ABS ( a.x - b.y ) < 2 * 3", [("abs", "a.x", "b.y", "<", "2 * 3")]),
        ("5 >= abs(b.y - a.x)", [("abs", "b.y", "a.x", "<=", "5")]),
        ("5 > abs(b.y - a.x)", [("abs", "b.y", "a.x", "<", "5")]),
        ("abs((a.x - b.y)) <= 5", [("abs", "a.x", "b.y", "<=", "5")]),
        ("abs(a.x + 1 - (b.y - 2)) <= 5", [("abs", "a.x + 1", "b.y - 2", "<=", "5")]),
        ("abs(a.x - b.y - 1) <= 5", [("abs", "a.x - b.y", "1", "<=", "5")]),
        ("abs(a.x * 2 - b.y * -1) <= 5", [("abs", "a.x * 2", "b.y * -1", "<=", "5")]),
        ("abs(a.x - b.y) >= 5", [("abs(a.x - b.y)", ">=", "5")]),
        ("abs(a.x - b.y) = 5", [("abs(a.x - b.y)", "=", "5")]),
        ("abs(a.x + b.y) <= 5", [("abs(a.x + b.y)", "<=", "5")]),
        ("abs(-b.y) <= a.x", [("abs(-b.y)", "<=", "a.x")]),
        ("abs(a.x - b.y) + 1 <= 5", [("abs(a.x - b.y) + 1", "<=", "5")]),
        ("abs(a.x - b.y & 1) <= 5", [("abs(a.x - b.y & 1)", "<=", "5")]),
        ("f(a.x - b.y) <= 5", [("f(a.x - b.y)", "<=", "5")]),
    ],
)
def test_comparisons(text, found):
    assert compared(text) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(a.x > 1", "'(a.x' has no matching ')', at line 1, column 1"),
        ("a.x > 1)", "')' closes nothing, at line 1, column 8"),
        ("a.x >\n f(1]", "']' stands where ')' is due, at line 2, column 5"),
        ("CASE WHEN a.x", "has no matching 'END'"),
        ("a.x = 'open", "SYNTAX"),
        ("a.`x = 1", "SYNTAX"),
        ("", "empty"),
        ("-- only a comment", "empty"),
    ],
)
def test_broken_text_is_refused_with_its_place(text, words):
    with pytest.raises(QueryError, match="SYNTAX") as error:
        parse(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "aliases"),
    [
        ("a.x + b.y", ("a", "b")),
        ("A.x", ("a",)),
        ("`a`.x", ("a",)),
        ("x.a + y.b", ()),
        ("a(1)", ()),
        ("'a.x'", ()),
        ("struct(b)", ("b",)),
        ("exists(a.arr, b -> b > 1)", ("a",)),
        ("exists(a.arr, (b, i) -> b > i) AND b.y", ("a", "b")),
        ("aggregate(a.arr, 0, (b, x) -> b + x) > b.y", ("a", "b")),
        ("1 = 1", ()),
    ],
)
def test_references(text, aliases):
    assert find_references(parse(text), ["a", "b"]) == aliases


@pytest.mark.parametrize(
    ("text", "spliced"),
    [
        ("price > bid", "a.price > b.bid"),
        ("PRICE > b.bid", "a.PRICE > b.bid"),
        ("abs(price - bid) <= 1", "abs(a.price - b.bid) <= 1"),
        ("`we ird` = 1", "b.`we ird` = 1"),
        ("nested.price > 1", "b.nested.price > 1"),
        ("date > DATE'2020-01-01'", "a.date > DATE'2020-01-01'"),
        ("price(1) > 2", "price(1) > 2"),
        ("a.ts > b.ts + INTERVAL 1 day", "a.ts > b.ts + INTERVAL 1 day"),
        ("timestampdiff(day, a.ts, b.ts) > day", "timestampdiff(day, a.ts, b.ts) > a.day"),
        ("CAST(bid AS date) > date", "CAST(b.bid AS date) > a.date"),
        ("bid::date > date", "b.bid::date > a.date"),
        (
            "exists(arr, price -> price > bid) AND price > 1",
            "exists(b.arr, price -> price > b.bid) AND a.price > 1",
        ),
        ("extract(day FROM a.ts) > bid", "extract(day FROM a.ts) > b.bid"),
        ("'price' = a.price", "'price' = a.price"),
        ("unknown > 1", "unknown > 1"),
    ],
)
def test_names_without_alias(text, spliced):
    columns = {"a": ["price", "date", "day", "qty"], "b": ["bid", "we ird", "nested", "arr", "qty"]}
    assert qualify(parse(text), columns, str.casefold).text == spliced


def test_ambiguous_name():
    with pytest.raises(QueryError, match=r"AMBIGUOUS_COLUMN.*write a.qty or b.qty"):
        qualify(parse("qty > 1"), {"a": ["qty"], "b": ["qty"]}, str.casefold)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a.ts > now()", "TIME_DEPENDENT"),
        ("a.ts > current_timestamp", "TIME_DEPENDENT"),
        ("a.d > CURRENT_DATE()", "TIME_DEPENDENT"),
        ("a.x > unix_timestamp()", "TIME_DEPENDENT"),
        ("a.ts > TIMESTAMP 'now'", "TIME_DEPENDENT"),
        ("a.d > date'today'", "TIME_DEPENDENT"),
        ("a.ts > CAST('now' AS TIMESTAMP)", "TIME_DEPENDENT"),
        ("a.ts > TRY_CAST('yesterday' AS timestamp_ntz)", "TIME_DEPENDENT"),
        ("a.ts > 'now'::timestamp", "TIME_DEPENDENT"),
        ("a.d > date('today')", "TIME_DEPENDENT"),
        ("a.ts > try_to_timestamp('now')", "TIME_DEPENDENT"),
        ("a.x > rand()", "NON_DETERMINISTIC"),
        ("a.x = uuid()", "NON_DETERMINISTIC"),
        ("a.x IN (SELECT 1)", "SUBQUERY"),
        ("EXISTS (WITH t AS (SELECT 1) SELECT * FROM t)", "SUBQUERY"),
    ],
)
def test_refused_before_catalyst(text, condition):
    assert condition in [problem.condition for problem in find_refused(parse(text))]


@pytest.mark.parametrize("text", ["a.x = 'now'", "CAST('now' AS STRING) = a.x", "a.date IN ('today')"])
def test_a_text_that_is_no_time_is_not_refused(text):
    assert not list(find_refused(parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "a.now > 1",
        "a.select = b.values",
        "unix_timestamp(a.ts) > 1",
        "a.s = 'now()'",
        "date'2020-01-01' < a.d",
        "now > 1",
    ],
)
def test_not_refused(text):
    assert list(find_refused(parse(text))) == []


@predicate(a=["x"], b=["y"])
def above(a, b):
    return a > b


def test_predicate_is_called_and_pickled():
    assert above(2, 1)
    copy = cloudpickle.loads(cloudpickle.dumps(above))
    assert copy.columns == (("a", ("x",)), ("b", ("y",)))
    assert copy.name == "above"
    assert copy(2, 1)


@pytest.mark.parametrize("columns", [{}, {"a": "x"}, {"a": [1]}])
def test_predicate_columns(columns):
    with pytest.raises(QueryError, match="PREDICATE_COLUMNS"):
        predicate(**columns)
