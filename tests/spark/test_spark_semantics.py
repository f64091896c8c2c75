"""``th.join`` is compared with Spark's own batch join: conditions, types, predicates."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import (
    COLUMNS,
    NESTED,
    PAYLOAD,
    ROWS,
    ZONE,
    agree,
    configured,
    crossed,
    differences,
    frames,
    split,
    table,
    tagged,
    truths,
)

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")


@pytest.fixture(params=["ansi", pytest.param("legacy", marks=pytest.mark.slow)])
def mode(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with configured(
        spark, {"spark.sql.ansi.enabled": request.param == "ansi", "spark.sql.session.timeZone": ZONE}
    ):
        yield request.param


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
    "a.ts - b.ts BETWEEN INTERVAL '-30' MINUTE AND INTERVAL 1 DAY",
    "abs(a.ts - b.ts - INTERVAL 1 HOUR) < INTERVAL 2 HOURS",
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
    "a.x <=> b.x",
    "a.l <=> b.l AND equal_null(a.s, b.s)",
    "a.d IS NOT DISTINCT FROM b.f",
    "a.s COLLATE UTF8_LCASE = b.c",
    "NOT (a.x > b.x OR a.y < b.y)",
    "(a.x = b.x AND a.y > b.y) OR (a.s <> b.s AND a.x = b.x)",
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
    "a.x IS DISTINCT FROM b.x",
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
        agree(a, b, (KEYS + INDEXABLE)[::8], model=th.Biclique((2, 3)))
    else:
        agree(a, b, CASTS + LEGACY + INDEXABLE[:7], model=th.Biclique(1))


@pytest.mark.slow
def test_more_conditions(spark: SparkSession) -> None:
    a, b = frames(spark)
    for first in range(1, 8):
        agree(a, b, (KEYS + INDEXABLE)[first::8], model=th.Biclique((2, 3)))
    agree(a, b, CASTS + OPAQUE, model=th.Biclique(1))


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
    """Write a value as text, so that different values have different texts."""
    column = f"{alias}.{name}"
    if kind == "timestamp":
        return F.expr(f"unix_micros({column})")
    if kind == "binary":
        return F.expr(f"hex({column})")
    return F.expr(
        f"to_json(named_struct('v', {column}))" if "variant" in kind else f"CAST({column} AS STRING)"
    )


@pytest.mark.sampled(3)
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


@th.predicate(a=["x"], b=["x"])
def two_answers(a: Any, b: Any) -> Any:
    """As many answers as the trial at plan time asks for, whatever is asked."""
    return pa.array([True, False])


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("predicate", "says"),
    [(broken, "PREDICATE_RAISED.*ZeroDivisionError: by design"), (two_answers, "PREDICATE_RESULT")],
    ids=["raises", "wrong shape"],
)
def test_predicates_that_fail_in_an_epoch(
    spark: SparkSession, tmp_path: Path, predicate: Any, says: str
) -> None:
    a, b = (replay(frame, [range(ROWS)], tmp_path) for frame in frames(spark))
    with pytest.raises(PySparkException, match=says):
        outcome(th.join({"a": a, "b": b}, on=predicate), ["a.id"], tmp_path)


@pytest.mark.parametrize("predicate", [one_answer, numbers], ids=["wrong shape", "wrong type"])
def test_predicates_that_fail_on_trial(spark: SparkSession, predicate: Any) -> None:
    a, b = frames(spark)
    with pytest.raises(th.QueryError, match=f"PREDICATE_TRIAL.*'{predicate.name}' must return 2 booleans"):
        th.plan({"a": a, "b": b}, on=predicate)


# Random conditions


INT_COLUMNS, ANY_COLUMNS = ["x", "ty", "i", "l"], list(COLUMNS)
SMALL = st.sampled_from(["x", "y"])


@st.composite
def comparison(draw: st.DrawFn) -> str:
    op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]))
    numeric = st.sampled_from(["x", "y", "ty", "i", "l", "f", "d", "m", "m4", "w"])
    kind = draw(st.integers(0, 7))
    if kind == 6:
        name = draw(st.sampled_from(ANY_COLUMNS))
        equal = draw(st.sampled_from(["a.{0} <=> b.{0}", "equal_null(a.{0}, b.{0})", "NOT a.{0} > b.{0}"]))
        return equal.format(name)
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
    if kind == 5:
        return draw(time_comparison())
    return f"a.{draw(numeric)} {op} {draw(st.sampled_from(['0', '1.5', 'NULL', '2e0']))}"


@st.composite
def time_comparison(draw: st.DrawFn) -> str:
    """Draw a bound on instants, on the days on which the clock of New York changes."""
    span = st.sampled_from(["0 SECONDS", "30 MINUTES", "1 HOUR", "90 MINUTES", "1 DAY", "'-1' HOUR"])
    low, high, times = draw(span), draw(span), draw(st.permutations(["a.ts", "b.ts"]))
    op, difference = draw(st.sampled_from(["<", "<=", ">", ">=", "="])), " - ".join(times)
    return draw(
        st.sampled_from(
            [
                f"{difference} {op} INTERVAL {low}",
                f"INTERVAL {low} {op} {difference}",
                f"{difference} BETWEEN INTERVAL {low} AND INTERVAL {high}",
                f"abs({difference}) {op} INTERVAL {low}",
                f"abs({difference} - INTERVAL {low}) < INTERVAL {high}",
                f"a.ts {op} b.ts + INTERVAL {low}",
                f"b.ts BETWEEN a.ts + INTERVAL {low} AND a.ts + INTERVAL {high}",
                f"date_trunc('HOUR', a.ts) {op} date_trunc('HOUR', b.ts)",
                f"abs(a.ts - b.ntz) {op} INTERVAL {low}",
            ]
        )
    )


@st.composite
def condition(draw: st.DrawFn) -> str:
    parts = draw(st.lists(comparison(), min_size=1, max_size=3))
    text = parts[0]
    for part in parts[1:]:
        text = f"{text} {draw(st.sampled_from(['AND', 'AND', 'AND', 'OR', 'AND NOT']))} {part}"
    return text


@pytest.mark.slow
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(condition(), min_size=8, max_size=8, unique=True), units=st.sampled_from([1, (2, 3)]))
def test_random_conditions(spark: SparkSession, texts: list[str], units: Any) -> None:
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        agree(*frames(spark), texts, model=th.Biclique(units))
