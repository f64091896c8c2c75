"""Joins of three streams and more are compared with the nested loop, in batch and with late tuples."""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc
import pytest

import thetastream as th
from tests.support.streams import outcome, replay

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")

START = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "id int, x int, ts timestamp"
SECONDS = {"a": 6, "b": 3, "c": 9}


def rows(name, n):
    chance = random.Random(name)
    return [
        (i, chance.choice([None, *range(5)]), START + timedelta(seconds=chance.randrange(n // 2)))
        for i in range(n)
    ]


ROWS = {"a": rows("a", 30), "b": rows("b", 25), "c": rows("c", 20)}


@pytest.fixture(scope="module")
def tables(spark):
    return {name: spark.createDataFrame(found, SCHEMA) for name, found in ROWS.items()}


def nested_loop(inputs, holds, seconds=SECONDS):
    found = Counter()
    for together in itertools.product(*inputs.values()):
        latest = max(row[2] for row in together)
        inside = all(
            latest - row[2] <= timedelta(seconds=seconds[alias])
            for alias, row in zip(inputs, together, strict=True)
        )
        if inside and holds(*(row[1] for row in together)):
            found[tuple(row[0] for row in together)] += 1
    return found


CONDITIONS = {
    "a.x > b.x AND b.x + 1 = c.x": lambda a, b, c: None not in (a, b, c) and a > b and b + 1 == c,
    "a.x + b.x = c.x": lambda a, b, c: None not in (a, b, c) and a + b == c,
    "c.x BETWEEN a.x AND b.x": lambda a, b, c: None not in (a, b, c) and a <= c <= b,
    "a.x = c.x": lambda a, b, c: None not in (a, c) and a == c,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("on", CONDITIONS)
def test_batch(spark, tables, on):
    plan = th.plan(tables, on=on, within={alias: f"{n} seconds" for alias, n in SECONDS.items()})
    found = Counter((row.a.id, row.b.id, row.c.id) for row in plan.dataframe().collect())
    assert found == nested_loop(ROWS, CONDITIONS[on])
    assert plan.dataframe().columns == ["a", "b", "c", "result_time"]
    assert plan.dataframe().schema["a"].dataType == tables["a"].schema


def test_a_predicate_over_all_streams(spark, tables):
    @th.predicate(a=["x"], b=["x"], c=["x"])
    def adds_up(a, b, c):
        return pc.equal(pc.add(a.x, b.x), c.x)

    found = th.join(tables, on=[adds_up, "a.x >= b.x"], within="4 seconds").collect()
    wanted = nested_loop(
        ROWS, lambda a, b, c: None not in (a, b, c) and a + b == c and a >= b, dict.fromkeys("abc", 4)
    )
    assert Counter((row.a.id, row.b.id, row.c.id) for row in found) == wanted


def test_a_predicate_over_some_streams(spark, tables):
    @th.predicate(A=["X"], c=["x"])
    def above(A, c):
        return pc.greater(A.X, c.x)

    @th.predicate(b=["x"], c=["nothing"])
    def broken(b, c):
        raise AssertionError

    found = th.join(tables, on=[above, "a.x = b.x"], within="3 seconds").collect()
    wanted = nested_loop(
        ROWS, lambda a, b, c: None not in (a, b, c) and a > c and a == b, dict.fromkeys("abc", 3)
    )
    assert Counter((row.a.id, row.b.id, row.c.id) for row in found) == wanted
    with pytest.raises(th.QueryError, match=r"reads c\.nothing"):
        th.plan(tables, on=[broken, "a.x = b.x"])


@pytest.mark.slow
def test_windows_are_elapsed_time_over_a_change_of_clocks(spark):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = {"a": "2024-03-30 11:30:00", "b": "2024-03-31 12:00:00", "c": "2024-03-31 12:00:00"}
        frames = {
            alias: spark.createDataFrame([(1, text)], "id int, text string").selectExpr(
                "id", "CAST(text AS TIMESTAMP) AS ts"
            )
            for alias, text in rows.items()
        }
        on = "a.id = b.id AND b.id = c.id"
        assert th.join(frames, on=on, within="1 day").count() == 1  # 23.5 hours
        assert th.join(frames, on=on, within="23 hours").count() == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_columns_that_flatten_to_one_name(spark):
    a = spark.createDataFrame([(1, 10)], "id int, b__c int")
    a__b = spark.createDataFrame([(1, 20)], "id int, c int")
    d = spark.createDataFrame([(1, 30)], "id int, `odd.name` int")
    on = "a.id = a__b.id AND a__b.id = d.id AND a.b__c + 10 = a__b.c AND mod(a.b__c, d.`odd.name`) = 10"
    rows = th.join({"a": a, "a__b": a__b, "d": d}, on=on).collect()
    assert [(row.a.b__c, row.a__b.c, row.d["odd.name"]) for row in rows] == [(10, 20, 30)]


def test_functions_that_also_take_units(spark):
    frame = spark.createDataFrame([(1,), (2,)], "n int").selectExpr("n", "date_add(DATE'2024-01-01', n) AS d")
    on = "a.n = b.n AND datediff(a.d, c.d) = 1 AND date_add(b.d, -1) = c.d"
    rows = th.join({"a": frame, "b": frame, "c": frame}, on=on).collect()
    assert [(row.a.n, row.b.n, row.c.n) for row in rows] == [(2, 2, 1)]


@pytest.mark.slow
def test_four_times_the_same_frame(spark, tables):
    c = tables["c"].limit(8)
    found = th.join(
        {"a": c, "b": c, "c": c, "d": c}, on="a.id < b.id AND b.id < c.id AND c.id < d.id"
    ).collect()
    assert len(found) == 70  # 8 choose 4


def test_refusals(tables):
    with pytest.raises(th.QueryError, match="WHOLE_STREAM"):
        th.plan(
            tables, on="a.x = b.x AND struct(a.x, b) IS NOT NULL AND c.x = 1 AND struct(a, c) IS NOT NULL"
        )
    with pytest.raises(th.errors.InvalidQuery) as error:
        th.plan(tables, on="a.q = d.x", within={"a": "1 second"}, archive_period="soon")
    conditions = {problem.condition for problem in error.value.problems}
    assert {"INVALID_DURATION", "WINDOW_MISSING"} <= conditions


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "on"), [*enumerate(CONDITIONS)])
def test_streams_with_disorder_and_late_tuples(spark, tables, tmp_path, on, seed):
    chance = random.Random(seed)
    epochs, frames = {}, {}
    for alias, found in ROWS.items():
        ordered = sorted(found, key=lambda row: row[2] + timedelta(seconds=chance.uniform(0, 15)))
        cut = [len(ordered) * part // 4 for part in (1, 2, 3)]
        parts = [ordered[i:j] for i, j in zip([0, *cut], [*cut, None], strict=True)]
        epochs[alias] = parts
        ids = [[row[0] for row in part] for part in parts]
        frames[alias] = replay(tables[alias], ids, tmp_path).withWatermark("ts", "1 second")
    within = {alias: f"{n} seconds" for alias, n in SECONDS.items()}
    joined = th.join(frames, on=on, within=within, model=th.Biclique(1))
    found = outcome(joined, ["a.id", "b.id", "c.id"], tmp_path)

    def timely(parts):
        for number, part in enumerate(parts):
            late_ms = found.late_ms(number)
            yield from (row for row in part if row[2].timestamp() * 1000 > late_ms)

    inputs = {alias: list(timely(parts)) for alias, parts in epochs.items()}
    assert any(len(inputs[alias]) < len(ROWS[alias]) for alias in ROWS), "the case should have late tuples"
    assert found.rows == nested_loop(inputs, CONDITIONS[on])
