"""Every mistake of the user is refused with its own condition name before the query starts."""

from datetime import timedelta

import pytest
from pyspark.sql import functions as F

import thetastream as th


@pytest.fixture(scope="module")
def streams(spark):
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "5 seconds")
    a = rate.selectExpr(
        "timestamp AS ts", "value AS x", "string(value) AS s", "array(1) AS arr", "value AS both"
    )
    b = rate.selectExpr("timestamp AS ts", "value AS y", "string(value) AS t", "value AS both")
    return {"a": a, "b": b}


def problem_of(streams, on="a.x > b.y", within="1 minute", **settings):
    with pytest.raises(th.ThetastreamError) as error:
        th.plan(streams, on=on, within=within, **settings)
    return error.value


@pytest.mark.parametrize(
    ("on", "condition", "words"),
    [
        ("a.x > c.y", "UNKNOWN_ALIAS", "'c' is not one of the streams a, b"),
        ("a.x > b.nope", "UNKNOWN_COLUMN", "there are ts, y, t, both"),
        ("nope > 1", "UNKNOWN_COLUMN", "a has ts, x, s, arr, both"),
        ("both > 1", "AMBIGUOUS_COLUMN", "write a.both or b.both"),
        ("a.x + b.y", "NOT_BOOLEAN", "BIGINT"),
        ("a.arr AND a.x = b.y", "NOT_BOOLEAN", "a.arr"),
        ("a.x > rand()", "NON_DETERMINISTIC", "rand"),
        ("a.ts > now()", "TIME_DEPENDENT", "now"),
        ("a.ts > current_timestamp", "TIME_DEPENDENT", "current_timestamp"),
        ("a.x > b.y AND", "SYNTAX", "AND must stand between two conditions"),
        ("a.x > b.y AS pair", "SYNTAX", ""),
        ("a.x > b.y pair", "SYNTAX", ""),
        ("a.x > b.y; DROP TABLE t", "SYNTAX", ""),
        ("(a.x > b.y", "SYNTAX", "line 1, column 1"),
        ("", "SYNTAX", "empty"),
        ("a.x > b.y, a.x", "NOT_BOOLEAN", ""),
        ("a.x IN (SELECT 1)", "SUBQUERY", "subquery"),
        ("a.x > (SELECT max(1))", "SUBQUERY", "subquery"),
        ("a.x > sum(b.y)", "UNSUPPORTED_EXPRESSION", "sum"),
        ("a.x > row_number() OVER (ORDER BY b.y)", "UNSUPPORTED_EXPRESSION", "window"),
        ("explode(a.arr) > b.y", "UNSUPPORTED_EXPRESSION", "explode"),
        ("a.arr > b.t", "TYPE_MISMATCH", ""),
        ("vector_l2_distance(a.arr, a.arr) < b.y", "VECTOR_TYPE", "write CAST(a.arr AS ARRAY<FLOAT>)"),
        ("a.s = b.y", "TYPE_MISMATCH", "cast one side: try_cast(a.s AS BIGINT)"),
        ("a.x BETWEEN b.t AND b.y", "TYPE_MISMATCH", "'b.t' is text and 'a.x' is a number"),
        ("abs(a.s - b.y) < 5", "TYPE_MISMATCH", "'a.s' is text and 'b.y' is a number"),
        ("a.s > 5 AND a.x = b.y", "TYPE_MISMATCH", "'a.s' is text and '5' is a number"),
        ("nofunc(a.x) > b.y", "UNKNOWN_FUNCTION", "nofunc"),
        ("a.x > :limit", "UNBOUND_PARAMETER", "limit"),
        ("struct(a.*) = struct(b.*)", "", ""),
        (7, "CONDITION", "7"),
        ([], "CONDITION", ""),
        (len, "CONDITION", "@th.predicate"),
        (["a.x > b.y", 7], "CONDITION", "7"),
    ],
)
def test_conditions(streams, on, condition, words):
    problem = problem_of(streams, on)
    assert isinstance(problem, th.QueryError)
    if condition:
        assert problem.condition == condition
    assert words in str(problem)


def test_text_that_is_cast_or_constant_is_compared_with_a_number(streams):
    th.plan(streams, on="try_cast(a.s AS BIGINT) = b.y AND a.x > '5' AND a.s < b.t", within="1 minute")


CHAR_MARK = "__CHAR_VARCHAR_TYPE_STRING"


@pytest.mark.parametrize(
    ("on", "is_refused"),
    [
        ("a.s = b.t", True),
        ("a.x = b.y AND s IN ('1', '2')", True),
        (["a.x = b.y", "a.s <> '1'"], True),
        ("a.x = b.y AND NOT (a.x = 1 OR A.S < 'b')", True),
        ("a.s = b.both_text", False),
        ("a.x = b.y AND length(a.s) > 1", False),
    ],
    ids=str,
)
def test_values_that_spark_pads_are_not_compared(streams, on, is_refused):
    """Units would compare them without blanks."""
    a = streams["a"].withMetadata("s", {CHAR_MARK: "char(3)"})
    b = streams["b"].selectExpr("*", "t AS both_text").withMetadata("t", {CHAR_MARK: "char(5)"})
    b = b.withMetadata("both_text", {CHAR_MARK: "char(3)"})
    if is_refused:
        problem = problem_of({"a": a, "b": b}, on)
        assert problem.condition == "TYPE_MISMATCH"
        assert "a.s CHAR(3)" in str(problem)
    else:
        th.plan({"a": a, "b": b}, on=on, within="1 minute")


@pytest.mark.parametrize(
    ("within", "condition", "words"),
    [
        ("ten minutes", "INVALID_DURATION", "ten minutes"),
        ("1 minute ON a.x = b.y", "INVALID_DURATION", "the condition stands before WITHIN"),
        ("-5 minutes", "INVALID_DURATION", "negative"),
        ("1 month", "INVALID_DURATION", "months"),
        ("999999999 days", "INVALID_DURATION", ""),
        (timedelta(days=999_999_999), "INVALID_DURATION", "at most 10,000 years (3652500 days)"),
        ({"a": "1 minute", "b": "4000000 days"}, "INVALID_DURATION", "within of 'b' must be at most"),
        (5, "INVALID_DURATION", "5"),
        ("'; DROP", "INVALID_DURATION", ""),
        ({"a": "1 minute"}, "WINDOW_MISSING", "'b'"),
        ({"a": "1 minute", "b": "1 minute", "c": "1 minute"}, "UNKNOWN_ALIAS", "'c'"),
        ({"a": th.Rows(10), "b": "1 minute"}, "MIXED_WINDOWS", "'b'"),
        ({"a": "1 minute", "b": "1 minute", "A": "1 hour"}, "WINDOW_TWICE", "'a', 'b', 'A'"),
    ],
)
def test_windows(streams, within, condition, words):
    problem = problem_of(streams, within=within)
    assert problem.condition == condition
    assert words in str(problem)


def test_functions_of_sql_hide_no_clock_and_no_table(spark, streams):
    spark.range(3).createOrReplaceTempView("numbers")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION clock() RETURNS TIMESTAMP RETURN now()")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION peek() RETURNS BIGINT RETURN (SELECT max(id) FROM numbers)"
    )
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION twice(n BIGINT) RETURNS BIGINT RETURN 2 * n")
    for hidden, condition in (("a.ts < clock()", "TIME_DEPENDENT"), ("b.y > peek()", "SUBQUERY")):
        problem = problem_of(streams, on=f"a.x > b.y AND abs(a.x) < 9 AND {hidden}")
        assert problem.condition == condition
        assert f"'{hidden}' " in str(problem)
    # A function of the row alone stays possible.
    th.plan(streams, on="twice(a.x) > b.y", within="1 minute")


@pytest.mark.parametrize(
    ("settings", "condition", "words"),
    [
        ({"index": "tree"}, "UNKNOWN_INDEX", "scan, sorted"),
        ({"index": "hash"}, "INDEX_NOT_APPLICABLE", "an equality"),
        ({"index": "grid", "within": None}, "INDEX_NOT_APPLICABLE", "two bands"),
        ({"archive_period": "20 minutes"}, "ARCHIVE_PERIOD", "(20 minutes) must be <= window (1 minute)"),
        ({"archive_period": "0 seconds"}, "ARCHIVE_PERIOD", "must be at least a microsecond"),
        ({"archive_period": "soon"}, "INVALID_DURATION", "archive_period"),
        ({"event_time": {"a": "x"}}, "EVENT_TIME", "watermark"),
    ],
)
def test_settings(streams, settings, condition, words):
    problem = problem_of(streams, **settings)
    assert problem.condition == condition
    assert words in str(problem)


def test_streams(spark, streams):
    a, b = streams["a"], streams["b"]
    table = spark.range(3).selectExpr("id AS y", "timestamp_micros(id) AS ts")
    cases = [
        ({"a": a}, "STREAM_COUNT"),
        ({}, "STREAMS"),
        ([a, b], "STREAMS"),
        ({"a": a, "b": "b"}, "STREAMS"),
        ({"a": a, "A": b}, "DUPLICATE_ALIAS"),
        ({"a": a, "b c": b}, "INVALID_ALIAS"),
        ({"a": a, "b": table}, "MIXED_INPUTS"),
        (
            {
                "a": a,
                "b": b.withColumn("Y", F.lit(1)).withColumnRenamed("t", "q").select("*", F.lit(1).alias("q")),
            },
            "DUPLICATE_COLUMN",
        ),
        ({"a": a, "b": b.withColumn("${env:HOME}", F.lit(1))}, "COLUMN_VARIABLE"),
    ]
    for given, condition in cases:
        assert problem_of(given).condition == condition, given


def test_no_watermark(spark, streams):
    plain = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS y")
    problem = problem_of({"a": streams["a"], "b": plain})
    assert problem.condition == "NO_WATERMARK"
    assert "'b'" in str(problem)
    assert "by_arrival" in str(problem)
    th.plan({"a": streams["a"], "b": plain}, on="a.x > b.y")


def test_batch_event_time(spark):
    a = spark.range(3).selectExpr("id AS x", "timestamp_micros(id) AS ts")
    b = spark.range(3).selectExpr("id AS y", "timestamp_micros(id) AS ts", "timestamp_micros(id) AS seen")
    problem = problem_of({"a": a, "b": b})
    assert problem.condition == "NO_WATERMARK"
    assert "event_time=" in str(problem)
    plan = th.plan({"a": a, "b": b}, on="a.x > b.y", within="1 minute", event_time={"b": "seen"})
    assert [side.time.column for side in plan.join.planned.physical.condition.sides] == ["c1", "c4"]
    assert problem_of({"a": a, "b": b}, event_time="nope").condition == "INVALID_QUERY"


def test_event_times_of_two_types(spark):
    # Only batch DataFrames can have this column as event time, because withWatermark refuses TIMESTAMP_NTZ.
    a = spark.range(3).selectExpr("id AS x", "timestamp_micros(id) AS ts")
    b = a.selectExpr("x AS y", "CAST(ts AS TIMESTAMP_NTZ) AS ts")
    assert problem_of({"a": a, "b": b}).condition == "EVENT_TIME_TYPES"


def test_python_predicates(streams):
    @th.predicate(a=["x"], c=["y"])
    def alias(a, c):
        return a

    @th.predicate(a=["x"])
    def lonely(a):
        return a

    @th.predicate(a=["x"], b=["nope"])
    def column(a, b):
        return a

    assert problem_of(streams, alias).condition == "UNKNOWN_ALIAS"
    assert problem_of(streams, lonely).condition == "PREDICATE_COLUMNS"
    assert problem_of(streams, column).condition == "UNKNOWN_COLUMN"


def test_types_that_cannot_travel(spark, streams):
    b = streams["b"].withColumn("wait", F.expr("array(make_interval(1))"))
    assert problem_of({"a": streams["a"], "b": b}).condition == "UNSUPPORTED_TYPE"


def test_all_problems_at_once(spark, streams):
    plain = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS y")
    problem = problem_of(
        {"a": streams["a"], "b": plain}, "a.nope > b.y AND a.x > c.y AND rank > 1", "soon", statistics=7
    )
    assert isinstance(problem, th.errors.InvalidQuery)
    names = [each.condition for each in problem.problems]
    for name in ("UNKNOWN_COLUMN", "UNKNOWN_ALIAS", "NO_WATERMARK", "INVALID_DURATION", "STATISTICS"):
        assert name in names


def test_session_settings(spark, streams):
    key = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(key)
    spark.conf.unset(key)
    try:
        problem = problem_of(streams)
    finally:
        spark.conf.set(key, before)
    assert problem.condition == "STATE_STORE_PROVIDER"


def test_statistics_of_no_stream_are_refused(spark) -> None:
    frames = {alias: spark.createDataFrame([], "k int, v int, ts timestamp") for alias in "abc"}
    known = th.Statistics(tuples_per_second={"a": 10, "d": 20})
    for aliases, model in (("ab", None), ("abc", None), ("abc", th.Ring(2))):
        streams = {alias: frames[alias] for alias in aliases}
        with pytest.raises(th.QueryError, match=r"\[UNKNOWN_ALIAS\] statistics name 'd'"):
            th.plan(
                streams,
                " AND ".join(f"a.k < {alias}.k" for alias in aliases[1:]),
                statistics=known,
                model=model,
            )
    known = th.Statistics(tuples_per_second={"a": 10, "c": 20})
    assert th.plan(frames, "a.k < b.k AND b.k < c.k", statistics=known).join.steps
