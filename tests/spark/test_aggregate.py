"""Groups: views are compared with a nested loop, folded statements with pairs that Spark aggregates."""

import sys

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
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
from tests.support.streams import replay
from thetastream.aggregates import distinct
from thetastream.aggregates.distinct import sketch_hashes

# Statements over batch DataFrames


@pytest.fixture(scope="module")
def tables(spark):
    return {name: spark.createDataFrame(draw_rows(120, shift), SCHEMA) for shift, name in enumerate("rs")}


JOIN = "FROM r, s WHERE abs(r.id - s.id) < 7 AND r.id % 5 <= s.id % 4 WITHIN 1 minute"

WIDER = JOIN.replace(", s", ", (SELECT id, ts, CAST(d AS DECIMAL(28,10)) AS wider FROM s) AS s")


FOLDED = [
    "SELECT ONLINE r.k, count(*), count(s.a), sum(s.n), avg(s.n), sum(s.d), avg(s.d), avg(s.f)"
    " {join} GROUP BY r.k",
    "SELECT ONLINE count(*) AS n {join}",
    "SELECT ONLINE s.k, min(r.f), max(r.f), min(r.x), max(s.k), min(s.day), max(r.ts), min(s.b)"
    " {join} GROUP BY s.k",
    "SELECT ONLINE r.k AS a, s.b, sum(s.n) - min(r.n) AS z, max(r.wide) {join} GROUP BY r.k, s.b",
    "SELECT ONLINE R.ID % 3 AS g, 1 + sum(s.d) / count(*) FILTER (WHERE s.b) AS z {join} GROUP BY r.id % 3",
    "SELECT ONLINE upper(r.k), sum(s.d * 2) FILTER (WHERE s.id > 9) AS x, avg(-s.x)"
    " {join} GROUP BY upper(r.k)",
    "SELECT ONLINE r.f, count(*) {join} GROUP BY r.f HAVING count(s.x) > 3 AND r.f IS NOT NULL",
    "SELECT ONLINE r.day, window.start, sum(s.n)"
    " {join} GROUP BY window(result_time, '90 seconds', '1 minute'), r.day",
    "SELECT ONLINE window, count(*)"
    " {join} GROUP BY window(result_time, '7 seconds', '7 seconds', '2 seconds')",
    "SELECT ONLINE r.k, count(*) AS many, round(avg(s.d), 1) AS mean"
    " {join} GROUP BY r.k HAVING many > 3 AND mean < 1e9",
    "SELECT ONLINE r.id % 3 AS g, sum(s.n % 7) AS z {join} GROUP BY r.id % 3",
    "SELECT ONLINE r.d, r.k, sum(1), min(5) {join} GROUP BY r.k, r.d",
    "SELECT ONLINE r.k FROM r, s WHERE r.id = s.id AND r.id < 0 WITHIN 1 minute GROUP BY r.k",
    "SELECT ONLINE count(*), sum(r.n), avg(r.d) FROM r, s WHERE r.id = s.id AND r.id < 0 WITHIN 1 minute",
    "SELECT ONLINE r.k, stddev(s.d), std(s.n % 7), stddev_samp(s.wide), stddev_pop(s.f), variance(r.x),"
    " var_samp(s.id) FILTER (WHERE s.b), var_pop(s.d) + 1 {join} GROUP BY r.k",
    "SELECT ONLINE r.id, s.id, stddev(s.d), var_samp(s.n), var_pop(s.d), stddev_pop(s.x), count(s.d)"
    " {join} GROUP BY r.id, s.id",
    "SELECT ONLINE var_pop(s.d), stddev(s.id), stddev(1) {join}",
    "SELECT ONLINE stddev(r.id), var_pop(r.id) FROM r, s WHERE r.id = s.id AND r.id < 0 WITHIN 1 minute",
    "SELECT ONLINE window.start, stddev(s.id) {join} GROUP BY window(result_time, '90 seconds', '1 minute')",
    "SELECT ONLINE r.k, sum(r.x - s.x), avg(r.n - s.n), min(r.f * s.x), max(abs(s.x - 2 * r.x)),"
    " count(r.x + s.n) {join} GROUP BY r.k",
    "SELECT ONLINE sum(r.d * s.id), avg(s.n - r.id) FILTER (WHERE s.b), max((r.d - s.d) * -s.d),"
    " min(s.id - r.d) {join}",
    "SELECT ONLINE s.b, stddev(r.id - s.id), var_pop(abs(r.x) * s.f), sum(s.d) FILTER (WHERE r.b),"
    " min(s.f - r.f) {join} GROUP BY s.b",
    "SELECT ONLINE r.b, count(*) FILTER (WHERE r.id > s.id), sum(s.n) FILTER (WHERE r.x <= s.x) AS x,"
    " min(r.k) FILTER (WHERE r.k <> s.k) AS k, max(s.id) FILTER (WHERE r.f = s.x) AS f {join} GROUP BY r.b",
    "SELECT ONLINE count(*) FILTER (WHERE abs(r.x - s.x) < 2.5 OR r.k = 'u') AS near,"
    " stddev(s.id) FILTER (WHERE NOT (r.d * s.id > s.wide AND s.b)) AS d,"
    " sum(r.id - s.id) FILTER (WHERE s.day >= r.day AND r.n != s.n) AS n,"
    " count(s.k) FILTER (WHERE r.id BETWEEN s.id - 2 AND s.id + 0.5) AS middle {join}",
    "SELECT ONLINE s.b, sum(r.wide), sum(-s.wide) FILTER (WHERE r.x < s.x), sum(r.wide - s.id)"
    " {join} GROUP BY s.b",
    "SELECT ONLINE r.k, count(*), sum(s.d) FROM r, s WHERE r.id < s.id AND r.id + s.n % 2 > 7"
    " AND (r.x = s.x OR r.k <> s.k) WITHIN 1 minute GROUP BY r.k",
    "SELECT ONLINE s.b, count(*), sum(r.d - s.d) FROM r, s WHERE lower(r.k) = lower(s.k) AND r.wide < s.wide"
    " AND abs(r.f - s.x) <= 2.25 WITHIN 1 minute GROUP BY s.b",
]


@pytest.mark.sampled(54)
@pytest.mark.parametrize("text", FOLDED)
def test_views_and_pairs_give_the_same_groups(spark, tables, text, monkeypatch):
    text = text.format(join=JOIN)
    assert "units fold" in explain_groups(spark, tables, text)
    views, pairs = answer_twice(spark, tables, text, monkeypatch)
    found, wanted = list_groups(views), list_groups(pairs)
    assert found == wanted
    assert len(wanted) > 0 or "id < 0" in text


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT ONLINE skewness(s.x) {join}", "nothing to fold"),
        ("SELECT ONLINE r.k, percentile(s.x, 0.5) {join} GROUP BY r.k", "`s`.`x` is no group"),
        ("SELECT ONLINE r.k, stddev(s.x / r.x) {join} GROUP BY r.k", "reads both streams"),
        ("SELECT ONLINE stddev(DISTINCT s.x) {join}", "is not folded"),
        ("SELECT ONLINE stddev(r.k) {join}", "add up values of type string"),
        ("SELECT ONLINE approx_count_distinct(r.a) {join}", "array<int>"),
        ("SELECT ONLINE approx_count_distinct(r.k, 0.1BD) {join}", "no plain number"),
        ("SELECT ONLINE r.k, stddev(s.d - r.d) {join} GROUP BY r.k", "of decimal(13,2)"),
        ("SELECT ONLINE r.k, sum(s.x - r.x % s.id) {join} GROUP BY r.k", "reads both streams"),
        ("SELECT ONLINE sum(s.x) FILTER (WHERE r.id IN (s.id, 7)) {join}", "reads both streams"),
        ("SELECT ONLINE count(*) FILTER (WHERE r.day < s.ts) {join}", "do not compare"),
        ("SELECT ONLINE sum(s.wide * r.wide) {join}", "of type decimal(38,"),
        ("SELECT ONLINE max(s.day - r.day) {join}", "interval day"),
        ("SELECT ONLINE max(s.d * r.x) {join}", "of decimal(12,2) and double"),
        ("SELECT ONLINE count(DISTINCT s.k) {join}", "count(DISTINCT s.k) is not folded"),
        ("SELECT ONLINE r.k, min(result_time) {join} GROUP BY r.k", "result time"),
        ("SELECT ONLINE date_trunc('hour', result_time), count(*) {join} GROUP BY 1", "the result time"),
        ("SELECT ONLINE r.k, s.k, count(*) {join} GROUP BY ROLLUP (r.k, s.k)", "not a plain expression"),
        ("SELECT ONLINE r.a, count(*) {join} GROUP BY r.a", "array<int>"),
        ("SELECT ONLINE r.id, avg(wider) {wider} GROUP BY r.id", "fewer digits"),
        ("SELECT ONLINE r.id, try_sum(r.id), count_if(true) {join} GROUP BY r.id", "is no group"),
        ("SELECT ONLINE max(s.id) OVER () AS m, r.id {join}", None),
        ("SELECT ONLINE r.k, sum(count(*)) OVER () AS m {join} GROUP BY r.k", "window function"),
        ("SELECT ONLINE r.id - (r.n) AS z, count(*) {join} GROUP BY r.id, r.n, -(r.n)", None),
        ("SELECT ONLINE max(unix_timestamp() - r.id) > 5 AS z {join}", "changes from epoch to epoch"),
        ("SELECT ONLINE sum(1 / (r.id + 1)) {join}", "may fail for a tuple that has no match"),
        ("SELECT ONLINE sum(CAST(r.k AS INT)) FILTER (WHERE r.k = 'x') > 0 AS z {join}", "may fail"),
        ("SELECT ONLINE avg(CAST(s.d AS DECIMAL(28,10))) {join}", "may fail"),
        ("SELECT ONLINE s.k, max(r.n + 0), count(*) FROM r, s WHERE length(to_json(r)) <= s.id * 5 "
         "WITHIN 1 minute GROUP BY s.k", "reads all columns of r"),
        ("SELECT ONLINE r.k, count(s) {join} GROUP BY r.k", "cannot compute"),
        ("SELECT ONLINE r.k, count(*) AS wide {join} GROUP BY r.k, r.wide HAVING wide > 3", "in HAVING"),
        ("SELECT ONLINE transform(array(1), r -> r + 1) AS z, r.n {join} GROUP BY r.n", "lambda"),
        ("SELECT ONLINE r.k, (SELECT max(id) FROM range(9)) AS z {join} GROUP BY r.k", "subquery"),
        ("SELECT ONLINE to_json(struct(r.k, count(*) AS n)) AS z {join} GROUP BY r.k", "struct names"),
        ("SELECT ONLINE to_json((r.k, count(*))) AS z {join} GROUP BY r.k", "struct names"),
        ("SELECT ONLINE sum(r.id) FILTER (WHERE r.k > 5) AS z {join}", "may fail"),
        ("SELECT ONLINE max(`element_at`(r.a, 1)) AS z {join}", "may fail"),
        ("SELECT ONLINE max(r.id / 0e1) AS z {join}", "may fail"),
        ("SELECT ONLINE 5 -(r.n), count(*) {join} GROUP BY -(r.n), r.n", None),
        ("SELECT ONLINE r.id + 1 * 2 AS z, count(*) {join} GROUP BY r.id, r.id + 1", None),
        ("SELECT ONLINE r.k, count(*) FROM r, s WHERE r.id = s.id AND pmod(r.id + s.n, 7) > 2 "
         "WITHIN 1 minute GROUP BY r.k", "evaluated behind the units"),
    ],
)  # fmt: skip
def test_what_is_not_folded_is_aggregated_from_pairs(spark, tables, text, reason, monkeypatch):
    text = text.format(
        join=JOIN, wider=JOIN.replace(", s", ", (SELECT id, ts, CAST(d AS DECIMAL(28,10)) AS wider FROM s) s")
    )
    if reason is not None:
        how = explain_groups(spark, tables, text)
        assert how.startswith("pairs leave the units")
        assert reason in how
        return  # The tests of SQL check this answer, which the same code computes.
    views, pairs = answer_twice(spark, tables, text, monkeypatch)
    found, wanted = list_groups(views), list_groups(pairs)
    assert found == wanted


@pytest.mark.slow
def test_deviations_do_not_depend_on_the_number_of_units(spark, tables):
    far = {"r": tables["r"], "s": tables["s"].withColumn("far", F.expr("1e6D + hash(id) % 1000 / 1e3D"))}
    query = {"on": "r.id != s.id", "group_by": "r.id % 2", "aggs": {"z": "var_samp(s.far)"}}
    found = [
        sorted(row.z for row in th.aggregate(far, **query, model=th.Biclique(units=units)).collect())
        for units in (1, (4, 5))
    ]
    (exact,) = far["s"].selectExpr("var_pop(far - 1e6D)").collect()
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] == pytest.approx([exact[0]] * 2, rel=0.02)


@pytest.mark.slow
def test_distinct_values_are_counted_by_sketches(spark, tables):
    numbers = {
        name: spark.range(1500).selectExpr("id", "id % 700 AS v", "timestamp_seconds(id) AS ts")
        for name in "rs"
    }
    text = """SELECT ONLINE r.id % 2 AS g, approx_count_distinct(s.v) AS a,
              approx_count_distinct(s.v, 0.01) FILTER (WHERE s.v < 300) AS b,
              approx_count_distinct(CASE WHEN s.v = -1 THEN 5 END) AS c
              FROM r, s WHERE r.id BETWEEN s.id AND s.id + 2 GROUP BY r.id % 2"""
    assert "units fold" in explain_groups(spark, numbers, text)
    for row in th.sql(spark, text, numbers, model=th.Biclique(units=3)).collect():
        assert row.a == pytest.approx(700, rel=0.15)
        assert row.b == pytest.approx(300, rel=0.03)
        assert row.c == 0
    (kinds,) = th.sql(
        spark,
        f"SELECT ONLINE approx_count_distinct(r.k), approx_count_distinct(r.f), approx_count_distinct(r.d),"
        f" approx_count_distinct(r.x), approx_count_distinct(r.day), approx_count_distinct(r.ts) {JOIN}",
        tables,
    ).collect()
    (exact,) = (
        th.join(tables, "abs(r.id - s.id) < 7 AND r.id % 5 <= s.id % 4", "1 minute")
        .selectExpr(*(f"count(DISTINCT r.{name})" for name in ("k", "f", "d", "x", "day", "ts")))
        .collect()
    )
    assert kinds[:2] == exact[:2]
    assert kinds[3:5] == exact[3:5]
    assert list(kinds) == pytest.approx(list(exact), rel=0.1)


def test_without_the_library_distinct_values_are_counted_over_pairs(spark, tables, monkeypatch):
    monkeypatch.setattr(distinct, "is_available", lambda: False)
    how = explain_groups(spark, tables, f"SELECT ONLINE approx_count_distinct(r.k) {JOIN}")
    assert "pip install 'thetastream[sketches]'" in how
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(th.ThetastreamError, match=r"worker has none; pip install"):
        sketch_hashes(pa.array([[1]]), 9)


def test_results_are_told_from_groups(spark, tables):
    for grouped in ("stddev(r.n)", "any_value(r.k) || 'x'"):
        assert explain_groups(spark, tables, f"SELECT ONLINE {grouped} AS z {JOIN}")
    for plain in ("abs(r.n)", "max(r.n) OVER ()"):
        (row,) = th.sql(spark, f"EXPLAIN SELECT ONLINE {plain} AS z {JOIN}", tables).collect()
        assert "== Aggregation ==" not in row[0]


def test_result_time_is_the_results_whatever_columns_streams_have(spark, tables, monkeypatch):
    named = {"r": tables["r"].withColumnRenamed("id", "result_time"), "s": tables["s"]}
    text = """SELECT ONLINE max(result_time) AS latest, count(*) AS n FROM r, s
              WHERE r.result_time = s.id WITHIN 1 minute GROUP BY window(result_time, '1 minute')"""
    views, pairs = answer_twice(spark, named, text, monkeypatch)
    assert sorted(map(repr, views.collect())) == sorted(map(repr, pairs.collect()))


def test_results_without_a_time_are_in_no_window(spark, tables, monkeypatch):
    unknown = tables["r"].withColumn("ts", F.when(F.col("id") % 3 > 0, F.col("ts")))
    text = """SELECT ONLINE window.start, count(*) AS n FROM r, s
              WHERE r.id >= s.id GROUP BY window(result_time, '1 minute')"""
    streams = {"r": unknown, "s": tables["s"]}
    views, pairs = answer_twice(spark, streams, text, monkeypatch, event_time={"r": "ts", "s": "ts"})
    assert sorted(map(repr, views.collect())) == sorted(map(repr, pairs.collect()))


@pytest.mark.slow
def test_columns_that_differ_by_case_are_two(spark, tables, monkeypatch):
    cased = {"r": tables["r"].withColumn("K2", F.upper("k")).withColumnRenamed("k", "k2"), "s": tables["s"]}
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        text = f"SELECT ONLINE r.k2, r.K2, count(*) {JOIN} GROUP BY r.k2, r.K2"
        assert "units fold" in explain_groups(spark, cased, text)
        views, pairs = answer_twice(spark, cased, text, monkeypatch)
        assert sorted(map(repr, views.collect())) == sorted(map(repr, pairs.collect()))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_sum_of_integers_overflows_as_in_spark(spark, tables):
    for value in ("r.n * 1000", "r.n * s.n"):
        with pytest.raises(Exception, match=r"(?i)overflow"):
            th.sql(spark, f"SELECT ONLINE sum({value}) AS z {JOIN}", tables).collect()


@pytest.mark.slow
def test_a_sum_of_wide_decimals_overflows_as_in_spark(spark, tables):
    streams = dict(tables, r=tables["r"].withColumn("big", F.lit("9" * 38).cast("decimal(38,0)")))
    text = f"SELECT ONLINE sum(r.big) AS z {JOIN}"
    assert "units fold" in explain_groups(spark, streams, text)
    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW.*more than 38 digits"):
        th.sql(spark, text, streams).collect()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert "unless ANSI mode is on" in explain_groups(spark, streams, text)
        assert th.sql(spark, text, streams).collect() == [(None,)]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


# th.aggregate


def test_aggregate_takes_what_join_takes(spark, tables):
    @th.predicate(r=["id"], s=["id"])
    def near(r, s):
        return abs(r.id.to_numpy() - s.id.to_numpy()) < 3

    found = th.aggregate(
        tables,
        on=["r.k = s.k", near],
        within={"r": "1 minute", "s": "2 minutes"},
        group_by=["r.k", "s.b -- a comment"],
        aggs={"n": "count(*)", "mean of d": "avg(s.d)"},
        having="count(*) > 1",
        model=th.Biclique(units=(2, 3)),
    )
    pairs = th.join(tables, on=["r.k = s.k", near], within={"r": "1 minute", "s": "2 minutes"})
    wanted = pairs.groupBy("r.k", "s.b").agg(F.count("*").alias("n"), F.avg("s.d")).where("n > 1")
    assert found.columns == ["k", "b", "n", "mean of d"]
    assert sorted(map(repr, map(tuple, found.collect()))) == sorted(map(repr, map(tuple, wanted.collect())))
    assert found.count() > 3


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"aggs": {}}, "AGGREGATES"),
        ({"aggs": ["count(*)"]}, "AGGREGATES"),
        ({"aggs": {}, "having": "count(*) > 1"}, "AGGREGATES"),
        ({"group_by": 7}, "AGGREGATES"),
        ({"group_by": [""]}, "SYNTAX"),
        ({"aggs": {"n": "count(*), max(r.id)"}}, "SYNTAX"),
        ({"group_by": ["r.k", 7]}, "SYNTAX"),
        ({"having": "count(*) > 1 WITHIN 5 minutes"}, "SYNTAX"),
        ({"aggs": {"n": "count("}}, "SYNTAX"),
        ({"aggs": {"n": 7}}, "SYNTAX"),
        ({"aggs": {"n": "count(*) FROM r"}}, "SYNTAX"),
        ({"aggs": {"n": "sum(r.q)"}}, "UNKNOWN_COLUMN"),
        ({"aggs": {"n": "r.id"}, "group_by": "r.k"}, "MISSING_AGGREGATION"),
        ({"on": "r.id < s.q"}, "UNKNOWN_COLUMN"),
        ({"within": "a while"}, "INVALID_DURATION"),
    ],
)
def test_aggregate_refuses_by_name(tables, changes, condition):
    with pytest.raises(th.QueryError) as refused:
        th.aggregate(**{"streams": tables, "on": "r.id = s.id", "aggs": {"n": "count(*)"}, **changes})
    assert refused.value.condition == condition


# Streams


@pytest.mark.slow
@pytest.mark.parametrize("units", [1, (2, 3)])
def test_streamed_views_survive_a_restart(spark, tables, tmp_path, units):
    ids = [range(n, n + 20) for n in range(0, 120, 20)]
    frames = {name: replay(tables[name], ids, tmp_path) for name in "rs"}
    folders = sorted(path for path in tmp_path.iterdir() if path.name.startswith("stream-"))
    late = [file for folder in folders for file in sorted(folder.iterdir())[3:]]
    for file in late:
        file.rename(file.with_name(f"_{file.name}"))
    streams = {name: frame.withWatermark("ts", "10 seconds") for name, frame in frames.items()}
    query = {
        "on": "abs(r.id - s.id) < 7 AND r.x >= s.x",
        "within": "30 seconds",
        "group_by": ["r.k", "window(result_time, '1 minute')"],
        "aggs": {"n": "count(*)", "d": "sum(s.d)", "low": "min(r.n)"},
    }
    found = {}
    for _ in range(2):
        frame = th.aggregate(streams, **query, model=th.Biclique(units=units))
        found.update(read_latest(frame, "update", tmp_path / "checkpoint", 2)[0])
        for file in late:
            if not file.exists():
                file.with_name(f"_{file.name}").rename(file)
    wanted = th.join(tables, on=query["on"], within=query["within"], event_time={"r": "ts", "s": "ts"})
    time = "window(greatest(r.ts, s.ts), '1 minute')"
    aggregates = (f"{text} AS {name}" for name, text in query["aggs"].items())
    wanted.createOrReplaceTempView("wanted_pairs")
    rows = spark.sql(f"SELECT r.k, {time}, {', '.join(aggregates)} FROM wanted_pairs GROUP BY r.k, {time}")
    assert sorted(map(repr, found.values())) == sorted(repr(tuple(row)) for row in rows.collect())
    assert len(found) > 10


LAZY = {
    "on": "abs(r.id - s.id) < 7",
    "within": "30 seconds",
    "group_by": "r.k",
    "aggs": {
        "n": "count(*)",
        "low": "min(s.x)",
        "d": "sum(s.d)",
        "z": "round(stddev(s.d), 3)",
        "v": "approx_count_distinct(r.day)",
    },
}


@pytest.mark.slow
def test_views_wait_and_none_is_lost(spark, tables, tmp_path):
    ids = [range(n, n + 10) for n in range(0, 80, 10)]  # Each file covers half a minute.
    frames = {"r": replay(tables["r"], ids[:7], tmp_path), "s": replay(tables["s"], ids, tmp_path)}
    files = [file for folder in tmp_path.glob("stream-*") for file in sorted(folder.iterdir())[6:]]
    for file in files:
        file.rename(file.with_name(f"_{file.name}"))
    streams = {name: frame.withWatermark("ts", "10 seconds") for name, frame in frames.items()}
    frame = th.aggregate(streams, **LAZY, every="100 seconds", model=th.Biclique(units=(2, 1)))
    groups, updated, failures = {}, {}, [2, 6]

    def keep(batch, epoch):
        rows = batch.collect()
        if epoch in failures:
            failures.remove(epoch)
            raise RuntimeError("the sink is away")
        groups.update({row.k: tuple(row) for row in rows})
        updated[epoch] = len(rows)

    def run():
        writer = frame.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    def check(n_left, n_right):
        parts = {name: tables[name].where(F.col("id") < n) for name, n in (("r", n_left), ("s", n_right))}
        pairs = th.join(parts, LAZY["on"], LAZY["within"], event_time={"r": "ts", "s": "ts"})
        aggregates = [F.expr(text).alias(name) for name, text in LAZY["aggs"].items()]
        wanted = pairs.groupBy("r.k").agg(*aggregates).collect()
        assert sorted(map(repr, groups.values())) == sorted(repr(tuple(row)) for row in wanted)

    # The sixth epoch has no data, because the streams pause.
    for _ in failures[:]:
        with pytest.raises(StreamingQueryException, match="the sink is away"):
            run()
    run()
    check(60, 60)
    assert [updated[epoch] > 0 for epoch in (0, 1, 2, 6)] == [False, True, False, True]
    # Two more epochs have data. In the last one only s has data, so the watermark does not move and no epoch
    # follows.
    for file in files:
        file.with_name(f"_{file.name}").rename(file)
    run()
    check(70, 80)
    assert len(updated) == 9


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"every": "a while"}, "INVALID_DURATION"),
        ({"aggs": {"n": "skewness(s.x)"}}, "EVERY"),
        ({"group_by": "window(result_time, '1 minute')"}, "EVERY"),
    ],
)
def test_lazy_updates_are_refused_by_name(tables, changes, condition):
    query = {"on": "r.id = s.id", "within": "1 minute", "aggs": {"n": "count(*)"}, "every": "1 minute"}
    with pytest.raises(th.QueryError) as refused:
        th.aggregate(tables, **query | changes)
    assert refused.value.condition == condition


def test_lazy_updates_need_one_watermark_on_each_stream(tables, tmp_path):
    frames = {name: replay(tables[name], [range(5)], tmp_path) for name in "rs"}
    r, s = (frame.withWatermark("ts", "10 seconds") for frame in frames.values())
    query = {"on": "r.id = s.id", "within": "1 minute", "aggs": {"n": "count(*)"}, "every": "1 minute"}
    joined = "SELECT r.id, result_time AS ts FROM r, s WHERE r.id = s.id WITHIN 1 minute"
    pairs = th.sql(r.sparkSession, joined, {"r": r, "s": s})
    union = r.unionByName(s.select(r.columns))
    for left in (union, pairs):
        with pytest.raises(th.QueryError, match="'r' has 2") as refused:
            th.aggregate({"r": left, "s": s}, **query)
        assert refused.value.condition == "EVERY"
    behind = frames["r"].unionByName(frames["s"].select(frames["r"].columns)).withWatermark("ts", "1 minute")
    assert th.aggregate({"r": behind, "s": s}, **query).isStreaming


@pytest.mark.slow
def test_a_checkpoint_of_other_measures_is_refused(spark, tables, tmp_path):
    frames = {name: replay(tables[name], [range(5)], tmp_path, by_key=True) for name in "rs"}
    streams = {name: frame.withWatermark("ts", "10 seconds") for name, frame in frames.items()}

    def start(measure):
        frame = th.aggregate(streams, "r.id = s.id", "1 minute", aggs={"n": measure})
        read_latest(frame, "update", tmp_path / "checkpoint", 0)

    start("sum(r.x)")
    for folder in tmp_path.glob("stream-*"):  # This is input for the units.
        (folder / "later.csv").write_text("7\n")
    with pytest.raises(Exception, match="STATE_OF_ANOTHER_QUERY"):
        start("sum(s.x)")
