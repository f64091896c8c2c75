"""SplitJoin on Spark: count windows and ordered results are a sequential replay of what arrived."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

import thetastream as th
from tests.support import oracle
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.core.errors import QueryError
from thetastream.engine.order import Order

START = datetime(2024, 5, 1, tzinfo=UTC)
DELAY_S = 5


def make_rows(rng, n_rows):
    """Mostly in order, some of it late; NULLs in every column that a condition reads."""
    rows = []
    for n in range(n_rows):
        time = n // 3 + rng.randint(-4, 4) - (60 if n and n % 41 == 0 else 0)
        value = rng.randint(0, 30) if rng.random() > 0.1 else None
        rows.append(
            {"id": n, "v": value, "g": rng.choice(["x", "y", None]), "t": time + 100, "a": [n] * (n % 3)}
        )
    return rows


def frame_of(spark, rows):
    values = [(row["id"], row["v"], row["g"], START + timedelta(seconds=row["t"]), row["a"]) for row in rows]
    return spark.createDataFrame(values, "id INT, v INT, g STRING, ts TIMESTAMP, a ARRAY<INT>")


def cut(rng, n_rows, n_epochs):
    cuts = sorted(rng.sample(range(1, n_rows), n_epochs - 1))
    return [list(range(a, b)) for a, b in zip([0, *cuts], [*cuts, n_rows], strict=True)]


def band(a, b):
    return a["v"] is not None and b["v"] is not None and abs(a["v"] - b["v"]) <= 3


def same_and_less(a, b):
    return a["g"] is not None and a["g"] == b["g"] and None not in (a["v"], b["v"]) and a["v"] < b["v"]


def filtered(a, b):
    """One-sided conjuncts: rows that fail them are of the last n all the same."""
    return a["v"] is not None and a["v"] % 2 == 0 and b["g"] == "x"


CONDITIONS = {
    "abs(a.v - b.v) <= 3": band,
    "a.g = b.g AND a.v < b.v": same_and_less,
    "a.v % 2 = 0 AND b.g = 'x' AND length(concat(a.g, b.g)) IS NOT NULL": lambda a, b: (
        filtered(a, b) and a["g"] is not None
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "within", "cores", "seed", "columns"),
    [
        ("abs(a.v - b.v) <= 3", th.Rows(7), None, 1, ["a.id", "b.id"]),
        (list(CONDITIONS)[1], {"b": th.Rows(5), "A": th.Rows(40)}, 3, 2, ["a.id", "b.id", "a.a", "b.a"]),
        (list(CONDITIONS)[2], {"a": th.Rows(1), "b": th.Rows(20)}, 2, 3, ["a.id", "b.id"]),
    ],
)  # fmt: skip
def test_count_windows_of_streams(spark, tmp_path, text, within, cores, seed, columns):
    rng = random.Random(seed)
    rows = {alias: make_rows(rng, 150) for alias in "ab"}
    epochs = {alias: cut(rng, 150, 4) for alias in "ab"}
    streams = {}
    for alias in "ab":
        frame = frame_of(spark, rows[alias]).drop(*([] if len(columns) > 2 else ["a"]))
        streams[alias] = replay(frame, epochs[alias], tmp_path).withWatermark("ts", f"{DELAY_S} seconds")
    model = None if cores is None else th.Split(cores)
    kept = [F.col(name).cast("string" if name.endswith(".a") else "int") for name in columns]
    found = outcome(th.join(streams, on=text, within=within, model=model), kept, tmp_path)
    timely = timely_epochs(rows, epochs, found)
    counts = (40, 5) if isinstance(within, dict) and "A" in within else (1, 20) if cores else (7, 7)
    meetings = list(oracle.replay(CONDITIONS[text], timely, counts, "t"))
    assert len(meetings) > 100
    assert Counter(row[:2] for row in found.rows.elements()) == Counter((m.left, m.right) for m in meetings)
    if len(columns) > 2:
        assert all((a, b) == (str([i] * (i % 3)), str([j] * (j % 3))) for i, j, a, b in found.rows)
    late = 300 - sum(len(rows) for epoch in timely for rows in epoch)
    assert sum(epoch["late"] for epoch in found.metrics) == late > 0
    assert sum(epoch["left"] + epoch["right"] for epoch in found.metrics) == 300 - late


def timely_epochs(rows, epochs, found):
    """Per epoch the rows of both streams that were not late."""
    timely = []
    for number in range(4):
        watermark = found.late_ms(number) / 1000 - START.timestamp()
        timely.append(
            [
                [rows[alias][n] for n in epochs[alias][number] if rows[alias][n]["t"] > watermark]
                for alias in "ab"
            ]
        )
    return timely


class Crash(Exception):
    """On purpose."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "within"),
    [("strict", th.Rows(30)), (10, "20 seconds"), ("inner 8", th.Rows(30))],
    ids=["rows", "time", "inner"],
)
def test_order_is_kept_over_crashes_and_restarts(spark, tmp_path, order, within):
    rng = random.Random(4)
    rows = {alias: make_rows(rng, 120) for alias in "ab"}
    epochs = {alias: cut(rng, 120, 4) for alias in "ab"}
    streams = {
        alias: replay(frame_of(spark, rows[alias]), epochs[alias], tmp_path).withWatermark("ts", "1 day")
        for alias in "ab"
    }
    pairs = th.join(
        streams, on="abs(a.v - b.v) <= 3", within=within, model=th.Split(3), order=order, punctuations=True
    ).select("a.id", "b.id", "arrival.*")
    collected: dict[int, list] = {}
    crashes = {1, 3}

    def collect(batch, epoch):
        rows = [tuple(row) for row in batch.collect()]
        assert collected.setdefault(epoch, rows) == rows  # an epoch that is run again repeats itself
        if epoch in crashes:
            crashes.remove(epoch)
            raise Crash

    def run():
        query = (
            pairs.writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    for _ in range(2):
        with pytest.raises(Exception, match="Crash"):
            run()
    run()
    by_epoch = [[[rows[alias][n] for n in epochs[alias][e]] for alias in "ab"] for e in range(4)]
    counts, near = ((None, None), 20) if isinstance(within, str) else ((within.n, within.n), 1000)
    if isinstance(within, str):  # what a filter takes away before the join does not arrive
        by_epoch = [[[row for row in mine if row["v"] is not None] for mine in both] for both in by_epoch]
    meetings = list(
        oracle.replay(lambda a, b: band(a, b) and abs(a["t"] - b["t"]) <= near, by_epoch, counts, "t")
    )
    answer = [row for epoch in sorted(collected) for row in collected[epoch]]
    punctuations = [row for row in answer if row[4] is None]
    results = [row for row in answer if row[4] is not None]
    interval = order if isinstance(order, int) else 1
    aliases = arriving(by_epoch)
    assert [row[2] for row in punctuations] == Order(interval).list_punctuations(0, len(aliases)).tolist()
    assert {row[:2] + row[4:] for row in punctuations} == {(None, None, None)}
    assert [row[3] for row in punctuations] == [aliases[row[2]] for row in punctuations]
    wanted = [(m.left, m.right, m.arrival, m.stored) for m in meetings]
    assert len(wanted) > 300
    if order == "strict":
        assert [(a, b, number, stored) for a, b, number, _, stored in results] == wanted
    if order == "inner 8":
        steps = [(number, stored // 8) for *_, number, _, stored in results]
        assert steps == sorted(steps)
    assert [row[3] for row in results] == [aliases[row[2]] for row in results]
    assert Counter((a, b, number, stored) for a, b, number, _, stored in results) == Counter(wanted)
    passed = -1
    for _, _, number, _, stored in answer:
        assert number > passed
        passed = number if stored is None else passed


def arriving(epochs):
    """The alias of every arrival."""
    return [
        alias
        for rows in epochs
        for _, alias in sorted(
            (row["t"], alias) for alias, mine in zip("ab", rows, strict=True) for row in mine
        )
    ]


def test_batches_and_unordered_epochs_agree(spark):
    rng = random.Random(6)
    rows = {alias: make_rows(rng, 90) for alias in "ab"}
    frames = {alias: frame_of(spark, rows[alias]) for alias in "ab"}
    pairs = th.join(frames, on="abs(a.v - b.v) <= 3", within=th.Rows(9), order="outer", event_time="ts")
    found = [tuple(row) for row in pairs.select("a.id", "b.id", "arrival.number", "arrival.stored").collect()]
    wanted = list(oracle.replay(band, [[rows["a"], rows["b"]]], (9, 9), "t"))
    assert Counter(found) == Counter(map(tuple, wanted))
    assert [row[2] for row in found] == [meeting.arrival for meeting in wanted]


def test_sql_counts_rows(spark):
    rng = random.Random(7)
    rows = {alias: make_rows(rng, 60) for alias in "ab"}
    frames = {alias: frame_of(spark, rows[alias]) for alias in "ab"}
    text = (
        "SELECT ONLINE a.g, count(*) AS n FROM a, b WHERE abs(a.v - b.v) <= 3 AND a.id > 5 "
        "WITHIN 9 ROWS GROUP BY a.g"
    )
    found = {row.g: row.n for row in th.sql(spark, text, streams=frames, event_time="ts").collect()}
    meetings = oracle.replay(lambda a, b: band(a, b) and a["id"] > 5, [[rows["a"], rows["b"]]], (9, 9), "t")
    assert found == Counter(rows["a"][meeting.left]["g"] for meeting in meetings)


@pytest.mark.parametrize(
    ("settings", "condition"),
    [
        ({"within": th.Rows(3), "model": th.Biclique(2)}, "SPLIT_NEEDED"),
        ({"order": "outer", "model": th.Matrix(2, 2)}, "SPLIT_NEEDED"),
        ({"order": "inner"}, "BAD_ORDER"),
        ({"order": 0}, "BAD_ORDER"),
        ({"punctuations": True}, "BAD_ORDER"),
        ({"order": 5, "punctuations": "yes"}, "BAD_VALUE"),
        ({"within": {"a": th.Rows(3), "b": "5 seconds"}}, "MIXED_WINDOWS"),
        ({"within": {"a": th.Rows(3)}}, "WINDOW_MISSING"),
        ({"within": th.Rows(3), "archive_period": "1 second"}, "ARCHIVE_PERIOD"),
        ({"order": 2**63}, "BAD_ORDER"),
        ({"within": th.Rows(3), "event_time": {"a": "nowhere"}}, "UNKNOWN_COLUMN"),
    ],
)
def test_mistakes_are_named(spark, settings, condition):
    frame = frame_of(spark, make_rows(random.Random(0), 3))
    with pytest.raises(QueryError) as refused:
        th.plan({"a": frame, "b": frame}, on="a.v < b.v", **settings)
    assert refused.value.condition == condition


def made(spark, *selects):
    return spark.sql(" UNION ALL ".join(f"SELECT {select}" for select in selects))


@pytest.mark.parametrize(
    "on",
    [
        "a.y <> 0 AND a.x / a.y > 1 AND a.x / a.y < b.z",
        "a.y <> 0 AND abs(a.x / a.y - b.z) <= 5 AND a.x / a.y >= 1",
        "a.s RLIKE '^[0-9]+$' AND CAST(a.s AS INT) > 1 AND CAST(a.s AS INT) < b.z",
    ],
)
def test_a_filter_guards_the_ones_behind_it(spark, on):
    """What they have in common may raise where the guard is not true."""
    a = made(
        spark, "1 id, 10 x, 2 y, '5' s, timestamp_seconds(1) ts", "2, 1, 0, 'none', timestamp_seconds(2)"
    )
    b = made(spark, "7 id, 6 z, timestamp_seconds(3) ts")
    found = th.join({"a": a, "b": b}, on=on, within=th.Rows(5)).select("a.id", "b.id").collect()
    assert [tuple(row) for row in found] == [(1, 7)]


@pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")
def test_an_epoch_is_replayed_by_both_event_times_or_by_none(spark):
    spaced = "SELECT id, timestamp_seconds(id * 10 + {}) AS ts FROM range(3)"
    a, b = (spark.sql(spaced.format(offset)) for offset in (0, 5))
    two_stamps = a.selectExpr("*", "timestamp_seconds(0) AS made")
    without = a.drop("ts")

    def ids(first, **settings):
        joined = th.join({"a": first, "b": b}, on="true", within=th.Rows(1), **settings)
        return sorted(tuple(row) for row in joined.select("a.id", "b.id").collect())

    in_turn = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    assert ids(a) == ids(two_stamps, event_time="ts") == in_turn
    for first in (two_stamps, without):
        with pytest.raises(QueryError, match=r"NO_WATERMARK.*order of arrival"):
            ids(first)
    with pytest.raises(QueryError, match="EVENT_TIME_TYPES"):
        ids(a.selectExpr("id", "CAST(ts AS TIMESTAMP_NTZ) AS ts"))
    neither = th.join({"a": without, "b": without}, on="true", within=th.Rows(1))
    assert sorted(tuple(row) for row in neither.select("a.id", "b.id").collect()) == [(2, 0), (2, 1), (2, 2)]
    ordered = th.join({"a": a, "b": b}, on="a.id = b.id", order="strict").select("arrival.number")
    assert [row.number for row in ordered.collect()] == [1, 3, 5]


def test_groups_and_statements_have_no_order_of_arrival(spark):
    a = spark.range(6).selectExpr("id", "timestamp_seconds(id) AS ts")
    join = {"on": "a.id <= b.id AND a.id * b.id >= 0", "within": "2 seconds", "aggs": {"n": "count(*)"}}
    with configured(spark, {"spark.thetastream.order": "outer"}):
        assert th.aggregate({"a": a, "b": a}, **join).collect() == [(15,)]
    with pytest.raises(QueryError, match=r"UNKNOWN_SETTING.*'order'"):
        th.aggregate({"a": a, "b": a}, order="outer", **join)


def test_a_statement_has_the_order_of_its_join(spark):
    rng = random.Random(8)
    frames = {alias: frame_of(spark, make_rows(rng, 40)) for alias in "ab"}
    asked = {"on": "abs(a.v - b.v) <= 3", "within": "9 seconds", "event_time": "ts"}
    wanted = th.join(frames, order=3, punctuations=True, **asked).select("a.id", "b.id", "arrival.number")
    text = (
        "SELECT a.id, b.id, {} FROM a, b WHERE abs(a.v - b.v) <= 3 WITHIN 9 seconds "
        "OPTIONS (order = 3, punctuations = true)"
    )
    found = th.sql(spark, text.format("arrival.number"), streams=frames, event_time="ts")
    rows = [tuple(row) for row in found.collect()]
    assert rows == [tuple(row) for row in wanted.collect()]
    assert any(row[0] is None for row in rows)
    with pytest.raises(QueryError, match=r"UNKNOWN_COLUMN.*'numbr'"):
        th.sql(spark, text.format("arrival.numbr"), streams=frames, event_time="ts")
    with pytest.raises(QueryError, match=r"UNKNOWN_COLUMN.*arrival"):
        th.sql(spark, text.format("arrival.number").partition(" OPTIONS")[0], streams=frames, event_time="ts")
    with configured(spark, {"spark.thetastream.order": "outer"}):
        left = th.sql(spark, "SELECT a.id FROM a LEFT JOIN b ON a.v = b.v WITHIN 1 second", frames)
        assert left.columns == ["id"]


def test_a_pipeline_has_no_order_of_arrival(spark):
    frame = frame_of(spark, make_rows(random.Random(0), 3))
    streams = {"a": frame, "b": frame, "c": frame}
    with pytest.raises(th.ThetastreamError, match=r"COUNT_WINDOW.*th.Ring"):
        th.plan(streams, on="a.v < b.v AND b.v < c.v", within=th.Rows(3), model=th.Split(2))
    with pytest.raises(QueryError, match="arrival"):
        th.plan({"a": frame, "arrival": frame}, on="a.v < arrival.v", order="outer")


def test_explain_says_what_the_order_costs(spark):
    frame = frame_of(spark, make_rows(random.Random(0), 3))
    text = th.plan({"a": frame, "b": frame}, on="a.v < b.v", within=th.Rows(30), order=100).explain()
    assert "within a 30 tuples, b 30 tuples" in text
    assert "until 30 later ones have arrived" in text
    assert "any order inside 100 arrivals; one task gathers" in text
    assert "split: 2 core(s) get every tuple" in text
