"""Groups over three streams and more: units of the last join fold, as Spark aggregates the results.

Answers are compared with Spark's aggregates over pairs, and counts with a nested loop.
"""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

import thetastream as th
from tests.support.groups import (
    SCHEMA,
    answer_twice,
    draw_rows,
    explain_groups,
    list_groups,
    read_latest,
)
from tests.support.streams import read_watermarks, replay


@pytest.fixture(scope="module")
def tables(spark):
    return {
        name: spark.createDataFrame(draw_rows(60, shift), SCHEMA)
        for shift, name in enumerate(["r", "s", "t"])
    }


JOIN = "FROM r, s, t WHERE abs(r.id - s.id) < 5 AND s.k = t.k AND r.id % 5 <= t.id % 4 WITHIN 40 seconds"
FOLDED = [
    "SELECT ONLINE r.k, count(*) AS s, count(t.a), sum(s.n), avg(t.d), min(r.f), max(t.x)"
    " {join} GROUP BY r.k",
    "SELECT ONLINE count(*) AS n, sum(r.x + s.x), min(r.d * t.id - s.id), avg(abs(s.n - t.n)) {join}",
    "SELECT ONLINE upper(r.k), t.b AS b, stddev(s.id - t.id), sum(s.d) FILTER (WHERE r.x <= t.x) AS z"
    " {join} GROUP BY upper(r.k), t.b HAVING count(*) > 3",
    "SELECT ONLINE s.id + t.id AS both, count(*), sum(r.n) {join} GROUP BY s.id + t.id",
    "SELECT ONLINE window.start, t.day, count(*), max(s.ts)"
    " {join} GROUP BY window(result_time, '20 seconds', '5 seconds'), t.day",
    "SELECT ONLINE t.k, count(*), sum(r.d) FROM r, s, t WHERE r.id = s.id AND (r.x < t.x OR s.n = t.n)"
    " AND lower(t.k) = lower(s.k) WITHIN 40 seconds GROUP BY t.k",
    "SELECT ONLINE u.b, count(*), sum(r.n - u.n), min(t.f) FROM r, s, t, s AS u WHERE r.id = s.id"
    " AND abs(s.id - t.id) <= 2 AND u.k = r.k AND u.x > t.x WITHIN 30 seconds GROUP BY u.b",
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", FOLDED)
def test_views_and_pairs_give_the_same_groups(spark, tables, text, monkeypatch):
    text = text.format(join=JOIN)
    assert explain_groups(spark, tables, text).startswith("units fold")
    views, pairs = answer_twice(spark, tables, text, monkeypatch)
    wanted = list_groups(pairs)
    assert list_groups(views) == wanted
    assert wanted


@pytest.mark.slow
def test_columns_that_differ_by_case_are_two(spark, tables, monkeypatch):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        cased = {
            "r": tables["r"].withColumn("K", F.upper("k")),
            "s": tables["s"],
            "t": tables["t"]
            .withColumn("K", F.lit(0))
            .withColumn("Ab", F.col("id"))
            .withColumn("aB", -F.col("id")),
        }
        text = (
            f"SELECT ONLINE r.K, r.k AS low, count(*), max(t.Ab), sum(t.aB - r.id) {JOIN} GROUP BY r.k, r.K"
        )
        assert explain_groups(spark, cased, text).startswith("units fold")
        views, pairs = answer_twice(spark, cased, text, monkeypatch)
        assert list_groups(views) == list_groups(pairs)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT ONLINE r.k, skewness(t.x) {join} GROUP BY r.k", "is no group"),
        ("SELECT ONLINE r.k, sum(r.n / t.n) {join} GROUP BY r.k", "reads both streams"),
        ("SELECT ONLINE r.k, count(t) {join} GROUP BY r.k", "stands for a whole stream"),
        ("SELECT ONLINE r.k, count(*) {join} AND pmod(r.n + t.n, 7) > 2 GROUP BY r.k", "behind the units"),
    ],
)
def test_what_is_not_folded_says_why(spark, tables, text, reason):
    where, _, within = JOIN.partition(" WITHIN ")
    before, _, after = text.partition(" GROUP BY ")
    how = explain_groups(spark, tables, f"{before.format(join=where)} WITHIN {within} GROUP BY {after}")
    assert how.startswith("pairs leave the units")
    assert reason in how


# Windows, compared with the nested loop

START = datetime(2024, 3, 1, tzinfo=UTC)
SMALL = "id int, x int, ts timestamp"


def draw_small(seed, n):
    chance = random.Random(seed)
    return [
        (
            number,
            chance.choice([None, *range(5)]),
            None if chance.random() < 0.1 else START + timedelta(seconds=chance.randrange(n // 2)),
        )
        for number in range(n)
    ]


CONDITIONS = {
    "a.x > b.x AND b.x + 1 = c.x": lambda a, b, c: None not in (a, b, c) and a > b and b + 1 == c,
    "a.x + b.x = c.x": lambda a, b, c: None not in (a, b, c) and a + b == c,
    "c.x BETWEEN a.x AND b.x": lambda a, b, c: None not in (a, b, c) and a <= c <= b,
    "a.x = c.x": lambda a, b, c: None not in (a, c) and a == c,
}
AGGREGATES = {
    "n": "count(*)",
    "total": "sum(a.id * c.id - b.id)",
    "late": "min(c.id) FILTER (WHERE a.x > c.x)",
}


def count_groups(inputs, holds, seconds):
    """Answer ``AGGREGATES`` by a nested loop, as rows: each value of ``b.x`` and its aggregates."""
    groups: dict = {}
    for a, b, c in itertools.product(*inputs.values()):
        if any(row[2] is None for row in (a, b, c)) or not holds(a[1], b[1], c[1]):
            continue
        latest = max(row[2] for row in (a, b, c))
        spans = zip((a, b, c), "abc", strict=True)
        if all(latest - row[2] <= timedelta(seconds=seconds[alias]) for row, alias in spans):
            n, total, least = groups.get(b[1], (0, 0, None))
            if None not in (a[1], c[1]) and a[1] > c[1]:
                least = c[0] if least is None else min(least, c[0])
            groups[b[1]] = n + 1, total + a[0] * c[0] - b[0], least
    return {(key, *values) for key, values in groups.items()}


@pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(8))
def test_each_stream_has_its_own_window(spark, seed):
    chance = random.Random(seed)
    rows = {alias: draw_small(f"{seed} {alias}", 30) for alias in "abc"}
    seconds = {alias: chance.randrange(10) for alias in "abc"}
    on = list(CONDITIONS)[seed % 4]
    found = th.aggregate(
        {alias: spark.createDataFrame(mine, SMALL) for alias, mine in rows.items()},
        on,
        {alias: f"{span} seconds" for alias, span in seconds.items()},
        group_by="b.x",
        aggs=AGGREGATES,
    )
    assert {tuple(row) for row in found.collect()} == count_groups(rows, CONDITIONS[on], seconds)


@pytest.mark.slow
@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_windows_are_elapsed_time_over_a_change_of_clocks(spark, type_, monkeypatch):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        stamps = {"a": "2024-03-30 11:30:00", "b": "2024-03-30 12:00:00", "c": "2024-03-31 12:00:00"}
        frames = {
            alias: spark.sql(f"SELECT 1 AS id, CAST('{text}' AS {type_}) AS ts")
            for alias, text in stamps.items()
        }
        counts = []
        for within in ("1 day", "23 hours 40 minutes", "23 hours"):
            text = (
                f"SELECT ONLINE count(*) AS n FROM a, b, c WHERE a.id = b.id AND b.id = c.id WITHIN {within}"
            )
            assert explain_groups(spark, frames, text).startswith("units fold")
            views, pairs = answer_twice(spark, frames, text, monkeypatch)
            ((n,),) = views.collect()
            assert pairs.collect() == [(n,)]
            counts.append(n)
        # From a to c, 23.5 hours pass, and local clocks show 24.5 hours.
        assert counts == ([1, 1, 0] if type_ == "TIMESTAMP" else [0, 0, 0])
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.slow
def test_windows_end_with_time(spark, monkeypatch):
    frames = {
        alias: spark.range(4).selectExpr("id", f"timestamp_micros({2**63 - 1} - {n} - 700000 * id) AS ts")
        for n, alias in enumerate("abc")
    }
    text = "SELECT ONLINE count(*) AS n FROM a, b, c WHERE a.id <= b.id AND b.id <= c.id WITHIN 1 second"
    assert explain_groups(spark, frames, text).startswith("units fold")
    views, pairs = answer_twice(spark, frames, text, monkeypatch)
    assert views.collect() == pairs.collect() == [(10,)]


# Streams

SECONDS = {"a": 6, "b": 3, "c": 9}
WITHIN = {alias: f"{span} seconds" for alias, span in SECONDS.items()}


def cut(alias, rows, chance):
    """Cut the rows with a time into four epochs, in disorder."""
    ordered = sorted(
        (row for row in rows if row[2] is not None),
        key=lambda row: row[2] + timedelta(seconds=chance.uniform(0, 25)),
    )
    ends = [len(ordered) * part // 4 for part in range(5)]
    return [ordered[low:high] for low, high in itertools.pairwise(ends)]


@pytest.mark.slow
@pytest.mark.usefixtures("only_epochs_with_rows")
@pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")
@pytest.mark.parametrize(("seed", "on"), [*enumerate(CONDITIONS)])
def test_streams_with_late_tuples_and_a_restart(spark, tmp_path, on, seed):
    chance = random.Random(seed)
    epochs = {alias: cut(alias, draw_small(f"{seed} {alias}", 40), chance) for alias in "abc"}
    streams = {}
    for alias, parts in epochs.items():
        frame = spark.createDataFrame([row for part in parts for row in part], SMALL)
        ids = [[row[0] for row in part] for part in parts]
        streams[alias] = replay(frame, ids, tmp_path).withWatermark("ts", "1 second")
    hidden = [file for folder in tmp_path.glob("stream-*") for file in sorted(folder.iterdir())[2:]]
    for file in hidden:
        file.rename(file.with_name(f"_{file.name}"))
    found, watermarks = {}, Counter()
    for _ in range(2):
        frame = th.aggregate(streams, on, WITHIN, group_by="b.x", aggs=AGGREGATES, model=th.Biclique((2, 1)))
        groups, query = read_latest(frame, "update", tmp_path / "checkpoint", 1)
        found.update(groups)
        watermarks.update(dict(read_watermarks(query)))
        for file in hidden:
            if not file.exists():
                file.with_name(f"_{file.name}").rename(file)
    inputs = {
        alias: [
            row
            for number, part in enumerate(parts)
            for row in part
            if row[2].timestamp() * 1000 > watermarks[number - 1]
        ]
        for alias, parts in epochs.items()
    }
    assert sum(map(len, inputs.values())) < sum(len(part) for parts in epochs.values() for part in parts)
    wanted = count_groups(inputs, CONDITIONS[on], SECONDS)
    assert set(found.values()) == wanted
    assert wanted


@pytest.mark.slow
@pytest.mark.usefixtures("only_epochs_with_rows")
def test_a_checkpoint_of_other_windows_is_refused(spark, tmp_path):
    frame = spark.createDataFrame([row for row in draw_small("any", 20) if row[2]], SMALL)
    ids = [row.id for row in frame.collect()]
    streams = {
        alias: replay(frame, [ids], tmp_path, by_key=True).withWatermark("ts", "1 second") for alias in "abc"
    }

    def start(**seconds):
        within = {alias: f"{span} seconds" for alias, span in (SECONDS | seconds).items()}
        groups = th.aggregate(streams, "a.x = b.x AND b.x = c.x", within, aggs={"n": "count(*)"})
        read_latest(groups, "update", tmp_path / "checkpoint", 0)

    start()
    for folder in tmp_path.glob("stream-*"):  # This is input for the units.
        (folder / "later.csv").write_text("7\n")
    # The first two streams are a and b. A join of two streams alone would continue with a narrower window.
    with pytest.raises(Exception, match=r"STATE_OF_ANOTHER_QUERY.*condition of folded matches"):
        start(a=5)


@pytest.mark.slow
def test_windows_of_the_result_time_leave_once(spark, tables, tmp_path):
    ids = [range(n, n + 15) for n in range(0, 60, 15)]
    streams = {
        name: replay(frame.drop("a"), ids, tmp_path).withWatermark("ts", "10 seconds")
        for name, frame in tables.items()
    }
    query = {
        "on": "abs(r.id - s.id) < 5 AND s.k = t.k",
        "within": {"r": "30 seconds", "s": "12 seconds", "t": "20 seconds"},
        "group_by": ["window(result_time, '30 seconds')", "t.b"],
        "aggs": {"n": "count(*)", "d": "sum(r.d - t.d)"},
    }
    found, _ = read_latest(th.aggregate(streams, **query), "append", tmp_path / "checkpoint", 2)
    wanted = th.aggregate(tables, **query, event_time="ts").collect()
    complete = [tuple(row) for row in wanted if tuple(row[:2]) in found]
    assert sorted(map(repr, found.values())) == sorted(map(repr, complete))
    assert len(complete) > len(wanted) // 2
