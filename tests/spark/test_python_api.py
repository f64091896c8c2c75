"""What a Python programmer expects of the arguments: Columns, NumPy, pandas, Arrow, durations, names."""

import datetime as dt
import re
from decimal import Decimal
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import thetastream as th
from thetastream.core.columns import MARK
from thetastream.joins.ask.request import read_request
from thetastream.joins.planning import plan_join
from thetastream.spark.event_time import mark_event_time

NINE = dt.datetime(2026, 1, 5, 9)


@pytest.fixture(scope="module")
def tables(spark):
    a = spark.sql(
        "SELECT id, id % 5 * 1.5D AS x, concat('s', id % 3) AS s, CAST(id % 4 AS DECIMAL(9, 2)) AS d,"
        " TIMESTAMP'2026-01-05 09:00:00' + make_dt_interval(0, 0, 0, id) AS ts, named_struct('f', id) AS st"
        " FROM range(12)"
    )
    b = spark.sql(
        "SELECT id AS k, id % 4 * 1.0D AS y, concat('s', id % 2) AS t,"
        " TIMESTAMP'2026-01-05 09:00:00' + make_dt_interval(0, 0, 0, id * 2) AS ts"
        " FROM range(9)"
    )
    return {"a": a, "b": b}


def ids(frame):
    return sorted(tuple(row) for row in frame.select("a.id", "b.k").collect())


def columns():
    """SQL texts and Columns of equal meaning. Spark makes Columns only while a session is active."""
    a, b = F.col("a.x"), th.col("b.y")
    return {
        "a.x < b.y": a < b,
        "abs(a.x - b.y) <= 0.5D": F.abs(a - b) <= 0.5,
        "a.x BETWEEN b.y - 1 AND b.y + 1.0D": a.between(b - 1, b + F.lit(1.0)),
        "a.s = b.t AND NOT (a.x < 2 OR b.y > 2.5D)": (F.col("a.s") == F.col("b.t")) & ~((a < 2) | (b > 2.5)),
        "a.s = 's1' AND a.x <=> b.y": (F.col("a.s") == "s1") & a.eqNullSafe(b),
        "a.d > b.y + 1.50": F.col("a.d") > b + Decimal("1.50"),
        "a.id IN (1, 2, 3) AND a.id % 2 = b.k % 2": F.col("a.id").isin(1, 2, 3)
        & (F.col("a.id") % 2 == F.col("b.k") % 2),
        "CASE WHEN a.x > 1 THEN 's0' ELSE 's1' END = b.t": (
            F.when(a > 1, "s0").otherwise("s1") == F.col("b.t")
        ),
        "a.ts BETWEEN b.ts - INTERVAL '3' SECOND AND b.ts": F.col("a.ts").between(
            F.col("b.ts") - dt.timedelta(seconds=3), F.col("b.ts")
        ),
        "CAST(a.x AS INT) = b.k AND a.st.f < 9": (a.cast("int") == F.col("b.k")) & (F.col("a.st.f") < 9),
        "-a.x < b.y - 4 AND a.s LIKE 's%'": (-a < b - 4) & F.col("a.s").like("s%"),
        "x < y": F.col("x") < F.col("y"),
        "upper(s) = 'S0' AND a.x <= b.y": (F.upper("s") == "S0") & F.expr("a.x <= b.y"),
    }


def test_a_column_means_what_its_text_means(tables):
    for text, column in columns().items():
        written, spelled = th.plan(tables, on=column), th.plan(tables, on=text)
        mine, theirs = (one.join.planned.physical for one in (written, spelled))
        assert mine.condition.window == theirs.condition.window, text
        assert [index.shape for index in mine.indexes] == [index.shape for index in theirs.indexes], text
        assert len(mine.residual) == len(theirs.residual), text


def test_columns_join_as_texts_do(tables):
    texts = list(columns())
    for text in (texts[1], texts[8]):
        found = ids(th.join(tables, on=columns()[text]))
        assert found == ids(tables["a"].alias("a").join(tables["b"].alias("b"), on=F.expr(text)))
        assert found


def test_columns_texts_and_predicates_form_one_conjunction(tables):
    @th.predicate("numpy", a=["x"], b=["y"])
    def near(a, b):
        return np.abs(a.x - b.y) <= 1

    found = th.join(tables, on=[F.col("a.s") == F.col("b.t"), "a.id < b.k", near])
    expected = th.join(tables, on="a.s = b.t AND a.id < b.k AND abs(a.x - b.y) <= 1")
    assert ids(found) == ids(expected) != []


@pytest.mark.parametrize(
    ("column", "condition", "words"),
    [
        (lambda t: F.col("a.nope") < F.col("b.y"), "UNKNOWN_COLUMN", "nope"),
        (lambda t: F.col("c.x") < F.col("b.y"), "UNKNOWN_ALIAS", "'c'"),
        (lambda t: t["a"].x < t["b"].y, "COLUMN_CONDITION", "th.col('a.price')"),
        (lambda t: F.udf(lambda x: x > 1, "boolean")(F.col("a.x")), "COLUMN_CONDITION", "SQL text"),
        (lambda t: F.col("a.x") + F.col("b.y"), "NOT_BOOLEAN", "boolean"),
        (lambda t: F.rand() < F.col("b.y"), "NON_DETERMINISTIC", "rand"),
    ],
)
def test_columns_that_are_refused(tables, column, condition, words):
    with pytest.raises(th.QueryError) as refused:
        th.plan(tables, on=column(tables))
    assert (refused.value.condition, words in str(refused.value)) == (condition, True), str(refused.value)


def test_numpy_predicates_see_numpy_columns(tables):
    seen = {}

    @th.predicate("numpy", a=["x", "ts", "s", "d"], b=["y", "ts"])
    def near(a, b):
        seen.update(x=a.x.dtype, ts=a.ts.dtype, s=a.s.dtype, d=a.d.dtype)
        return (a.x > b.y) & (np.abs(a.ts - b.ts) <= np.timedelta64(4, "s"))

    text = "a.x > b.y AND a.ts BETWEEN b.ts - INTERVAL 4 SECONDS AND b.ts + INTERVAL 4 SECONDS"
    assert ids(th.join(tables, on=near)) == ids(th.join(tables, on=text)) != []
    assert seen == {"x": "float64", "ts": "datetime64[us]", "s": "object", "d": "object"}


@pytest.mark.slow
def test_numpy_predicates_in_three_streams(tables):
    @th.predicate("numpy", a=["ts"], b=["ts"], c=["ts"])
    def close(a, b, c):
        return (a.ts - c.ts < np.timedelta64(2, "s")) & (b.ts <= c.ts)

    streams = {**tables, "c": tables["b"]}
    found = th.join(streams, on=["a.s = b.t", close]).select("a.id", "b.k", F.col("c.k").alias("l"))
    same = th.join(streams, on="a.s = b.t AND a.ts - c.ts < INTERVAL 2 SECONDS AND b.ts <= c.ts")
    assert sorted(found.collect()) == sorted(same.select("a.id", "b.k", "c.k").collect()) != []


@pytest.mark.parametrize(
    ("form", "body", "words"),
    [
        ("plain", lambda a, b: a.x > b.y, 'write @th.predicate("numpy"'),
        ("numpy", lambda a, b: a.ts > b.y, "a.ts TIMESTAMP"),
        ("numpy", lambda a, b: a.price > b.y, "reads the column 'price', but it lists a.x, a.ts, b.y"),
        ("numpy", lambda a, b: a.x - b.y, "float64"),
        ("numpy", lambda a, b: True, "2 booleans"),
        ("plain", lambda a, b: pc.less(a.ts, "x"), "raised"),
        ("dictionary", lambda a, b: a.x.price, "AttributeError"),
        ("numpy", lambda a, b: a.x > 1 and b.y > 1, "& for and, | for or"),
    ],
)
def test_a_trial_call_finds_mistakes_at_plan_time(tables, form, body, words):
    with pytest.raises(th.QueryError) as refused:
        th.plan(tables, on=["a.id = b.k", th.predicate(form, a=["x", "ts"], b=["y"])(body)])
    assert refused.value.condition == "PREDICATE_TRIAL"
    assert words in str(refused.value)


def test_a_window_of_no_length(tables):
    """Zero is a window in every form: event times must be equal."""
    plans = [th.plan(tables, on="a.s = b.t", within=zero) for zero in ("0 s", "0 seconds", dt.timedelta(0))]
    assert [plan.join.planned.query.within_us for plan in plans] == [(0, 0)] * 3


def test_a_trial_call_passes_over_errors_of_values(tables):
    def depends(a, b):
        return np.array([{"s0": True, "s1": False}[s] for s in a.s])

    def raises(a, b):
        raise ValueError("an empty image")

    for body in (depends, raises):
        th.plan(tables, on=th.predicate("numpy", a=["s"], b=["y"])(body))


def test_pandas_and_arrow_tables_are_batch_input(spark):
    trades = pd.DataFrame({"id": [1, 2], "ts": [NINE, NINE + dt.timedelta(minutes=9)], "price": [1.0, 2.0]})
    quotes = pa.table({"id": [7, 8], "ts": [NINE, NINE + dt.timedelta(minutes=8)], "bid": [0.9, 1.9]})
    on = "a.price BETWEEN b.bid AND b.bid + 0.2"
    pairs = th.join({"a": trades, "b": quotes}, on=on, within="5m")
    assert sorted(pairs.select("a.id", "b.id").collect()) == [(1, 7), (2, 8)]
    counted = th.aggregate({"a": trades, "b": quotes}, on=on, aggs={"n": "count(*)"})
    assert counted.collect() == [(2,)]
    rows = th.sql(spark, f"SELECT ONLINE a.id FROM a, b WHERE {on} WITHIN 90s", {"a": trades, "b": quotes})
    assert sorted(rows.collect()) == [(1,), (2,)]
    tasks = th.join_many({"a": trades, "b": quotes}, {"near": {"on": on}})
    assert tasks["near"].count() == 2


@pytest.mark.parametrize(
    ("within", "us"),
    [
        ("5m", 300_000_000),
        ("15 mins", 900_000_000),
        ("1h30m", 5_400_000_000),
        (dt.timedelta(seconds=3), 3_000_000),
        (pd.Timedelta("2min"), 120_000_000),
        ("interval 5 minutes", 300_000_000),
        ("1 day 2 hours", 93_600_000_000),
    ],
)
def test_durations_as_people_write_them(tables, within, us):
    assert th.plan(tables, on="a.id = b.k", within=within).join.planned.query.within_us == (us, us)


@pytest.mark.parametrize("within", ["5M", "5", "soon", "1 month", "-5m", ""])
def test_what_is_no_duration(tables, within):
    with pytest.raises(th.QueryError, match="INVALID_DURATION"):
        th.plan(tables, on="a.id = b.k", within=within)


def test_aliases_and_columns_of_any_language(tables):
    streams = {"größe": tables["a"].withColumnRenamed("x", "価格"), "名": tables["b"]}

    @th.predicate("numpy", größe=["価格"], 名=["y"])
    def near(größe, 名):
        return np.abs(größe.価格 - 名.y) <= 1

    found = th.join(streams, on=["größe.価格 <= 名.y", "größe.s = 't' || substr(t, 2) OR größe.id > 2", near])
    expected = th.join(tables, on="a.x <= b.y AND a.id > 2 AND abs(a.x - b.y) <= 1")
    assert sorted(found.select("größe.id", "名.k").collect()) == ids(expected) != []


def test_mixed_event_times_are_refused_with_the_cast_to_write(tables):
    ntz = tables["b"].withColumn("ts", F.col("ts").cast("timestamp_ntz"))
    with pytest.raises(th.QueryError, match="EVENT_TIME_TYPES") as refused:
        th.plan({"a": tables["a"], "b": ntz}, on="a.id = b.k", within="5m")
    assert 'b.withColumn("ts", F.col("ts").cast("timestamp"))' in str(refused.value)
    both = {"a": tables["a"].withColumn("ts", F.col("ts").cast("timestamp_ntz")), "b": ntz}
    assert ids(th.join(both, on="a.id = b.k", within="2s")) == [(0, 0), (1, 1), (2, 2)]
    text = tables["b"].withColumn("ts", F.col("ts").cast("string"))
    with pytest.raises(th.QueryError, match="EVENT_TIME_TYPE") as refused:
        th.plan({"a": tables["a"], "b": text}, on="a.id = b.k", within="5m", event_time="ts")
    assert 'cast("timestamp")' in str(refused.value)


def test_a_stream_of_local_times_gets_an_event_time(spark):
    rate = spark.readStream.format("rate").load().withColumn("ts", F.col("timestamp").cast("timestamp_ntz"))
    field = mark_event_time(rate, "ts", "5m").schema["ts"]
    assert (field.dataType.simpleString(), field.metadata[MARK]) == ("timestamp", 300_000)
    assert th.by_arrival(rate, slack="1m30s").schema["arrival"].metadata[MARK] == 90_000


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("-10 seconds", "must not be negative"),
        (dt.timedelta(seconds=-5), "must not be negative"),
        ("INTERVAL '-1' DAY", "must be a span of time that is not negative"),
        ("10000000 years", "must be a span of time that is not negative"),
        ("often", "is no span of time"),
    ],
)
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_delay_that_no_watermark_can_have_is_refused(spark, tables, given, rule, is_streaming):
    rows = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    rows = rows if is_streaming else tables["a"]
    for name, mark in (
        ("slack", lambda: th.by_arrival(rows, slack=given)),
        ("delay", lambda: th.with_watermark(rows, "ts", given)),
    ):
        with pytest.raises(th.QueryError) as refused:
            mark()
        assert refused.value.condition == "INVALID_DURATION"
        assert refused.value.message == f'{name} ({given!r}) {rule}; write it as in "10 seconds"'


def test_settings_may_be_left_out_as_none(tables):
    join = plan_join(read_request(tables, "a.id = b.k", None, None, {"index": None}), tables)
    assert re.search("hash", th.Plan(join).explain())


def test_a_plan_describes_itself(tables):
    streams = {**tables, "c": tables["b"]}
    near = th.predicate("numpy", a=["x"], b=["y"])(lambda a, b: a.x < b.y)
    plans = [
        th.plan(tables, on=["a.id = b.k", near], model=th.Biclique(2)),
        th.plan(streams, on="a.id = b.k AND b.k < c.k AND a.x BETWEEN b.y - 1 AND b.y AND a.s <> 'long'"),
        th.join_many(tables, {"near": {"on": "a.id = b.k"}, "far": {"on": "a.x < b.y"}}),
    ]
    for plan in (*plans[:2], plans[2].plan):
        assert str(plan) == plan.explain()
        first, second = repr(plan).split("\n")
        assert max(len(first), len(second)) < 200
        assert first.startswith(f"Plan of batch {', '.join(plan.aliases)} on ")
        assert all(repr(model) in second for model in plan.models)
        page = ElementTree.fromstring(plan._repr_html_())
        assert len(list(page.iter("{http://www.w3.org/2000/svg}svg"))) == len(plan.models)
        assert {"Cost"} <= {summary.text for summary in page.iter("summary")}
    assert "near: a.id = b.k; far: a.x < b.y" in repr(plans[2])
    assert "<lambda>(...)" in repr(plans[0])


def test_the_plan_that_spark_shows_names_the_steps_of_a_join(tables, capsys):
    th.join(tables, "a.x < b.y", model=th.Matrix(1, 1)).explain()
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("route_a_to_units", "route_b_to_units", "run_units"))
