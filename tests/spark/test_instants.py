"""Event times are instants: what we compute from them is the same in every session time zone.

The clock of New York repeats the hour from 01:00 on 2 November 2025, and skips an hour on 9 March. That of
Lord Howe repeats half an hour on 6 April. Spark's own difference of two TIMESTAMPs compares the clocks.
"""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured, crossed, differences, made, split, tagged
from thetastream.spark.session.failure import unwrap_error

NEW_YORK = "America/New_York"
ZONES = ("UTC", NEW_YORK, "Australia/Lord_Howe", "Asia/Kathmandu", "+05:45", "America/St_Johns")
TIMES = {
    "a": ["2025-11-02 06:30:00", "2025-03-09 07:10:00", "2025-04-05 15:10:00", "1969-12-31 23:59:59.999999"],
    "b": [
        "2025-11-02 05:45:00",
        "2025-11-02 06:29:59",
        "2025-03-09 06:50:00",
        "2025-04-05 14:50:00",
        "2025-04-05 15:09:58",
        "1969-12-31 23:40:00",
    ],
}
TWO_HOURS = "abs(a.ts - b.ts) <= INTERVAL 2 HOURS"
BOUNDS = {
    "abs(a.ts - b.ts) <= INTERVAL 20 MINUTES": lambda us: abs(us) <= 1200e6,
    "a.ts - b.ts < INTERVAL 20 MINUTES AND INTERVAL 0 SECONDS < a.ts - b.ts": lambda us: 0 < us < 1200e6,
    "b.ts - a.ts BETWEEN INTERVAL '-20' MINUTE AND INTERVAL 0 SECONDS": lambda us: 0 <= us <= 1200e6,
    "a.ts - b.ts = INTERVAL 1 SECOND": lambda us: us == 1e6,
    "abs(a.ts - b.ts - INTERVAL 2 SECONDS) < INTERVAL 2 SECONDS": lambda us: abs(us - 2e6) < 2e6,
    "a.ts + INTERVAL 5 MINUTES - b.ts <= INTERVAL 25 MINUTES AND a.ts >= b.ts": lambda us: 0 <= us <= 1200e6,
    "a.other - b.other BETWEEN INTERVAL 0 SECONDS AND INTERVAL 20 MINUTES": lambda us: 0 <= us <= 1200e6,
    "abs(a.other - b.other) < INTERVAL 20 MINUTES": lambda us: abs(us) < 1200e6,
    f"{TWO_HOURS} AND (a.ts - b.ts <= INTERVAL 20 MINUTES OR a.id = 9)": lambda us: (
        abs(us) <= 7200e6 and us <= 1200e6
    ),
    f"{TWO_HOURS} AND extract(MINUTE FROM a.ts - b.ts) < 20": lambda us: (
        abs(us) <= 7200e6 and us // 60e6 % 60 < 20
    ),
    f"{TWO_HOURS} AND a.ts - b.ts < b.span": lambda us: abs(us) <= 7200e6 and us < 1200e6,
}


def frame(spark: SparkSession, alias: str) -> DataFrame:
    """Return rows with an event time, another time that is equal to it, and a span of 20 minutes."""
    selects = [
        f"SELECT {n} AS id, timestamp'{time}Z' AS ts, timestamp'{time}Z' AS other, "
        "INTERVAL '20' MINUTE AS span"
        for n, time in enumerate(TIMES[alias], 1)
    ]
    return made(spark, selects)


def stream(spark: SparkSession, alias: str, folder: Path) -> DataFrame:
    """Return a stream of these rows, whose second epoch moves the watermark on."""
    rows = frame(spark, alias).select("id", "ts")
    rows = rows.unionAll(
        spark.sql("SELECT 99 AS id, timestamp'2025-11-03 00:00:00Z' AS ts")
    ).localCheckpoint()
    first = range(1, len(TIMES[alias]) + 1)
    return replay(rows, [first, [99]], folder).withWatermark("ts", "10 minutes")


def compute_pairs(spark: SparkSession) -> list[Counter[tuple[int, int]]]:
    """Compute the pairs of each bound from numbers of microseconds."""
    micros = [
        {row[0]: row[1] for row in frame(spark, alias).select("id", F.unix_micros("ts")).collect()}
        for alias in "ab"
    ]
    return [
        Counter((a, b) for a, at in micros[0].items() for b, bt in micros[1].items() if holds(at - bt))
        for holds in BOUNDS.values()
    ]


@pytest.mark.parametrize("zone", [NEW_YORK, *(pytest.param(zone, marks=pytest.mark.slow) for zone in ZONES)])
def test_a_difference_of_two_streams_is_elapsed_time(spark: SparkSession, zone: str) -> None:
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        given: dict[str, Any] = {"a": frame(spark, "a"), "b": frame(spark, "b")}
        joins = [th.join(given, on=on, event_time={"a": "ts", "b": "ts"}) for on in BOUNDS]
        # A window is elapsed time as well.
        joins.append(th.join(given, on="a.ts >= b.ts", within="20 m", event_time={"a": "ts", "b": "ts"}))
        found = split(Counter(tuple(row) for row in tagged(joins).collect()), len(joins))
        wanted = compute_pairs(spark)
        assert not differences([*BOUNDS, "within"], found, [*wanted, wanted[2]])


BY = ["a.ts - b.ts", "abs(a.ts - b.ts)", "-1 * unix_micros(b.ts)", "abs(b.ts - a.ts)"]


@pytest.mark.parametrize("zone", [NEW_YORK, *(pytest.param(zone, marks=pytest.mark.slow) for zone in ZONES)])
@pytest.mark.slow
def test_the_nearest_partner_in_the_repeated_hour(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    # The trade of 06:30:00Z has the clock 01:30:00, the quote of 05:45:00Z had 01:45:00.
    wanted = Counter({(1, 2): 1, (2, 3): 1, (3, 5): 1, (4, 6): 1})
    statement = "SELECT a.id AS a, b.id AS b FROM a ASOF JOIN b ON a.ts >= b.ts WITHIN 1 HOUR"
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        batches = {alias: frame(spark, alias).select("id", "ts") for alias in "ab"}
        streams = {alias: stream(spark, alias, tmp_path) for alias in "ab"}
        nearest = [
            th.join(batches, on="a.ts >= b.ts", within="1 hour", how=th.Nearest(1, by=by)) for by in BY
        ]
        found = split(Counter(tuple(row) for row in tagged(nearest).collect()), len(BY))
        assert not differences(BY, found, [wanted] * len(BY))
        as_of = th.sql(spark, statement, streams=batches)
        assert Counter(tuple(row) for row in as_of.collect()) == wanted
        live = outcome(th.sql(spark, statement, streams=streams), ["a", "b"], tmp_path)
        assert live.rows == wanted


@pytest.mark.slow
def test_what_spark_computes_by_the_clock_of_the_session(spark: SparkSession) -> None:
    """Whole days of an interval, date_trunc and differences inside one stream are Spark's own."""
    texts = [
        "b.ts BETWEEN a.ts - INTERVAL 1 DAY AND a.ts",
        "date_trunc('HOUR', a.ts) = date_trunc('HOUR', b.ts)",
        "date_trunc('DAY', a.ts) = date_trunc('DAY', b.ts) AND a.ts >= b.ts",
        "a.ts - a.other <= b.span AND a.id = b.id",
        "timestampdiff(MINUTE, b.ts, a.ts) BETWEEN 0 AND 20",
    ]
    for zone in (NEW_YORK, "Australia/Lord_Howe"):
        with configured(spark, {"spark.sql.session.timeZone": zone}):
            a, b = frame(spark, "a"), frame(spark, "b")
            joins = [th.join({"a": a, "b": b}, on=on, event_time={"a": "ts", "b": "ts"}) for on in texts]
            found = split(Counter(tuple(row) for row in tagged(joins).collect()), len(joins))
            pairs = crossed(a, b)
            wanted = [
                Counter(tuple(row) for row in pairs.where(on).select("a.id", "b.id").collect())
                for on in texts
            ]
            assert not differences(texts, found, wanted)


def test_a_difference_of_a_stream_and_a_table_is_elapsed_time(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, {"spark.sql.session.timeZone": NEW_YORK}):
        given = {"a": stream(spark, "a", tmp_path), "b": frame(spark, "b")}
        on = "abs(a.ts - b.ts) <= INTERVAL 20 MINUTES"
        joined = th.join(given, on=on).selectExpr("a.id", "b.id", "0 AS case")
        padded = th.join(given, on=on, how="left").selectExpr("a.id", "b.id", "1 AS case")
        found = outcome(joined.union(padded), ["*"], tmp_path)
        pairs = compute_pairs(spark)[0]
        wanted = Counter({(*pair, case): n for pair, n in pairs.items() for case in (0, 1)})
        # The tuple that moves the watermark has no partner.
        assert found.rows == wanted + Counter({(99, None, 1): 1})


def test_a_difference_of_an_instant_and_a_local_time(spark: SparkSession) -> None:
    """A TIMESTAMP_NTZ is read in the zone of the session, also where units rank or Spark filters pairs."""
    with configured(spark, {"spark.sql.session.timeZone": NEW_YORK}):
        a = spark.sql("SELECT id, timestamp_seconds(1717243200 + id * 1800) AS ts FROM range(4)")
        local = "timestamp_ntz'2024-06-01 08:00:00' + make_dt_interval(0, 0, CAST(id AS INT) * 30)"
        b = spark.sql(f"SELECT id, {local} AS at FROM range(4)")
        far = th.join({"a": a, "b": b}, on="abs(a.ts - b.at) >= INTERVAL 1 HOUR AND a.id >= b.id")
        near = th.join({"a": a, "b": b}, on="a.id <> b.id", how=th.Nearest(1, by="abs(a.ts - b.at)"))
        found = [sorted(map(tuple, join.select("a.id", "b.id").collect())) for join in (far, near)]
    assert found == [[(2, 0), (3, 0), (3, 1)], [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]]


@pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")
def test_times_without_a_zone_keep_their_clock(spark: SparkSession) -> None:
    """A table of pandas or Arrow whose times have no zone means the same in every session.

    New York has 01:10 twice on 2 November, and no 02:30 on 9 March.
    """
    clocks = [datetime(2025, 11, 2, 1, 10), datetime(2025, 3, 9, 2, 30), datetime(2025, 3, 9, 3, 10), None]
    trades = pd.DataFrame({"id": range(4), "ts": clocks, "seen": [[one] for one in clocks]})
    quotes = pa.table(
        {"id": range(4), "ts": pa.array(clocks, pa.timestamp("us")), "day": [{"at": clocks[1]}] * 4}
    )
    for zone in (NEW_YORK, "UTC"):
        with configured(spark, {"spark.sql.session.timeZone": zone}):
            pairs = th.join(
                {"a": trades, "b": quotes}, on="a.seen[0] <=> a.ts AND b.day.at < b.ts", within="45 m"
            )
            kinds = dict(pairs.select("a.ts", "a.seen", "b.day").dtypes)
            assert kinds == {
                "ts": "timestamp_ntz",
                "seen": "array<timestamp_ntz>",
                "day": "struct<at:timestamp_ntz>",
            }
            found = pairs.select("a.id", "b.id", "a.ts", "b.day.at", "result_time").collect()
            assert sorted(map(tuple, found)) == [
                (0, 0, clocks[0], clocks[1], clocks[0]),
                (1, 2, clocks[1], clocks[1], clocks[2]),
                (2, 2, clocks[2], clocks[1], clocks[2]),
            ]
    empty = th.join({"a": trades.head(0), "b": quotes.slice(0, 0)}, on="a.id = b.id", within="1 m")
    assert empty.select("result_time").dtypes == [("result_time", "timestamp_ntz")]


@pytest.mark.slow
def test_nanoseconds_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """A declared TIMESTAMP ended the first epoch with an error of Spark. BIGINT reads them as they are."""
    folder, nanos = tmp_path / "ticks", [1_700_000_000_000_000_001, 1_700_000_000_000_000_999]
    folder.mkdir()
    ticks = pa.table({"id": pa.array([1, 2], pa.int32()), "ns": pa.array(nanos, pa.timestamp("ns"))})
    pq.write_table(ticks, folder / "1.parquet")
    cut = spark.readStream.schema("id INT, ns TIMESTAMP").parquet(str(folder)).withWatermark("ns", "1 second")
    with pytest.raises(StreamingQueryException) as refused:
        outcome(th.join({"a": cut, "b": cut}, on="a.id < b.id", within="1 s"), ["a.id"], tmp_path)
    error = unwrap_error(refused.value)
    assert error is not None
    assert error.condition == "FILE_TYPE"
    assert 'th.from_nanos("ns")' in str(error)
    whole = spark.readStream.schema("id INT, ns BIGINT").parquet(str(folder))
    marked = whole.withColumn("ts", th.from_nanos("ns")).withWatermark("ts", "1 second")
    pairs = th.join({"a": marked, "b": marked}, on="b.ns - a.ns = 998", within="1 s")
    assert outcome(pairs, ["a.id", "b.id"], tmp_path).rows == {(1, 2): 1}


def test_times_with_and_without_a_zone_are_not_mixed(spark: SparkSession) -> None:
    local = pd.DataFrame({"id": [1], "ts": [datetime(2026, 1, 5, 9)]})
    with pytest.raises(th.QueryError, match=r"EVENT_TIME_TYPES.*a\[\"ts\"\].dt.tz_localize\(\"UTC\"\)"):
        th.join({"a": local, "b": frame(spark, "b").select("id", "ts")}, on="a.id = b.id", within="1 m")
    aware = local.assign(ts=local["ts"].dt.tz_localize("UTC"))
    joined = th.join({"a": aware, "b": frame(spark, "b").select("id", "ts")}, on="a.id = b.id", within="1 m")
    assert joined.select("a.ts").dtypes == [("ts", "timestamp")]
