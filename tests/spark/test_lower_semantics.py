"""A plan's keys against Spark's own answer: pairs that pass the encoded keys, over a grid of types.

Without a residual the keys say exactly what Spark says; with one they never lose a pair.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import thetastream as th
from tests.support.local import LocalJoin
from tests.support.truth import truths
from thetastream.core.sides import Side
from thetastream.engine.two_stream.query import UnitSpec

VALUES = {
    "tinyint": ["-128", "0", "5", "127"],
    "int": ["-2147483648", "-1", "0", "5", "16777217", "2147483647"],
    "bigint": ["-9223372036854775808", "0", "5", "9007199254740993", "9223372036854775807"],
    "float": ["'NaN'", "'-Infinity'", "'Infinity'", "-0.0", "0.0", "5.5", "1.6777216e7", "0.1", "3.4e38"],
    "double": [
        "'NaN'",
        "'-Infinity'",
        "'Infinity'",
        "-0.0",
        "0.0",
        "5.5",
        "16777217",
        "0.1",
        "9007199254740992",
    ],
    "decimal(10,2)": ["-99999999.99", "0", "5.50", "5", "0.10"],
    "decimal(12,4)": ["-99999999.9999", "0", "5.5001", "5", "0.1"],
    "decimal(38,10)": ["-9999999999999999999999999999.0000000001", "0", "5.5", "5.5000000001"],
    "date": ["'0001-01-01'", "'1969-12-31'", "'2024-03-10'", "'2024-11-03'", "'9999-12-31'"],
    "timestamp": ["'0001-01-01'", "'2024-03-10 03:30:00'", "'2024-11-03'", "'2024-11-03 01:30:00.000001'"],
    "timestamp_ntz": [
        "'0001-01-01'",
        "'2024-03-10 02:30:00'",
        "'2024-11-03'",
        "'2024-11-03 01:30:00.000001'",
    ],
    "string": ["''", "'a'", "'abcdefgh'", "'abcdefghi'", "'abcdefghj'", "'é'", "'😀'", "'5'"],
    "string collate UTF8_LCASE": ["''", "'a'", "'A'", "'b'", "'ΑΣ'", "'ας'", "'İ'"],
    "string collate UTF8_BINARY_RTRIM": ["'a'", "'a '", "'b'", "''"],
    "string collate UNICODE_CI": ["'a'", "'A'"],
    "binary": ["X''", "X'00'", "X'0000'", "X'FF'"],
    "boolean": ["true", "false"],
    "interval day": ["INTERVAL '-5' DAY", "INTERVAL '1' DAY"],
    "interval hour to second": [
        "INTERVAL '24:00:00' HOUR TO SECOND",
        "INTERVAL '0:0:0.000001' HOUR TO SECOND",
    ],
    "interval year": ["INTERVAL '1' YEAR", "INTERVAL '-1' YEAR"],
    "interval month": ["INTERVAL '12' MONTH", "INTERVAL '13' MONTH"],
    "time(0)": ["'00:00:00'", "'12:00:00'"],
    "time(6)": ["'12:00:00'", "'12:00:00.000001'"],
    "array<int>": ["array(1)", "array(1,2)", "array(1,null)"],
    "struct<x:double>": [
        "named_struct('x', 0.0D)",
        "named_struct('x', -0.0D)",
        "named_struct('x', double('NaN'))",
    ],
}
FAMILIES = [
    [
        "tinyint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(10,2)",
        "decimal(12,4)",
        "decimal(38,10)",
        "string",
    ],
    ["date", "timestamp", "timestamp_ntz", "string"],
    ["string collate UTF8_LCASE"],
    ["string collate UTF8_BINARY_RTRIM"],
    ["string collate UNICODE_CI"],
    ["binary"],
    ["boolean"],
    ["interval day", "interval hour to second"],
    ["interval year", "interval month"],
    ["time(0)", "time(6)"],
    ["array<int>"],
    ["struct<x:double>"],
]
PAIRS = sorted({pair for family in FAMILIES for pair in itertools.combinations_with_replacement(family, 2)})


def frame(spark, columns: dict[str, str]):
    """Rows of an id and, per column, the values of its type and a NULL, cycled to one length."""
    n = max(len(VALUES[type_]) for type_ in columns.values()) + 1
    rows = []
    for i in range(n):
        pools = [([*VALUES[type_], "NULL"], type_) for type_ in columns.values()]
        cells = [f"CAST({pool[i % len(pool)]} AS {type_})" for pool, type_ in pools]
        rows.append(f"({i}, {', '.join(cells)})")
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(id, {', '.join(columns)})").coalesce(1)


def blocks(plans: Sequence[th.Plan], side: Side) -> list[pa.RecordBatch]:
    """What the adapter makes of the stream on ``side`` for each plan: filtered, keys computed.

    One query for all: of each plan its columns, computed where its filters hold, and whether they do.
    """
    parts = [plan.join.planned.physical.sides[side] for plan in plans]
    columns = [[(c.block_column, c.to_block) for c in part.carried] + list(part.computed) for part in parts]
    selected = []
    for n, part in enumerate(parts):
        holds = F.expr(" AND ".join(f"({one.text})" for one in part.filters) or "true")
        selected.append(F.coalesce(holds, F.lit(False)).alias(f"{n} holds"))
        selected += [F.when(holds, F.expr(text)).alias(f"{n} {name}") for name, text in columns[n]]
    nested = plans[0].join.given[side].dataframe().select(F.struct("*").alias(parts[0].alias))
    table = nested.select(*selected).toArrow()
    made = []
    for n, named in enumerate(columns):
        kept = table.filter(table[f"{n} holds"])
        arrays = [kept[f"{n} {name}"].combine_chunks() for name, _ in named]
        made.append(pa.RecordBatch.from_arrays(arrays, [name for name, _ in named]))
    return made


def candidates(plans: Sequence[th.Plan]) -> list[Counter[tuple[int, int]]]:
    """Per plan the pairs of ids that the engine's own code lets pass, residual not yet asked."""
    answers = []
    for plan, left, right in zip(plans, blocks(plans, Side.LEFT), blocks(plans, Side.RIGHT), strict=True):
        physical = plan.join.planned.physical
        join = LocalJoin(UnitSpec(physical.condition, physical.indexes, None), th.Biclique(1))
        ids = [side.carried[0].block_column for side in physical.sides]
        found: Counter[tuple[int, int]] = Counter()
        for matches in join.epoch(left, right):
            pairs = (matches.left[ids[0]].to_pylist(), matches.right[ids[1]].to_pylist())
            found.update(zip(*pairs, strict=True))
        answers.append(found)
    return answers


def agree(a, b, texts: Sequence[str], **settings) -> None:
    """The keys of the plan of each condition let pass what Spark's own answer has; all in three queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", th.errors.CrossJoinWarning)
        plans = [th.plan({"a": a, "b": b}, on=on, **settings) for on in texts]
    for on, plan, found, wanted in zip(texts, plans, candidates(plans), truths(a, b, texts), strict=True):
        if plan.join.planned.physical.residual:
            assert wanted <= found, f"{on}: lost {wanted - found}"
        else:
            assert found == wanted, f"{on}: extra {found - wanted}, lost {wanted - found}"


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["ansi", "legacy"])
def ansi(spark, request):
    before = {key: spark.conf.get(key) for key in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield request.param
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("f_type", "g_type"), PAIRS)
def test_comparisons_of_types(spark, ansi, f_type, g_type):
    a, b = frame(spark, {"f": f_type}), frame(spark, {"g": g_type})
    has_string = ansi and "string" in (f_type, g_type) and "collate" not in f_type + g_type
    has_times = f_type.startswith("time(") and spark.version.startswith("4.2.")
    if f_type != g_type and (has_string or has_times):
        with pytest.raises(PySparkException):  # Spark's own comparison refuses these types
            a.crossJoin(b).where("f = g").collect()
        return
    agree(
        a,
        b,
        ["a.f = b.g", "b.g <=> a.f"]
        if f_type.startswith(("array", "struct"))
        else ["a.f = b.g", "a.f < b.g", "NOT b.g > a.f", "a.f IS NOT DISTINCT FROM b.g"],
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("type_", "g_type", "limits"),
    [
        ("int", "int", ["0", "5", "5.5", "-1", "0.5BD", "1e3", "NULL", "1e12"]),
        ("tinyint", "bigint", ["5", "5.5"]),
        ("double", "double", ["0", "5.5", "0.1", "5.4", "double('NaN')", "double('Infinity')", "-1"]),
        ("float", "float", ["5.5", "0.1", "5.4", "float(0.1)"]),
        ("float", "double", ["5.5", "0.1", "1e-9", "1.5e-9"]),
        ("int", "float", ["5.5", "0.5"]),
        ("decimal(10,2)", "decimal(12,4)", ["0", "0.0001", "0.5", "5.499", "5.5e0", "1e-3"]),
        ("decimal(10,2)", "int", ["0.5", "5"]),
        ("decimal(10,2)", "double", ["0.1", "5.4"]),
        ("decimal(38,10)", "decimal(38,10)", ["0.0000000001", "5"]),
        ("date", "date", ["INTERVAL 1 DAY", "INTERVAL 2 HOURS", "INTERVAL 238 DAYS"]),
        ("timestamp", "timestamp", ["INTERVAL 1 HOUR", "INTERVAL '238' DAY", "INTERVAL 90 MINUTES"]),
        ("timestamp_ntz", "timestamp_ntz", ["INTERVAL 1 HOUR", "INTERVAL '90:00.000001' MINUTE TO SECOND"]),
        ("timestamp", "timestamp_ntz", ["INTERVAL 1 HOUR"]),
        ("interval day", "interval hour to second", ["INTERVAL 1 DAY"]),
    ],
)
def test_bands_of_types(spark, ansi, type_, g_type, limits):
    # Values whose difference overflows are an error in ANSI mode, and wrap in legacy mode.
    small = "abs(double(f)) < 1e9" if type_ in ("int", "bigint", "tinyint") else "true"
    a = frame(spark, {"f": type_}).where(small)
    b = frame(spark, {"g": g_type}).where(small.replace("f)", "g)"))
    agree(
        a,
        b,
        [text for limit in limits for text in (f"abs(a.f - b.g) <= {limit}", f"{limit} > abs(b.g - a.f)")],
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("type_", "g_type", "limits"),
    [
        ("int", "tinyint", ["5", "-5.5", "0", "NULL"]),
        ("decimal(10,2)", "decimal(12,4)", ["0.0001", "-0.5", "5.5"]),
        ("double", "double", ["0.1"]),
        ("date", "date", ["INTERVAL 238 DAYS", "INTERVAL -36 HOURS"]),
        ("timestamp", "timestamp", ["INTERVAL '238' DAY", "INTERVAL 90 MINUTES"]),
        ("timestamp_ntz", "timestamp_ntz", ["INTERVAL '-1' HOUR", "INTERVAL '0.000001' SECOND"]),
    ],
)
def test_differences_of_types(spark, ansi, type_, g_type, limits):
    small = "abs(double(f)) < 1e9" if type_ == "int" else "true"
    a = frame(spark, {"f": type_}).where(small)
    b = frame(spark, {"g": g_type}).where(small.replace("f)", "g)"))
    forms = ("a.f - b.g <= {0}", "{0} < b.g - a.f", "b.g - a.f = {0}", "NOT a.f - b.g <= {0}")
    agree(a, b, [form.format(limit) for limit in limits for form in forms])
    if type_ not in ("double", "int") or (type_ == "int" and ansi):
        plan = th.plan({"a": a, "b": b}, on=f"a.f - b.g BETWEEN {limits[1]} AND {limits[0]}")
        condition = plan.join.planned.physical.condition
        # The only time of a batch is its event time.
        (bounds,) = (*condition.dimensions, *filter(None, [condition.window]))
        assert bounds.is_two_sided


def test_an_outlier_whose_bound_overflows_stops_nothing(spark):
    a = spark.sql("SELECT * FROM VALUES (0, 1, 1), (1, 2, 2), (2, 5, 7) AS t(id, x, k)")
    b = spark.sql(
        "SELECT * FROM VALUES (0, 2147483647, 1), (1, 1, 2), (2, CAST(NULL AS INT), 3) AS t(id, x, k)"
    )
    agree(a, b, ["a.x BETWEEN b.x - 10 AND b.x + 10", "a.k = b.k + 5 AND a.x >= b.x + 1"])
