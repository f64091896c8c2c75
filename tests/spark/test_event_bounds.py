"""Bounds on event time in every spelling, and windows of Spark's ``window`` in a condition."""

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import ZONE, configured, made, truths

S, M, H, D = 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6
FIVE = "INTERVAL '5' SECOND"
EXACT = {
    f"b.ts - a.ts <= {FIVE}": (-5 * S, None),
    f"{FIVE} > a.ts - b.ts": (None, 5 * S - 1),
    f"b.ts - a.ts BETWEEN INTERVAL '0' SECOND AND {FIVE}": (-5 * S, 0),
    f"b.ts - {FIVE} - a.ts <= INTERVAL '1' SECOND": (-6 * S, None),
    "unix_micros(b.ts) - unix_micros(a.ts) <= 5000000": (-5 * S, None),
    "unix_micros(b.ts) BETWEEN unix_micros(a.ts) AND 7 + unix_micros(a.ts)": (-7, 0),
    "abs(unix_micros(a.ts) - unix_micros(b.ts)) < 3": (-2, 2),
    "a.ts > b.ts - make_dt_interval(0, 0, 0, 5)": (-5 * S + 1, None),
    "NOT (a.ts < b.ts OR a.ts > b.ts + INTERVAL 1 HOUR)": (0, H),
    "a.ts >= b.ts AND NOT a.ts - b.ts > INTERVAL 1 MINUTE": (0, M),
    "timestampadd(SECOND, 5, a.ts) >= b.ts AND a.ts <= dateadd(MINUTE, 1, b.ts)": (-5 * S, M),
}
"""Conditions that mean no more than bounds, and these bounds of a.ts - b.ts."""
WIDE = {
    "timestampdiff(SECOND, a.ts, b.ts) BETWEEN 0 AND 5": (-6 * S + 1, S - 1),
    "abs(datediff(MINUTE, b.ts, a.ts)) <= 2": (-3 * M + 1, 3 * M - 1),
    "unix_seconds(a.ts) - unix_seconds(b.ts) = 0": (-S + 1, S - 1),
    "CAST(a.ts AS LONG) + 10 > CAST(b.ts AS LONG)": (-11 * S + 2, None),
    "date_trunc('MINUTE', a.ts) = date_trunc('MINUTE', b.ts)": (-M + 1, M - 1),
    "window(a.ts, '10 seconds') = window(b.ts, '10 seconds')": (-10 * S + 1, 10 * S - 1),
    "window(a.ts, '10 seconds', '10 seconds', '-3 seconds').start <= b.ts": (None, 10 * S - 1),
    "(a.ts >= b.ts AND a.k > b.k) OR (a.k < 3 AND a.ts >= b.ts)": (0, None),
}
LOCAL = {
    f"b.ts - a.ts <= {FIVE}": (-5 * S, None),
    "timestampdiff(SECOND, a.ts, b.ts) BETWEEN 0 AND 5": (-6 * S + 1 - 26 * H, S - 1 + 26 * H),
    "date_diff(b.ts, a.ts) BETWEEN 0 AND 1": (-D - D - 26 * H, D + 26 * H),
    "CAST(a.ts AS DATE) = to_date(b.ts)": (-D - 26 * H, D + 26 * H),
    "date_trunc('DAY', a.ts) = date_trunc('DAY', b.ts)": (-D + 1 - 26 * H, D - 1 + 26 * H),
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 DAY": (-D - 26 * H, 0),
    "CAST(b.ts AS DOUBLE) - CAST(a.ts AS DOUBLE) < 2.5": (-2_519_999, None),
}
"""Conditions in a zone whose days may have 23 or 25 hours."""
UNBOUNDED = [
    "a.ts <=> b.ts",
    "a.ts + b.d > b.ts",
    "a.ts < b.ts OR a.k = b.k",
    "year(a.ts) = year(b.ts)",
    "a.k < b.k",
]


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, DataFrame]:
    source = spark.readStream.format("rate").load()
    made = source.selectExpr("timestamp AS ts", "CAST(value AS INT) AS k", "INTERVAL '1' SECOND AS d")
    return {alias: made.withWatermark("ts", "5 seconds") for alias in "ab"}


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        yield


def plan(streams: dict[str, DataFrame], on: str, **settings: Any) -> th.Plan:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return th.plan(streams, on=on, **settings)


def read_window(planned: th.Plan) -> Any:
    window = planned.join.planned.physical.condition.window
    return None if window is None else tuple(end and end.delta for end in (window.low, window.high))


def test_bounds_of_every_spelling(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        plans = {on: plan(streams, on) for on in EXACT | WIDE}
        assert {on: read_window(planned) for on, planned in plans.items()} == EXACT | WIDE
        assert {on: plans[on].join.planned.physical.residual for on in EXACT} == dict.fromkeys(EXACT, ())
        assert {on: read_window(plan(streams, on)) for on in UNBOUNDED} == dict.fromkeys(UNBOUNDED)


def test_bounds_in_a_zone_with_daylight_saving_time(zone: None, streams: dict[str, DataFrame]) -> None:
    assert {on: read_window(plan(streams, on)) for on in LOCAL} == LOCAL


@pytest.mark.slow
def test_no_pair_is_outside_its_bounds(
    spark: SparkSession, zone: None, streams: dict[str, DataFrame]
) -> None:
    """Spark's own answer, around both changes of the clock, before 1970 and at its start."""
    starts = ["2025-11-02 05:58:00Z", "2025-03-09 06:58:00Z", "1969-12-31 23:58:00Z", "1883-11-18 16:58:00Z"]
    steps = [
        0,
        1,
        59_999_999,
        60_000_000,
        118 * S,
        122 * S,
        125 * S + 1,
        7 * M,
        62 * M,
        23 * H,
        24 * H,
        25 * H,
    ]
    rows = [
        f"SELECT {len(steps) * n + m} AS id, {(n + m) % 5} AS k, INTERVAL '1' SECOND AS d, "
        f"timestamp'{start}' + INTERVAL '{step / 1e6:.6f}' SECOND AS ts"
        for n, start in enumerate(starts)
        for m, step in enumerate(steps)
    ]
    frame = made(spark, rows)
    times = {row[0]: row[1] for row in frame.selectExpr("id", "unix_micros(ts)").collect()}
    conditions = [on for on in EXACT | WIDE | LOCAL if "window" not in on]
    for on, pairs in zip(conditions, truths(frame, frame, conditions), strict=True):
        low, high = read_window(plan(streams, on))
        gaps = [times[a] - times[b] for a, b in pairs]
        assert gaps, on
        assert low is None or min(gaps) >= low, on
        assert high is None or max(gaps) <= high, on


def show(rows: DataFrame, column: Column) -> list[str]:
    return [row[0] for row in rows.select(column.cast("string")).collect()]


@pytest.mark.slow
def test_windows_are_those_of_spark(spark: SparkSession, zone: None) -> None:
    texts = [
        "1969-12-31 23:59:59.999999",
        "1970-01-01",
        "0001-01-01",
        "2025-11-02 01:30:00",
        "2025-03-09 02:30:00",
        "9999-12-31 23:59:59",
    ]
    frame = spark.sql(
        " UNION ALL ".join(
            [
                f"SELECT timestamp'{text}' AS ts, timestamp_ntz'{text}' AS n, '{text}' AS s, "
                f"date'{text[:10]}' AS d"
                for text in texts
            ]
            + ["SELECT CAST(NULL AS TIMESTAMP), NULL, NULL, NULL"]
        )
    )
    from thetastream.conditions import parse
    from thetastream.joins.ask.catalyst import Catalyst
    from thetastream.joins.ask.window_calls import write_windows

    catalyst = Catalyst(spark, {"a": frame.schema})
    spans = [
        "'10 seconds'",
        "'7 seconds 3 milliseconds'",
        "'1 week'",
        "1000000",
        "'1 day', '1 day', '-5 hours'",
        "'3 hours', '3 hours', '1 hour'",
    ]
    for column in ("ts", "n", "s", "d"):
        rows = frame.where(f"{column} IS NOT NULL").select(F.struct("*").alias("a"))
        for span in spans:
            call = f"window(a.{column}, {span})"
            written = write_windows(parse(call), catalyst, ["a"]).text
            assert show(rows, F.expr(written)) == show(rows, F.expr(call)), call
        nested = write_windows(
            parse(f"window_time(window(window(a.{column}, '5 seconds'), '20 seconds'))"), catalyst, ["a"]
        ).text
        own = rows.select(F.window(f"a.{column}", "5 seconds").alias("w")).select(
            F.window("w", "20 seconds").alias("v")
        )
        assert show(rows, F.expr(nested)) == show(own, F.window_time("v"))
    nulls = frame.select(F.struct("*").alias("a")).where("a.ts IS NULL")
    assert (
        nulls.select(F.expr(write_windows(parse("window(a.ts, 5)"), catalyst, ["a"]).text)).collect()[0][0]
        is None
    )


@pytest.mark.slow
def test_tumbling_windows_are_keys(
    spark: SparkSession, streams: dict[str, DataFrame], tmp_path: Path
) -> None:
    """The join that users of Flink write first. It ended in INTERNAL_ERROR."""
    on = "window(a.ts, '10 seconds') = window(b.ts, '10 seconds') AND a.k = b.k"
    model = th.Biclique((2, 2), subgroups=2, routing="hash")
    frame = made(
        spark,
        [f"SELECT {n} AS id, timestamp_millis({n * 2_700 - 20_000}) AS ts, {n % 2} AS k" for n in range(16)],
    )
    times = {row[0]: row[1] // (10 * S) for row in frame.selectExpr("id", "unix_micros(ts)").collect()}
    wanted = Counter((a, b) for a in times for b in times if times[a] == times[b] and a % 2 == b % 2)
    parts = {
        alias: replay(frame, [range(9), range(9, 16)], tmp_path).withWatermark("ts", "1 minute")
        for alias in "ab"
    }
    assert outcome(th.join(parts, on=on, model=model), ["a.id", "b.id"], tmp_path).rows == wanted
    column = F.window(th.col("a.ts"), "10 seconds") == F.window(th.col("b.ts"), "10 seconds")
    for condition, how in ((on, "left"), ([column, "a.k = b.k"], "inner")):
        joined = th.join({"a": frame, "b": frame}, on=condition, how=how)
        assert Counter(map(tuple, joined.select("a.id", "b.id").collect())) == wanted
    beside_table = th.join({"a": parts["a"], "b": frame}, on=on)
    assert outcome(beside_table, ["a.id", "b.id"], tmp_path).rows == wanted


@pytest.mark.parametrize(
    ("on", "condition"),
    [
        ("session_window(a.ts, '5 minutes') = session_window(b.ts, '5 minutes')", "SESSION_WINDOW"),
        (
            "window(a.ts, '10 seconds', '5 seconds') = window(b.ts, '10 seconds', '5 seconds')",
            "SLIDING_WINDOW",
        ),
        ("window(a.ts, '1 month') = window(b.ts, '1 month')", "WINDOW_CALL"),
        ("window(a.ts, '0 seconds') = window(b.ts, '1 second')", "WINDOW_CALL"),
        ("window(a.nothing, '1 second') = window(b.ts, '1 second')", "UNKNOWN_COLUMN"),
    ],
)
def test_other_windows_are_refused(streams: dict[str, DataFrame], on: str, condition: str) -> None:
    with pytest.raises(th.QueryError, match=condition):
        plan(streams, on)


def test_a_missing_watermark_is_what_is_missing(streams: dict[str, DataFrame]) -> None:
    on = f"a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + {FIVE}"
    bare = streams["b"].sparkSession.readStream.format("rate").load().selectExpr("timestamp AS ts", "1 AS k")
    with pytest.raises(th.QueryError, match=r"NO_WATERMARK.*'b'.*withWatermark"):
        plan({"a": streams["a"], "b": bare}, on, how="left")
    with pytest.raises(th.QueryError, match="UNDECIDED"):
        plan(streams, "a.k = b.k", how="left")


def test_a_window_beside_the_event_time(streams: dict[str, DataFrame]) -> None:
    beside = streams["a"].withColumn("w", F.window("ts", "10 seconds")).withColumn("ts2", F.col("ts"))
    on, within = "a.k = b.k", "1 minute"
    with pytest.raises(th.QueryError, match=r"AMBIGUOUS_EVENT_TIME.*ts and ts2.*event_time="):
        plan({"a": beside, "b": streams["b"]}, on, within=within)
    for given, event_time, expected in (
        (beside.drop("ts2"), None, "ts"),
        (beside, {"a": "ts2"}, "ts2"),
        (beside.drop("ts2"), "ts", "ts"),
    ):
        planned = plan({"a": given, "b": streams["b"]}, on, within=within, event_time=event_time)
        assert planned.event_times["a"] == expected
