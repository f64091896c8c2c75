"""The expected answer from Spark itself: the cross join, filtered by the same condition, as a bag.

    { (a.id, b.id) : a x b, condition is TRUE }

Many joins are combined by UNION ALL, so that one Spark query answers many conditions. A tag tells the
condition of each pair.
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th

ZONE = "America/New_York"

# For each column: its type, the values of the left stream, and those of the right. The last row is all NULL.
COLUMNS: dict[str, tuple[str, list[str], list[str]]] = {
    "x": ("int", ["0", "1", "2", "3", "-1", "2"], ["1", "2", "2", "4", "-2"]),
    "y": ("double", ["0.5", "1.5", "2.0", "-0.0"], ["0.0", "1.0", "1.5", "2.5", "-1.0"]),
    "ty": ("tinyint", ["-128", "1", "127"], ["127", "1", "-128", "2"]),
    "i": ("int", ["-2147483648", "0", "16777217", "2147483647"], ["2147483647", "0", "-2147483648"]),
    "l": (
        "bigint",
        ["9007199254740993", "-9223372036854775808", "9223372036854775807", "0"],
        ["9007199254740992", "9223372036854775807", "9007199254740993", "-9223372036854775808"],
    ),
    "f": (
        "float",
        ["'NaN'", "-0.0", "0.1", "'Infinity'", "0.3", "1.4e-45", "'-Infinity'"],
        ["0.0", "'NaN'", "0.2", "'Infinity'", "1.6777216e7", "0.4"],
    ),
    "d": (
        "double",
        ["'NaN'", "0.0", "0.1", "'-Infinity'", "0.30000000000000004", "9007199254740992", "1e308"],
        ["-0.0", "'NaN'", "0.2", "'-Infinity'", "0.3", "0.4", "5e-324", "-1e308"],
    ),
    "m": ("decimal(10,2)", ["1.50", "2", "-99999999.99", "0.01"], ["1.50", "2.00", "0.02", "-99999999.99"]),
    "m4": ("decimal(12,4)", ["1.5000", "2.0001", "0.01"], ["1.5", "1.5001", "2", "0.0101"]),
    "w": (
        "decimal(38,18)",
        ["1.5", "99999999999999999999.999999999999999999", "0.000000000000000001", "-1"],
        ["1.500000000000000000", "99999999999999999999.999999999999999998", "0", "-1.000000000000000001"],
    ),
    "s": (
        "string",
        ["''", "'😀'", "'abcdefghij'", "'abcdefgh'", "'a'", "'é'"],
        ["'abcdefghik'", "''", "'abcdefghij'", "'😀'", "'A'", "'abcdefghi'"],
    ),
    "c": ("string collate UTF8_LCASE", ["'ΑΣ'", "'b'", "''", "'İ'", "'A'"], ["'ας'", "'B'", "'a'", "'i̇'"]),
    "n": ("string", ["'0'", "'1'", "'2.5'", "' 2 '"], ["'1'", "'2'", "'-1'"]),
    "bin": (
        "binary",
        ["X''", "X'00'", "X'FF00'", "X'0001020304050607FF'"],
        ["X'0000'", "X''", "X'0001020304050607'"],
    ),
    "bool": ("boolean", ["true", "false"], ["false", "true", "true"]),
    "date": (
        "date",
        ["'2024-03-10'", "'0001-01-01'", "'1969-12-31'"],
        ["'2024-03-10'", "'2024-03-11'", "'9999-12-31'"],
    ),
    "ts": (  # the clock of New York skips 02:00 on 10 March 2024 and repeats 01:00 on 3 November
        "timestamp",
        ["'2024-03-10 03:30:00'", "'2024-11-03 05:30:00Z'", "'1969-12-31 23:59:59.999999'", "'2024-03-10'"],
        [
            "'2024-03-09 03:30:00'",
            "'2024-11-03 06:30:00Z'",
            "'1969-12-31 23:59:59.999998'",
            "'2024-03-11'",
            "'2024-11-02 01:30:00'",
        ],
    ),
    "ntz": (
        "timestamp_ntz",
        ["'2024-03-10 02:30:00'", "'2024-11-03 01:30:00'", "'1969-12-31 23:59:59.999999'"],
        [
            "'2024-03-10 03:30:00'",
            "'2024-11-03 01:30:00.000001'",
            "'1969-12-31 23:59:59.999999'",
            "'2024-03-10'",
        ],
    ),
    "dt": (
        "interval day to second",
        ["INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL '-0.000001' SECOND"],
        ["INTERVAL '24' HOUR", "INTERVAL '0' DAY"],
    ),
    "ym": (
        "interval year to month",
        ["INTERVAL '1' YEAR", "INTERVAL '-1' MONTH"],
        ["INTERVAL '12' MONTH", "INTERVAL '0' YEAR"],
    ),
    "t": (
        "time(6)",
        ["'00:00:00'", "'23:59:59.999999'"],
        ["'23:59:59.999998'", "'00:00:00'", "'23:59:59.999999'"],
    ),
}
ROWS = 12

# Columns that no condition compares.
PAYLOAD: dict[str, tuple[str, list[str]]] = {
    "small": ("smallint", ["-32768", "32767"]),
    "lcase": ("string collate UTF8_LCASE", ["'A'", "''"]),
    "hour": ("interval hour", ["INTERVAL '-5' HOUR"]),
    "year": ("interval year", ["INTERVAL '-1' YEAR"]),
    "dtmax": ("interval day to second", ["INTERVAL '106751991 04:00:54.775807' DAY TO SECOND"]),
    "calendar": ("interval", ["'1 month 2 days 3 microseconds'"]),
    "time0": ("time(0)", ["'12:00:01'"]),
    "void": ("void", ["NULL"]),
    "far": ("timestamp", ["'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"]),
}
NESTED: dict[str, tuple[str, list[str]]] = {
    "array": ("array<int>", ["array()", "array(1, NULL)"]),
    "stamps": ("array<timestamp>", ["array(timestamp'2024-11-03 05:30:00.000001Z', NULL)"]),
    "decimals": ("array<decimal(38,18)>", ["array(1.5BD, NULL)"]),
    "spans": ("array<interval day to second>", ["array(INTERVAL '-5 01:02:03.000004' DAY TO SECOND, NULL)"]),
    "map": ("map<string,array<int>>", ["map('', array(1, NULL), '😀', NULL)", "map()"]),
    "struct": (
        "struct<a:int,`b c`:struct<d:array<string>,e:double>>",
        [
            "named_struct('a', 1, 'b c', named_struct('d', array('x', NULL), 'e', double('NaN')))",
            "named_struct('a', NULL, 'b c', NULL)",
        ],
    ),
    "voids": ("array<void>", ["array(NULL)"]),
    "variant": ("variant", ["parse_json('{\"a\": [1, null]}')", "parse_json('null')"]),
    "variants": ("array<variant>", ["array(parse_json('1'), NULL)"]),
    "in_struct": ("struct<v:variant>", ["named_struct('v', parse_json('\"😀\"'))"]),
}


def table(spark: SparkSession, columns: dict[str, tuple[str, list[str]]], rows: int) -> DataFrame:
    """Build rows with an id and the columns, whose values repeat. In the last row, all columns but the id are
    NULL."""
    cells = {name: [*values, "NULL"] for name, (_, values) in columns.items()}
    selects = [
        f"SELECT {i} AS id, "
        + ", ".join(
            f"CAST({'NULL' if i == rows - 1 else cells[name][i % len(cells[name])]} AS {kind}) AS {name}"
            for name, (kind, _) in columns.items()
        )
        for i in range(rows)
    ]
    return made(spark, selects)


def made(spark: SparkSession, selects: Sequence[str]) -> DataFrame:
    """Compute the rows of one-row queries at once, so that the plans of many joins over them stay small."""
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1).localCheckpoint()


class configured:
    """A context in which the session has other settings."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self.spark, self.settings = spark, settings

    def __enter__(self) -> None:
        self.before: dict[str, Any] = {key: self.spark.conf.get(key, None) for key in self.settings}
        for key, value in self.settings.items():
            self.spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, value in self.before.items():
            if value is None:
                self.spark.conf.unset(key)
            else:
                self.spark.conf.set(key, value)


def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    sides = [{name: (kind, values[side]) for name, (kind, *values) in COLUMNS.items()} for side in range(2)]
    a, b = (table(spark, side, ROWS) for side in sides)
    return a, b


def crossed(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select(F.struct("*").alias("a")).crossJoin(b.select(F.struct("*").alias("b")))


_DIFFERENCE = re.compile(r"\b([ab])\.(\w+)((?: [+-] INTERVAL '[^']*' \w+)*) - ([ab])\.(\w+)\b")
_TIMES = {"timestamp", "timestamp_ntz", "date"}


def write_elapsed(text: str, a: DataFrame, b: DataFrame) -> str:
    """Write the difference of two instants of both streams as elapsed time. Spark subtracts local times."""
    kinds = {"a": dict(a.dtypes), "b": dict(b.dtypes)}

    def write(found: re.Match[str]) -> str:
        parts = [(found[n], found[n + 1]) for n in (1, 4)]
        used = [kinds[alias].get(name) for alias, name in parts]
        if found[1] == found[4] or "timestamp" not in used or not {*used} <= _TIMES:
            return found[0]
        sums = [f"{alias}.{name}{added}" for (alias, name), added in zip(parts, (found[3], ""), strict=True)]
        micros = [f"unix_micros(CAST({text} AS TIMESTAMP))" for text in sums]
        return f"(INTERVAL '0.000001' SECOND * ({micros[0]} - {micros[1]}))"

    return _DIFFERENCE.sub(write, text)


def truths(a: DataFrame, b: DataFrame, conditions: Sequence[str]) -> list[Counter[tuple[int, int]]]:
    """Compute Spark's own answer to each condition in one pass over the cross join.

    The difference of two instants is elapsed time.
    """
    texts = [write_elapsed(text, a, b) for text in conditions]
    columns = [F.expr(f"({text}\n)").alias(f"c{n}") for n, text in enumerate(texts)]
    rows = crossed(a, b).select("a.id", "b.id", *columns).collect()
    return [Counter((row[0], row[1]) for row in rows if row[2 + n] is True) for n in range(len(conditions))]


def tagged(joins: Sequence[DataFrame]) -> DataFrame:
    """Combine the pairs of ids of all joins, each with the number of its join."""
    parts = [
        join.select(F.lit(n).alias("n"), F.col("a.id"), F.col("b.id").alias("bid"))
        for n, join in enumerate(joins)
    ]
    return functools.reduce(DataFrame.unionAll, parts)


def split(rows: Counter[tuple[Any, ...]], n: int) -> list[Counter[tuple[int, int]]]:
    parts: list[Counter[tuple[int, int]]] = [Counter() for _ in range(n)]
    for (number, left, right), times in rows.items():
        parts[number][left, right] += times
    return parts


def differences(
    names: Sequence[object], found: Sequence[Counter[Any]], wanted: Sequence[Counter[Any]]
) -> dict[str, tuple[Any, Any]]:
    """Find the extra and the missing pairs of each condition."""
    return {
        str(name): (dict(f - w), dict(w - f))
        for name, f, w in zip(names, found, wanted, strict=True)
        if f != w
    }


def agree(a: DataFrame, b: DataFrame, conditions: Sequence[str], **options: Any) -> None:
    """Assert that the batch join gives Spark's own answer to each condition."""
    joins = [th.join({"a": a, "b": b}, on=text, **options) for text in conditions]
    rows = Counter(tuple(row) for row in tagged(joins).collect())
    assert not differences(conditions, split(rows, len(joins)), truths(a, b, conditions))
