"""th.join against Spark's own batch answer: the cross join, filtered by the same condition, as a bag.

    { (a.id, b.id) : a x b, condition is TRUE, event times inside the window, neither tuple late }

Joins are unioned, so that one Spark query answers many conditions, each pair tagged with its condition.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from thetastream.testing.streams import outcome, replay

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.CrossJoinWarning")

ZONE = "America/New_York"

# Column -> type, values of the left stream, values of the right one; the last row is all NULL.
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

# What only travels.
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
    """Rows of an id and the columns, values cycled; the last row is NULL but for the id."""
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
    """The rows of one-row queries, computed now: a plan with many joins over it stays small."""
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1).localCheckpoint()


@pytest.fixture(params=["ansi", "legacy"])
def mode(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with configured(
        spark, {"spark.sql.ansi.enabled": request.param == "ansi", "spark.sql.session.timeZone": ZONE}
    ):
        yield request.param


class configured:
    """Session settings for a while."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self.spark, self.settings = spark, settings

    def __enter__(self) -> None:
        self.before = {key: self.spark.conf.get(key) for key in self.settings}
        for key, value in self.settings.items():
            self.spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, value in self.before.items():
            self.spark.conf.set(key, value)


def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    sides = [{name: (column[0], column[1 + side]) for name, column in COLUMNS.items()} for side in range(2)]
    a, b = (table(spark, side, ROWS) for side in sides)
    return a, b


def crossed(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select(F.struct("*").alias("a")).crossJoin(b.select(F.struct("*").alias("b")))


def truths(a: DataFrame, b: DataFrame, conditions: Sequence[str]) -> list[Counter[tuple[int, int]]]:
    """Spark's own answer to each condition, from one pass over the cross join."""
    columns = [F.expr(f"({text}\n)").alias(f"c{n}") for n, text in enumerate(conditions)]
    rows = crossed(a, b).select("a.id", "b.id", *columns).collect()
    return [Counter((row[0], row[1]) for row in rows if row[2 + n] is True) for n in range(len(conditions))]


def tagged(joins: Sequence[DataFrame]) -> DataFrame:
    """All pairs of ids of all joins, each with the number of its join."""
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
    """What is extra and what is missing, by condition."""
    return {
        str(name): (dict(f - w), dict(w - f))
        for name, f, w in zip(names, found, wanted, strict=True)
        if f != w
    }


def agree(a: DataFrame, b: DataFrame, conditions: Sequence[str], **options: Any) -> None:
    """The batch join gives Spark's own answer to each condition."""
    joins = [th.join({"a": a, "b": b}, on=text, **options) for text in conditions]
    rows = Counter(tuple(row) for row in tagged(joins).collect())
    assert not differences(conditions, split(rows, len(joins)), truths(a, b, conditions))


# Conditions


KEYS = [f"a.{name} {op} b.{name}" for name, op in zip(COLUMNS, ["=", "<=", ">", ">=", "<"] * 5, strict=False)]
INDEXABLE = [
    "a.x BETWEEN b.x - 1 AND b.x + 1",
    "abs(a.x - b.x) <= 1 AND abs(b.y - a.y) < 0.5",
    "abs(a.d - b.d) <= 0.1",
    "0.1 >= abs(a.f - b.f)",
    "abs(a.m - b.m4) <= 0.005",
    "abs(a.date - b.date) <= INTERVAL 1 DAY",
    "abs(a.ts - b.ts) <= INTERVAL 1 DAY",
    "a.ts BETWEEN b.ts - INTERVAL 1 DAY AND b.ts + INTERVAL 1 DAY",
    "a.x = b.x AND a.y > b.y AND a.s <> b.s",
    "a.x = b.x AND a.x = b.ty",
    "a.x > b.x AND a.x < b.i",
    "5 BETWEEN a.x AND b.x + 3",
    "a.x BETWEEN 0 AND b.x",
    "(a.x, a.s) = (b.x, b.s)",
    "A.X == B.x",
    "upper(a.s) = upper(b.s)",
    "a.x + 1 = b.x AND a.l > 0",
    "a.w = b.w AND a.y >= b.y",
]
CASTS = [
    "a.i < b.d",
    "a.i = b.f",
    "a.l = b.d",
    "a.f = b.d",
    "a.x = b.m",
    "a.m = b.m4",
    "a.w > b.m4",
    "a.m <= b.y",
    "a.date <= b.ts",
    "a.date = b.ntz",
    "a.ntz < b.ts",
]
OPAQUE = [
    "a.x <> b.x",
    "NOT a.x = b.x",
    "!a.bool = b.bool",
    "a.x = b.x OR a.y < b.y",
    "a.x * b.x > 2",
    "concat(a.s, b.s) LIKE '%a%'",
    "a.x <=> b.x",
    "a.x IS NULL AND b.x IS NULL",
    "CASE WHEN a.x > b.x THEN a.y > b.y END",
    "a.x IN (b.x, 3)",
    "exists(array(a.x), v -> v = b.x)",
    "CAST(NULL AS BOOLEAN)",
    "a.x = b.x AND 1 = 2",
    "a.x > b.x /* OR true */ -- to the end",
    "a.x NOT BETWEEN b.x AND b.x + 1",
    "a.s || 'j' = b.s",
    "a.x > b.x IS NOT FALSE",
]
LEGACY = [
    "a.n = b.x",
    "a.n <= b.m",
    "a.s > b.x",
    "abs(a.i - b.i) <= 1",
    "abs(a.ty - b.ty) < 2",
    "a.i - 1 < b.i",
    "a.bool = b.x",
]


def test_conditions(spark: SparkSession, mode: str) -> None:
    a, b = frames(spark)
    if mode == "ansi":
        agree(a, b, KEYS + INDEXABLE, model=th.Biclique((2, 3)))
        agree(a, b, CASTS + OPAQUE, model=th.Biclique(1))
    else:
        agree(a, b, CASTS + LEGACY + INDEXABLE[:7], model=th.Biclique(1))


def test_a_frame_joins_itself(spark: SparkSession) -> None:
    a, _ = frames(spark)
    agree(a, a, ["a.x < b.x", "a.id = b.id", "a.d >= b.d AND a.s = b.s"])


def test_names_that_need_quotes(spark: SparkSession) -> None:
    columns = {
        name: ("int", ["1", "2", "3"])
        for name in ("`we ird`", "`do.t`", "`ba``ck`", "a", "c0", "k0", "h", "block", "counters", "`ü`")
    }
    a = table(spark, columns, 6)
    agree(
        a,
        a,
        [
            "a.`we ird` < b.`do.t`",
            "a.`ba``ck` = b.c0 AND a.k0 + 0 > b.h - 1",
            "a.a = b.a",
            "a.`ü` = b.counters - b.block + 1",
        ],
        model=th.Biclique((2, 3)),
    )
    b = a.select(*(F.col(f"`{name.replace('`', '``')}`").alias(f"{name}_") for name in a.columns))
    joined = th.join({"a": a, "b": b}, on="`we ird` < `do.t_` AND c0_ = k0")
    assert (
        joined.select("b.`ba``ck_`").count()
        == crossed(a, b).where("a.`we ird` < b.`do.t_` AND b.c0_ = a.k0").count()
    )


# Payload


def readable(alias: str, name: str, kind: str) -> Column:
    """A value as text that tells any two values apart."""
    column = f"{alias}.{name}"
    if kind == "timestamp":
        return F.expr(f"unix_micros({column})")
    if kind == "binary":
        return F.expr(f"hex({column})")
    return F.expr(
        f"to_json(named_struct('v', {column}))" if "variant" in kind else f"CAST({column} AS STRING)"
    )


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize("is_nested", [False, True], ids=["flat", "nested"])
def test_every_type_travels(spark: SparkSession, tmp_path: Path, is_streaming: bool, is_nested: bool) -> None:
    columns = {name: (kind, [*left, *right]) for name, (kind, left, right) in COLUMNS.items()} | PAYLOAD
    frame = table(spark, (columns | NESTED) if is_nested else columns, 16)
    shown = [
        readable(alias, field.name, field.dataType.simpleString()) for alias in "ab" for field in frame.schema
    ]
    wanted = Counter(
        tuple(row) for row in crossed(frame, frame).where("a.id <= b.id").select(*shown).collect()
    )
    if is_streaming:
        a, b = (
            replay(frame, [range(9), range(9, 16)], tmp_path),
            replay(frame, [range(5, 16), range(5)], tmp_path),
        )
        joined = th.join({"a": a, "b": b}, on="a.id <= b.id", model=th.Biclique((2, 3)))
        found = outcome(joined, shown, tmp_path).rows
    else:
        joined = th.join({"a": frame, "b": frame}, on="a.id <= b.id", model=th.Biclique((2, 3)))
        found = Counter(tuple(row) for row in joined.select(*shown).collect())
    assert found == wanted
    assert joined.schema["a"].dataType.simpleString() == frame.schema.simpleString()


# Predicates


@th.predicate(a=["x", "ts"], b=["x", "ts"])
def same_parity(a: Any, b: Any) -> pa.Array:
    assert pa.types.is_int64(a.ts.type)
    return pc.equal(pc.bit_wise_and(a.x, 1), pc.bit_wise_and(b.x, 1))


@th.predicate(a=["x"], b=["x"])
def broken(a: Any, b: Any) -> Any:
    raise ZeroDivisionError("by design")


@th.predicate(a=["x"], b=["x"])
def one_answer(a: Any, b: Any) -> Any:
    return True


@th.predicate(a=["x"], b=["x"])
def numbers(a: Any, b: Any) -> Any:
    return a.x


def test_predicates(spark: SparkSession, tmp_path: Path) -> None:
    a, b = frames(spark)
    joins = [
        th.join({"a": a, "b": b}, on=on, model=th.Biclique((2, 3)))
        for on in (
            same_parity,
            [same_parity, "a.y > b.y", "a.s <> b.s"],
            ["abs(a.x - b.x) <= 2", same_parity],
        )
    ]
    texts = [
        f"a.x % 2 & 1 = b.x % 2 & 1{more}"
        for more in ("", " AND a.y > b.y AND a.s <> b.s", " AND abs(a.x - b.x) <= 2")
    ]
    rows = Counter(tuple(row) for row in tagged(joins).collect())
    assert not differences(texts, split(rows, 3), truths(a, b, texts))


@pytest.mark.parametrize(
    ("predicate", "says"),
    [
        (broken, "PREDICATE_RAISED.*ZeroDivisionError: by design"),
        (one_answer, "PREDICATE_RESULT"),
        (numbers, "PREDICATE_RESULT"),
    ],
    ids=["raises", "wrong shape", "wrong type"],
)
def test_predicates_that_fail(spark: SparkSession, tmp_path: Path, predicate: Any, says: str) -> None:
    a, b = frames(spark)
    if predicate is broken:
        a, b = (replay(frame, [range(ROWS)], tmp_path) for frame in (a, b))
        with pytest.raises(PySparkException, match=says):
            outcome(th.join({"a": a, "b": b}, on=predicate), ["a.id"], tmp_path)
    else:
        with pytest.raises(PySparkException, match=says):
            th.join({"a": a, "b": b}, on=predicate).collect()


# Streams


@dataclass(frozen=True)
class Timed:
    """A streaming join and the batch condition that says the same."""

    on: Any
    within: Any
    text: str
    options: dict[str, Any]


MINUTES = [0, 1, -3, 5, 2, 9, 20, 21, 12, 19, 8, 40, 45, 39, 37, 60, 38, 0]
"""Event times in order of arrival: early, late, before 1970 and exactly at its start."""
CUTS = [
    [range(5), range(5, 9), [], range(9, 14), range(14, 18)],
    [range(3), range(3, 9), range(9, 12), [], range(12, 18)],
]


def timed_frame(spark: SparkSession, side: int, kind: str = "timestamp") -> DataFrame:
    start = "timestamp_ntz'1970-01-01'" if kind == "timestamp_ntz" else "timestamp_micros(0)"
    rows = [
        f"SELECT {i} AS id, {start} + INTERVAL '{minute * 60 + side * (i % 3 == 2) / 1e6:.6f}' SECOND AS ts, "
        f"{(i * (3 + side)) % 5} AS k, {(i * (2 + side)) % 7}.5D AS v"
        for i, minute in enumerate(MINUTES)
    ]
    return made(spark, rows)


def late(frame: DataFrame, epochs: Sequence[Sequence[int]], watermarks_ms: dict[int, int]) -> set[int]:
    """Ids of tuples at or below the watermark of their epoch; a watermark of 0 means that there is none."""
    stamp = F.expr("unix_micros(CAST(ts AS TIMESTAMP))").alias("us")
    micros = {row["id"]: row["us"] for row in frame.select("id", stamp).collect()}
    return {
        i
        for epoch, ids in enumerate(epochs)
        for i in ids
        if watermarks_ms[epoch] > 0 and micros[i] <= watermarks_ms[epoch] * 1000
    }


def window(low: str, high: str) -> str:
    return f"a.ts >= b.ts + INTERVAL {low} AND a.ts <= b.ts + INTERVAL {high}"


def stream_truth(
    spark: SparkSession, joins: Sequence[Timed], tmp_path: Path, kind: str = "timestamp"
) -> None:
    """All joins in one query, over disorder and lateness, equal the batch answer over what was not late."""
    left, right = (timed_frame(spark, side, kind) for side in (0, 1))
    a, b = (
        replay(frame, epochs, tmp_path).withWatermark("ts", delay)
        for frame, epochs, delay in zip((left, right), CUTS, ("5 minutes", "2 minutes"), strict=True)
    )
    joined = [th.join({"a": a, "b": b}, on=join.on, within=join.within, **join.options) for join in joins]
    result = outcome(tagged(joined), ["*"], tmp_path)
    gone = [
        late(frame, epochs, result.watermarks_ms) for frame, epochs in zip((left, right), CUTS, strict=True)
    ]
    assert all(gone), "the case is about lateness"
    assert not {0, 17} <= gone[0]
    assert 0 not in gone[0] | gone[1], "the start of 1970 is a time as any other"
    kept = [frame.where(~F.col("id").isin(*ids)) for frame, ids in zip((left, right), gone, strict=True)]
    texts = [join.text for join in joins]
    assert not differences(
        [(join.text, join.options) for join in joins], split(result.rows, len(joins)), truths(*kept, texts)
    )
    counted: Counter[str] = Counter()
    for epoch in result.metrics:
        counted[epoch["join"]] += epoch.get("late", 0)
    assert len(counted) == len(joins)
    assert set(counted.values()) == {len(gone[0]) + len(gone[1])}


def test_windows_on_streams(spark: SparkSession, tmp_path: Path) -> None:
    ten = window("-10 MINUTES", "10 MINUTES")
    uneven = window("-10 MINUTES", "1 MINUTE")
    small = th.Biclique((1, 1))
    wide = th.Biclique((2, 3))
    stream_truth(
        spark,
        [
            Timed("abs(a.v - b.v) <= 1.0", "10 minutes", f"abs(a.v - b.v) <= 1 AND {ten}", {"model": wide}),
            Timed(
                "a.k = b.k", {"a": "10 minutes", "b": "1 minute"}, f"a.k = b.k AND {uneven}", {"model": small}
            ),
            Timed("a.k <> b.k", None, "a.k <> b.k", {"model": small}),
            Timed(
                "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES",
                None,
                "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES",
                {"model": wide},
            ),
            Timed(
                "a.v < b.v AND a.ts > b.ts AND a.ts < b.ts + INTERVAL 8 MINUTES",
                "1 hour",
                "a.v < b.v AND a.ts > b.ts AND a.ts < b.ts + INTERVAL 8 MINUTES",
                {"model": wide, "archive_period": "1 minute"},
            ),
            Timed(
                "a.ts > b.ts + INTERVAL 3 MINUTES AND a.k >= b.k",
                None,
                "a.ts > b.ts + INTERVAL 3 MINUTES AND a.k >= b.k",
                {"model": small},
            ),
        ],
        tmp_path,
    )


@pytest.mark.slow
def test_index_shapes_agree_on_streams(spark: SparkSession, tmp_path: Path) -> None:
    on = "a.k = b.k AND abs(a.v - b.v) <= 3 AND a.v BETWEEN b.v - 2 AND b.v + 4"
    text = f"{on} AND {window('-10 MINUTES', '10 MINUTES')}"
    shapes = ["scan", "sorted", "hash", "hash_sorted", "grid"]
    joins = [
        Timed(on, "10 minutes", text, {"index": shape, "model": th.Biclique((1, n))})
        for n, shape in enumerate(shapes, 1)
    ]
    stream_truth(spark, joins, tmp_path)


@pytest.mark.slow
def test_days_of_23_hours(spark: SparkSession, tmp_path: Path) -> None:
    """Day-long bounds on event time where the clock changes."""
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        frame = spark.sql(
            "SELECT id, timestamp'2024-03-09' + make_dt_interval(0, CAST(id AS INT) * 7) AS ts FROM range(10)"
        )
        a, b = (
            replay(frame, epochs, tmp_path).withWatermark("ts", "4 hours")
            for epochs in ([range(5), range(5, 10)], [range(6), range(6, 10)])
        )
        texts = [
            "a.ts = b.ts + INTERVAL 1 DAY",
            "a.ts BETWEEN b.ts + INTERVAL 1 DAY AND b.ts + INTERVAL 36 HOURS",
            "abs(a.ts - b.ts) < INTERVAL 1 DAY",
            "a.ts - INTERVAL 1 DAY < b.ts AND a.ts >= b.ts",
        ]
        joins = [th.join({"a": a, "b": b}, on=text) for text in texts]
        result = outcome(tagged(joins), ["*"], tmp_path)
        assert not differences(texts, split(result.rows, len(texts)), truths(frame, frame, texts))


def test_by_arrival(spark: SparkSession, tmp_path: Path) -> None:
    frame = table(spark, {"x": ("int", ["1", "2", "3"])}, 9)
    a, b = (
        th.by_arrival(replay(frame, epochs, tmp_path))
        for epochs in ([range(4), range(4, 9)], [range(6), range(6, 9)])
    )
    result = outcome(th.join({"a": a, "b": b}, on="a.x < b.x", within="1 hour"), ["a.id", "b.id"], tmp_path)
    assert result.rows == truths(frame, frame, ["a.x < b.x"])[0]


# Random conditions


INT_COLUMNS, ANY_COLUMNS = ["x", "ty", "i", "l"], list(COLUMNS)
SMALL = st.sampled_from(["x", "y"])


@st.composite
def comparison(draw: st.DrawFn) -> str:
    op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]))
    numeric = st.sampled_from(["x", "y", "ty", "i", "l", "f", "d", "m", "m4", "w"])
    kind = draw(st.integers(0, 5))
    if kind == 0:
        name = draw(st.sampled_from(ANY_COLUMNS))
        return f"a.{name} {op} b.{name}"
    if kind == 1:
        return f"b.{draw(numeric)} {op} a.{draw(numeric)}"
    if kind == 2:
        added, times = draw(st.integers(-2, 2)), draw(st.sampled_from(["1", "2", "0.5"]))
        return f"a.{draw(SMALL)} + {added} {op} b.{draw(SMALL)} * {times}"
    if kind == 3:
        band = draw(st.sampled_from(["0", "1", "0.1", "0.30000000000000004", "1e-3", "2.5"]))
        name = draw(st.sampled_from(["x", "y", "f", "d", "m", "m4"]))
        return f"abs(a.{name} - b.{name}) {draw(st.sampled_from(['<', '<=', '>', '=']))} {band}"
    if kind == 4:
        point, low, high = (draw(SMALL) for _ in range(3))
        return (
            f"b.{point} BETWEEN a.{low} - {draw(st.integers(0, 2))} AND a.{high} + {draw(st.integers(0, 2))}"
        )
    return f"a.{draw(numeric)} {op} {draw(st.sampled_from(['0', '1.5', 'NULL', '2e0']))}"


@st.composite
def condition(draw: st.DrawFn) -> str:
    parts = draw(st.lists(comparison(), min_size=1, max_size=3))
    text = parts[0]
    for part in parts[1:]:
        text = f"{text} {draw(st.sampled_from(['AND', 'AND', 'AND', 'OR', 'AND NOT']))} {part}"
    return text


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(condition(), min_size=8, max_size=8, unique=True), units=st.sampled_from([1, (2, 3)]))
def test_random_conditions(spark: SparkSession, texts: list[str], units: Any) -> None:
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        agree(*frames(spark), texts, model=th.Biclique(units))
