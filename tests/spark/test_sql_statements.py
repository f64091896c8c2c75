"""Statements around a join: plain SELECT, WITH, USING, GROUP BY an item, views, INSERT INTO."""

import re
from collections import Counter

import pytest

import thetastream as th
from tests.support.streams import replay
from thetastream.stores.registry import read_store

pytestmark = pytest.mark.filterwarnings(
    "ignore::thetastream.errors.CrossJoinWarning", "ignore::thetastream.errors.UnboundedStateWarning"
)

R = [(n, n % 3, float(n), f"2024-03-01 00:00:{n:02}") for n in range(12)]
S = [(n, n % 4, n + 0.5, f"2024-03-01 00:00:{n:02}") for n in range(9)]
PAIRS = [(r, s) for r in R for s in S if r[2] > s[2] and abs(r[0] - s[0]) <= 5]


@pytest.fixture(scope="module")
def tables(spark):
    def make(rows, last):
        frame = spark.createDataFrame(rows, f"id INT, k INT, {last} DOUBLE, ts STRING")
        return frame.withColumn("ts", frame.ts.cast("timestamp"))

    return {"r": make(R, "v"), "s": make(S, "w")}


def bag(frame):
    return Counter(tuple(row) for row in frame.collect())


def test_online_adds_nothing_and_one_input_is_enough(spark, tables):
    text = "{} r.id, s.id AS o FROM r, s WHERE r.v > s.w WITHIN 5 seconds"
    plain, online = (th.sql(spark, text.format(word), tables) for word in ("SELECT", "SELECT ONLINE"))
    assert bag(plain) == bag(online) == Counter((r[0], s[0]) for r, s in PAIRS)
    one = th.sql(
        spark, "SELECT DISTINCT k + 1 AS n FROM r AS x WHERE x.v > 1 ORDER BY n DESC LIMIT 2", tables
    )
    assert [row.n for row in one.collect()] == [3, 2]
    assert "one input" in th.sql(spark, "EXPLAIN SELECT k FROM r", tables).collect()[0][0]


def test_the_name_of_one_input_may_have_braces(spark, tables):
    text = "SELECT `{x}`.id AS `{}` FROM r AS `{x}` WHERE `{x}`.id > 3"
    assert bag(th.sql(spark, text, tables)) == Counter((r[0],) for r in R if r[0] > 3)


def test_rows_of_batch_inputs_have_an_order_and_a_limit(spark, tables):
    text = """SELECT r.id, s.id AS o FROM r, s WHERE r.v > s.w WITHIN 5 seconds
              ORDER BY r.id DESC, o LIMIT 4 OFFSET 1"""
    wanted = sorted(((r[0], s[0]) for r, s in PAIRS), key=lambda pair: (-pair[0], pair[1]))[1:5]
    assert [tuple(row) for row in th.sql(spark, text, tables).collect()] == wanted
    text = "SELECT r.k, count(*) AS n FROM r, s WHERE r.v > s.w WITHIN 5 seconds GROUP BY r.k ORDER BY n DESC"
    counts = Counter(r[1] for r, _ in PAIRS)
    assert [row.n for row in th.sql(spark, text, tables).collect()] == sorted(counts.values(), reverse=True)


def test_with_and_subqueries_may_be_joins(spark, tables):
    text = """
        WITH high AS (SELECT id, k, v, ts FROM r WHERE v > 3),
             pairs AS (SELECT high.id, s.w, result_time FROM high, s WHERE high.v > s.w WITHIN 5 seconds)
        SELECT p.id, q.id AS o
        FROM pairs p JOIN (SELECT s.id, x.ts FROM s JOIN high x ON s.id = x.id WITHIN 1 hour) q ON p.id = q.id
        WITHIN 5 seconds
    """
    wanted = Counter((r[0], r[0]) for r, _ in PAIRS if r[2] > 3 and r[0] < len(S))
    found = th.sql(spark, text, tables, event_time={"x": "ts", "s": "ts", "high": "ts"})
    assert bag(found) == wanted
    explained = th.sql(spark, "EXPLAIN " + text, tables).collect()[0][0]
    assert re.findall(r"== (WITH \w+|Subquery \w+) ==", explained) == [
        "WITH high",
        "WITH pairs",
        "Subquery q",
    ]


def test_using_merges_columns(spark, tables):
    wanted = Counter((r[1], r[0], s[0]) for r in R for s in S if r[1] == s[1] and r[1] > 0)
    text = "SELECT k, r.id, s.id AS o FROM r JOIN s USING (K) WHERE k > 0"
    assert bag(th.sql(spark, text, tables)) == wanted
    star = th.sql(spark, "SELECT * FROM r JOIN s USING (k, ts)", tables)
    assert star.columns == ["k", "ts", "id", "v", "id", "w"]
    grouped = "SELECT k, count(*) AS n FROM r JOIN s USING (k) GROUP BY k"
    assert bag(th.sql(spark, grouped, tables)) == Counter(
        dict.fromkeys(Counter(r[1] for r in R for s in S if r[1] == s[1]).items(), 1)
    )
    assert "units fold" in th.sql(spark, f"EXPLAIN {grouped}", tables).collect()[0][0]
    three = "SELECT k, t.id FROM r JOIN s USING (k) JOIN r AS t USING (k, id) WHERE s.id = 1"
    assert bag(th.sql(spark, three.replace(", id)", ")"), tables)) == Counter(
        (r[1], t[0]) for r in R for t in R if r[1] == t[1] == 1
    )
    for wrong, condition, at in (
        ("r JOIN s USING (v)", "UNKNOWN_COLUMN", "v)"),
        ("r JOIN s USING (w)", "UNKNOWN_COLUMN", "w)"),
        ("r, s JOIN r AS t USING (k)", "AMBIGUOUS_COLUMN", "k)"),
    ):
        text = f"SELECT count(*) FROM {wrong}"
        with pytest.raises(th.QueryError) as error:
            th.sql(spark, text, tables)
        assert error.value.condition == condition
        assert text[str(error.value).split("\n")[-1].index("^") - 2 :].startswith(at)


def test_groups_are_named_or_numbered(spark, tables):
    body = "count(*) AS n FROM r, s WHERE r.v > s.w WITHIN 5 seconds GROUP BY"
    wanted = Counter({(k % 2, n): 1 for k, n in Counter(r[0] % 2 for r, _ in PAIRS).items()})
    for text in (
        f"SELECT r.id % 2 AS odd, {body} odd",
        f"SELECT r.id % 2, {body} 1",
        f"SELECT r.id % 2 odd, {body} ODD",
    ):
        assert bag(th.sql(spark, text, tables)) == wanted, text
        explained = th.sql(spark, f"EXPLAIN {text}", tables).collect()[0][0]
        assert ("units fold" in explained) == ("% 2 odd" not in text), explained
    # A column has precedence over an item of the same name.
    text = f"SELECT max(r.k) AS w, {body} w"
    assert bag(th.sql(spark, text, tables)) == Counter(
        (max(r[1] for r, s in PAIRS if s[2] == w), sum(s[2] == w for _, s in PAIRS))
        for w in {s[2] for _, s in PAIRS}
    )


def test_views_and_scripts(spark, tables):
    text = """CREATE OR REPLACE TEMP VIEW st_pairs (a, b) AS
              SELECT r.id, s.id FROM r, s WHERE r.v > s.w WITHIN 5 seconds; -- then
              SELECT count(*) AS n FROM st_pairs WHERE a > 3;"""
    try:
        assert th.sql(spark, text, tables).collect()[0].n == sum(r[0] > 3 for r, _ in PAIRS)
        assert spark.table("st_pairs").columns == ["a", "b"]
        with pytest.raises(th.QueryError, match="VIEW_EXISTS"):
            th.sql(spark, "CREATE VIEW st_pairs AS SELECT id FROM r", tables)
        with pytest.raises(th.QueryError, match="COLUMN_COUNT"):
            th.sql(spark, "CREATE OR REPLACE VIEW st_pairs (a) AS SELECT id, k FROM r", tables)
    finally:
        spark.catalog.dropTempView("st_pairs")


def test_rows_are_inserted_into_files_and_tables(spark, tables, tmp_path):
    select = "SELECT r.id, s.id AS o FROM r, s WHERE r.v > s.w WITHIN 5 seconds"
    wanted = Counter((r[0], s[0]) for r, s in PAIRS)
    with pytest.raises(th.QueryError, match=r"th\.insert"):
        th.sql(spark, f"INSERT INTO parquet.`{tmp_path}/a` {select}", tables)
    assert th.insert(spark, f"INSERT INTO parquet.`{tmp_path}/a` (x, y) {select}", tables) is None
    found = spark.read.parquet(f"{tmp_path}/a")
    assert found.columns == ["x", "y"]
    assert bag(found) == wanted
    with pytest.raises(
        th.QueryError, match=r"DUPLICATE_COLUMN.*orc files.*one name: id, id; name them with AS"
    ):
        th.insert(spark, f"INSERT INTO orc.`{tmp_path}/b` {select.replace(' AS o', '')}", tables)
    spark.sql("CREATE TABLE st_target (b INT, a INT) USING parquet")
    try:
        th.insert(spark, f"INSERT INTO st_target {select}", tables)
        assert bag(spark.table("st_target")) == wanted
        th.insert(spark, f"INSERT INTO TABLE st_target (A, b) {select} LIMIT 0", tables)
        with pytest.raises(th.QueryError, match="COLUMN_COUNT"):
            th.insert(spark, f"INSERT INTO st_target {select.replace('r.id', 'r.id, r.k')}", tables)
        with pytest.raises(th.QueryError, match="COLUMN_COUNT"):
            th.insert(spark, f"INSERT INTO st_target (a, c) {select}", tables)
        with pytest.raises(th.QueryError, match="COLUMN_COUNT"):
            th.sql(spark, f"EXPLAIN INSERT INTO st_target (a) {select}", tables)
    finally:
        spark.sql("DROP TABLE st_target")
    for text, condition in ((f"INSERT INTO nowhere {select}", "UNKNOWN_SINK"), (select, "INSERT")):
        with pytest.raises(th.QueryError) as error:
            th.insert(spark, text, tables, sinks={"out": {"format": "noop"}})
        assert error.value.condition == condition


def test_streams_are_inserted_and_refuse_what_has_no_end(spark, tables, tmp_path):
    ids = {"r": [r[0] for r in R], "s": [s[0] for s in S]}
    streams = {
        name: replay(tables[name], [ids[name]], tmp_path).withWatermark("ts", "1 minute") for name in ids
    }
    text = """CREATE OR REPLACE VIEW st_pairs AS
              SELECT k, r.id, s.id AS o FROM r JOIN s USING (k) WHERE r.v > s.w WITHIN 5 seconds;
              INSERT INTO Out (a, b) SELECT id, o FROM st_pairs WHERE k > 0"""
    sinks = {"out": {"format": "parquet", "path": f"{tmp_path}/out"}}
    try:
        with pytest.raises(th.QueryError, match="NO_CHECKPOINT"):
            th.insert(spark, text, streams, sinks)
        query = th.insert(spark, text, streams, sinks, checkpoint=f"{tmp_path}/c", trigger="available now")
        query.awaitTermination()
    finally:
        spark.catalog.dropTempView("st_pairs")
    wanted = Counter((r[0], s[0]) for r, s in PAIRS if r[1] == s[1] > 0)
    assert bag(spark.read.parquet(f"{tmp_path}/out").select("a", "b")) == wanted
    place = f"delta:{tmp_path}/kept"
    joined = "r JOIN s USING (k) WHERE r.v > s.w WITHIN 5 seconds"
    kept = f"INSERT INTO Store.`{place}` SELECT r.id, s.id AS o FROM {joined}"
    th.insert(spark, kept, streams, checkpoint=f"{tmp_path}/e", trigger="available now").awaitTermination()
    found = read_store(place).read()
    every = Counter((r[0], s[0]) for r, s in PAIRS if r[1] == s[1])
    assert Counter(zip(found["id"].to_pylist(), found["o"].to_pylist(), strict=True)) == every
    with pytest.raises(th.QueryError, match="store must name a kind of store, and 'parkett' is none"):
        th.insert(spark, kept.replace(place, f"parkett:{tmp_path}/kept"), streams)
    grouped = "INSERT INTO out SELECT r.k, count(*) FROM r, s GROUP BY r.k"
    with pytest.raises(th.QueryError, match="SINK_MODE"):
        th.insert(spark, grouped, streams, sinks, checkpoint=f"{tmp_path}/d")
    for text, at in (
        ("SELECT r.id FROM r, s WHERE r.v > s.w ORDER BY r.id LIMIT 3", "ORDER BY"),
        ("SELECT id FROM r LIMIT 3", "LIMIT"),
        ("SELECT DISTINCT k FROM r", "k FROM"),
        ("WITH x AS (SELECT k FROM r OFFSET 2) SELECT k FROM x", "OFFSET"),
    ):
        with pytest.raises(th.QueryError) as error:
            th.sql(spark, text, streams)
        *_, shown, caret = str(
            error.value.problems[0] if hasattr(error.value, "problems") else error.value
        ).split("\n")
        assert shown.strip() == text
        assert text[caret.index("^") - shown.index(text[0]) :].startswith(at), error.value
