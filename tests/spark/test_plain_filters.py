"""Filters that Arrow evaluates keep the rows that Spark keeps."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from thetastream.lowering.plain_filters import read_plain_filters

SCHEMA = "b BYTE, s SHORT, i INT, l LONG, f FLOAT, d DOUBLE, t STRING, n INT"
INTEGERS = [0, 1, -1, 3, 127, -128]
VALUES: dict[str, list[Any]] = {
    "b": INTEGERS,
    "s": [*INTEGERS, 32767, -32768],
    "i": [*INTEGERS, 2**31 - 1, -(2**31), 16777217],
    "l": [*INTEGERS, 2**63 - 1, -(2**63), 2**53 + 1],
    "f": [0.0, -0.0, 0.1, 1.5, 3.0, 16777216.0, float("nan"), float("inf"), -float("inf"), 1e-45],
    "d": [0.0, -0.0, 0.1, 1.5, 3.0, 16777217.0, float("nan"), float("inf"), -float("inf"), 0.1 + 2**-56],
    "t": ["", "A", "a", "aa", "ab", "\u00e9", "z\u0000", "\U0001f600", "\uffff", "3"],
    "n": [None],
}
NUMBERS = ["0", "-0", "1", "-1", "3", "127", "128", "-129", "32768", "2147483648", "9007199254740993"]
DECIMALS = ["0.1", "1.5", "-1.50", ".5", "3.", "0.10000000149011612", "16777217", "-0.0"]
TEXTS = ["''", "'a'", "'ab'", "'\u00e9'", "'\U0001f600'", "'\uffff'", "'3'"]


def draw_filter(draw: random.Random) -> str:
    column = draw.choice([*VALUES])
    known = TEXTS if column == "t" else NUMBERS if column in "bsiln" else [*DECIMALS, *NUMBERS]
    first, *others = draw.choices(known, k=4)
    op = draw.choice(["<", "<=", ">", ">=", "=", "=="])
    return draw.choice(
        [
            f"a.{column} {op} {first}",
            f"({first} {op} `a`.`{column}`)",
            f"A.{column.upper()} BETWEEN {first} AND {others[0]}",
            f"a.{column} IN ({first}, {', '.join(others)})",
            f"(a.{column}) IN (({first})) /* a comment */",
        ]
    )


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_drawn_filters_keep_what_spark_keeps(spark: SparkSession, ansi: str) -> None:
    draw = random.Random(7)
    rows = [tuple(draw.choice([*own, None]) for own in VALUES.values()) for _ in range(400)]
    frame = spark.createDataFrame(rows, SCHEMA)
    columns = {f"A.{name.upper()}": name for name in VALUES}
    schema = to_arrow_schema(frame.schema)
    types = {field.name: field.type for field in schema}
    table = pa.Table.from_pylist([dict(zip(VALUES, row, strict=True)) for row in rows], schema)
    texts, expected = [], []
    for text in dict.fromkeys(draw_filter(draw) for _ in range(900)):
        filters = read_plain_filters(text, lambda name: columns.get(name.replace("`", "").upper()), types)
        if filters is None:
            continue
        mask = [True] * len(rows)
        for one in filters:
            passing = one.check(table.column(one.field).combine_chunks()).to_pylist()
            mask = [kept and passes is True for kept, passes in zip(mask, passing, strict=True)]
        texts.append(text)
        expected.append(mask)
    assert len(texts) > 300
    kept_conf = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = frame.alias("a").selectExpr(*(f"coalesce({text}, FALSE)" for text in texts)).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", kept_conf)
    wrong = {
        text: [rows[n] for n, row in enumerate(found) if row[at] != mask[n]]
        for at, (text, mask) in enumerate(zip(texts, expected, strict=True))
    }
    assert {text: one[:2] for text, one in wrong.items() if one} == {}


@pytest.mark.parametrize(
    "text",
    [
        "a.i > 3.5",  # a DECIMAL comparison
        "a.i > '3'",
        "a.t > 3",
        "a.t = 'it\\'s'",
        't = "x"',
        "a.i + 1 > 3",
        "a.i <> 3",
        "a.i NOT IN (1, 2)",
        "NOT a.i IN (1, 2)",
        "a.i NOT BETWEEN 1 AND 2",
        "a.d IN (1, 2)",
        "a.i IN (SELECT 1)",
        "a.i IN (1, a.s)",
        "a.i > a.s",
        "a.i > NULL",
        "a.i <=> 3",
        "abs(a.i - 3) <= 4",
        "a.i > 3 OR a.s > 3",
        "a.d > 0.1234567890123456789",
        "a.d > 1e3",
        "a.f > 16777217",
        "a.d > 9007199254740993",
        "a.d > 3.5D",
        "a.l > 5L",
        "a.i > 3 = true",
        "a.i BETWEEN 1 AND 5 = true",
        "a.i IN (1) = true",
        "a.i IN (1) IS NULL",
        "a.i IN (1, NULL)",
        "3 IN (a.i)",
        "a.t = 'a' 'b'",
        "a.t = r'a'",
        "a.t = '${spark.app.name}'",
        "a.i IN (1, -- a comment \\\n 2,\n 3)",
        "a.i.s = 3",
        "b.i > 3",
        "a.p > 3",
        "a.y > DATE '2026-01-01'",
        "a.y > '2026-01-01'",
        "a.c = true",
        "a.h = '3'",
        "a.l > 12345678901234567890",
        "false",
    ],
)
def test_other_filters_are_left_to_spark(text: str) -> None:
    types = {
        "i": pa.int32(),
        "s": pa.int16(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "t": pa.string(),
        "p": pa.decimal128(9, 2),
        "y": pa.date32(),
        "c": pa.bool_(),
        "h": pa.binary(),
    }
    assert read_plain_filters(text, {f"a.{name}": name for name in types}.get, types) is None
