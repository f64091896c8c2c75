"""Outer, semi and anti joins on Spark: streams, batch DataFrames, and Spark's own joins beside them."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support import truth
from tests.support.answer_streams import EPOCHS, LEFT, RIGHT, ROWS, START, WITHIN_S, frames, streams
from tests.support.answers import answers, nearest
from tests.support.streams import outcome
from tests.support.truth import configured
from thetastream.core.errors import QueryError
from thetastream.core.how import HOWS as HOWS_OF_ENGINE

HOWS = ["left", "right", "full", "semi", "anti"]


def first_fast(*hows: Any) -> list[Any]:
    """Kinds of joins for a test, of which all but the first are slow."""
    return [hows[0], *(pytest.param(how, marks=pytest.mark.slow) for how in hows[1:])]


ON = "abs(a.x - b.x) <= 2 AND a.y > 1 AND b.y < 8"


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


def matches(a: Any, b: Any) -> bool:
    if None in (a["x"], b["x"], a["ts"], b["ts"]):
        return False
    is_near = abs(a["x"] - b["x"]) <= 2 and abs((a["ts"] - b["ts"]).total_seconds()) <= WITHIN_S
    return is_near and a["y"] > 1 and b["y"] < 8


def columns(how: str) -> list[Any]:
    """The ids of both tuples, whether each is there, and the result time in seconds since the start."""
    shown = "a" if how in ("semi", "anti") else "ab"
    ids = [F.col(f"{alias}.id").alias(alias) if alias in shown else F.lit(None) for alias in "ab"]
    nulls = [F.col(alias).isNull() if alias in shown else F.lit(True) for alias in "ab"]
    return [*ids, *nulls, F.unix_seconds("result_time") - int(START.timestamp())]


def wanted(how: str, left: list[Any], right: list[Any]) -> Counter[Any]:
    """The bag of ``columns`` over these rows."""
    sides = ({row["id"]: row for row in left}, {row["id"]: row for row in right})
    found: Counter[Any] = Counter()
    for pair, n in answers(how, matches, left, right).items():
        times = [None if id_ is None else sides[s][id_]["ts"] for s, id_ in enumerate(pair)]
        known = [(t - START).total_seconds() for t in times if t is not None]
        is_pair = None not in pair
        time = None if not known else int(max(known)) + (0 if is_pair else WITHIN_S)
        found[(*pair, pair[0] is None, pair[1] is None, time)] += n
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", HOWS)
def test_batch(spark: SparkSession, how: str) -> None:
    a, b = frames(spark)
    joined = th.join({"a": a, "b": b}, on=ON, within=f"{WITHIN_S} seconds", how=how)
    rows = Counter(tuple(row) for row in joined.select(*columns(how)).collect())
    assert rows == wanted(how, LEFT, RIGHT)
    condition = f"{ON} AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"
    own = a.alias("a").join(b.alias("b"), F.expr(condition), how)
    assert own.count() == rows.total()


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_stream(spark: SparkSession, how: str, tmp_path: Path) -> None:
    joined = th.join(streams(spark, tmp_path), on=ON, within=f"{WITHIN_S} seconds", how=how)
    found = outcome(joined, columns(how), tmp_path)

    # 1. Both streams have the same epochs, so their late tuples follow from the watermarks.
    def keep_timely(rows: list[Any]) -> list[Any]:
        kept = []
        for row in rows:
            late = START + timedelta(milliseconds=found.late_ms(row["id"] // ROWS) - START.timestamp() * 1000)
            if row["ts"] is None or row["ts"] > late:
                kept.append(row)
        return kept

    left, right = keep_timely(LEFT), keep_timely(RIGHT)
    assert len(left) < len(LEFT)
    # 2. What the last watermark does not decide is not a result yet.
    end = max(found.watermarks_ms.values()) / 1000 - START.timestamp()
    barred = (
        {row["id"] for row in LEFT if row["y"] <= 1 or row["x"] is None},
        {row["id"] for row in RIGHT if row["y"] >= 8 or row["x"] is None},
    )
    expected = Counter(
        {
            row: n
            for row, n in wanted(how, left, right).items()
            if not (row[2] ^ row[3])
            or row[4] is None
            or row[4] <= end
            or row[row[0] is None] in barred[row[0] is None]
            or how == "semi"
        }
    )
    assert found.rows == expected
    late = [row for row in LEFT if row not in left], [row for row in RIGHT if row not in right]
    # A stream that is not preserved is filtered before late tuples are counted.
    passing = (lambda row: row["y"] > 1), (lambda row: row["y"] < 8)
    counted = [
        row
        for side, rows in enumerate(late)
        for row in rows
        if side in [*HOWS_OF_ENGINE[how].preserved] or (row["x"] is not None and passing[side](row))
    ]
    assert sum(entry["late"] for entry in found.metrics) == len(counted)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "full", "semi"])
def test_the_same_rows_as_sparks_own_join_and_no_later(spark: SparkSession, how: str, tmp_path: Path) -> None:
    # In 4.3, Spark's own full join matches NULL keys with each other, its left join takes the number of a
    # conjunct like ``a.y > 1`` for a watermark, and neither ever answers a row without an event time.
    given = {
        alias: stream.where("x IS NOT NULL AND ts IS NOT NULL")
        for alias, stream in streams(spark, tmp_path).items()
    }
    window = f"b.ts BETWEEN a.ts - INTERVAL {WITHIN_S} SECONDS AND a.ts + INTERVAL {WITHIN_S} SECONDS"
    condition = f"a.x = b.x AND {window}"
    own = given["a"].alias("a").join(given["b"].alias("b"), F.expr(condition), how)
    ours = th.join(given, on=condition, how=how)
    both = []
    for joined in (own, ours):
        ids = ["a.id"] if how == "semi" else ["a.id", "b.id"]
        rows: dict[tuple[Any, ...], list[int]] = {}

        def save(batch: DataFrame, epoch: int, rows: dict[tuple[Any, ...], list[int]] = rows) -> None:
            for row in batch.collect():
                rows.setdefault(tuple(row), []).append(epoch)

        query = (
            joined.select(*ids)
            .writeStream.foreachBatch(save)
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{len(both)}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        both.append(rows)
    assert both[0].keys() == both[1].keys()
    for row, epochs in both[0].items():
        assert len(both[1][row]) == len(epochs)
        assert all(mine <= theirs for mine, theirs in zip(both[1][row], epochs, strict=True))


@pytest.mark.slow
def test_a_window_behind_the_join_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    joined = th.join(streams(spark, tmp_path), on=ON, within=f"{WITHIN_S} seconds", how="left")
    counted = joined.groupBy(F.window("result_time", "10 seconds")).count()
    found = outcome(counted, [F.unix_seconds("window.start") - int(START.timestamp()), "count"], tmp_path)
    rows = outcome(joined, columns("left"), tmp_path)
    # Rows without an event time are in no window.
    closed: Counter[Any] = Counter()
    end = max(found.watermarks_ms.values()) / 1000 - START.timestamp()
    for (*_, time), n in rows.rows.items():
        if time is not None and time // 10 * 10 + 10 <= end:
            closed[time // 10 * 10] += n
    assert found.rows == Counter(dict.fromkeys(closed.items(), 1))


@pytest.mark.slow
@pytest.mark.parametrize("how", first_fast("anti", "left", "full", "semi"))
def test_a_window_behind_a_join_with_earlier_partners_loses_no_row(
    spark: SparkSession, how: str, tmp_path: Path
) -> None:
    """All partners are earlier. So the watermark may have passed t + W when the tuple arrives."""
    given = {alias: stream.where("ts IS NOT NULL") for alias, stream in streams(spark, tmp_path).items()}
    earlier = "a.x = b.x AND b.ts BETWEEN a.ts - INTERVAL 9.5 SECONDS AND a.ts - INTERVAL 7.5 SECONDS"
    joined = th.join(given, on=earlier, how=how)
    counted = joined.groupBy(F.window("result_time", "1 second")).count()
    found = outcome(counted, ["window.end", "count"], tmp_path)
    rows = outcome(joined, ["result_time", "a.ts"], tmp_path)
    end = max(found.watermarks_ms.values()) / 1000 - START.timestamp()
    closed: Counter[Any] = Counter()
    for (time, ts), n in rows.rows.items():
        assert ts is None or time >= ts
        behind = time.replace(microsecond=0) + timedelta(seconds=1)
        if (behind - START).total_seconds() <= end:
            closed[behind] += n
    assert found.rows == Counter(dict.fromkeys(closed.items(), 1))


ROUNDED = [
    "abs(a.d - b.d) <= 0.3",
    "abs(a.f - b.f) < 0.2 AND a.x >= 0",
    "abs(a.d - b.x) <= 1",
    "abs(a.f - b.d) <= 0.1D",
    "a.s < b.s",
    "a.w >= b.w AND b.x > 0",
]
"""Conditions that the index only approximates, so that units compare the values too."""


@pytest.fixture(scope="module")
def typed(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return truth.frames(spark)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [0, 1])
def test_units_compare_values_exactly(typed: tuple[DataFrame, DataFrame], first: int) -> None:
    """One query has the joins of every second condition, and another one those of Spark."""
    (a, b), conditions = typed, ROUNDED[first::2]
    ours = [
        th.join({"a": a, "b": b}, on=on, how="full", event_time={"a": "ts", "b": "ts"}) for on in conditions
    ]
    own = [a.alias("a").join(b.alias("b"), F.expr(on), "full") for on in conditions]
    found, expected = (
        truth.split(Counter(tuple(row) for row in truth.tagged(joins).collect()), len(conditions))
        for joins in (ours, own)
    )
    assert not truth.differences(conditions, found, expected)


@pytest.mark.parametrize("condition", ["a.s = b.s", "a.w = b.w"])
def test_equal_values_are_compared_where_no_payload_is_sent(
    typed: tuple[DataFrame, DataFrame], condition: str
) -> None:
    a, b = typed
    ours = th.join({"a": a, "b": b}, on=condition, how="anti", event_time={"a": "ts", "b": "ts"})
    own = a.alias("a").join(b.alias("b"), F.expr(condition), "anti")
    found, expected = (Counter(joined.select("a.id").collect()) for joined in (ours, own))
    assert found == expected


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_semi_and_anti_send_no_payload_of_the_other_stream(
    typed: tuple[DataFrame, DataFrame], how: str
) -> None:
    a, b = typed
    event_time = {"a": "ts", "b": "ts"}
    plan = th.plan({"a": a, "b": b}, on="abs(a.id - b.id) <= 2", how=how, event_time=event_time)
    fields = [column.field for column in plan.join.planned.physical.sides[1].carried]
    # Columns that may be the event time travel always.
    assert fields == (b.columns if how == "left" else ["ts", "ntz"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", first_fast("full", th.Nearest(1, by="abs(a.y - b.y)", keep_unmatched=True)), ids=repr
)
def test_a_restart_changes_nothing(spark: SparkSession, how: Any, tmp_path: Path) -> None:
    """Half of the files arrive before the query stops, and the others before it starts again."""
    given = streams(spark, tmp_path, (0, 1, 2, EPOCHS - 1))
    later = sorted(path for path in tmp_path.glob("stream-*/*.parquet") if int(path.stem[-4:]) >= 2)

    def run(how: Any, checkpoint: str, seconds: int = WITHIN_S) -> Counter[Any]:
        joined = th.join(given, on=ON, within=f"{seconds} seconds", how=how)
        rows: list[Any] = []
        writer = joined.select("a.id", F.col("b.id").alias("bid"), "result_time").writeStream
        query = (
            writer.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return Counter(rows)

    whole = run(how, "whole")
    for path in later:
        path.rename(path.with_name(f"_{path.name}"))
    before = run(how, "halves")
    for path in later:
        path.with_name(f"_{path.name}").rename(path)
    after = run(how, "halves")
    assert before
    assert after
    assert before + after == whole
    # Another kind of join, or another window, is another query.
    for other, seconds in (("left", WITHIN_S), (how, WITHIN_S - 1)):
        with pytest.raises(StreamingQueryException, match="STATE_OF_ANOTHER_QUERY"):
            run(other, "halves", seconds)


RANKINGS = [
    "abs(a.y - b.y)",
    "b.y",
    "b.ts - a.ts",
    "a.x * 1.5D - b.y",
    "abs(make_ym_interval(0, a.y) - make_ym_interval(0, b.y))",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("by", RANKINGS)
def test_nearest_on_batch(spark: SparkSession, by: str) -> None:
    a, b = (frame.drop("tags") for frame in frames(spark))
    ours = th.join(
        {"a": a, "b": b},
        on=ON,
        within=f"{WITHIN_S} seconds",
        how=th.Nearest(2, by=by, keep_unmatched=True),
    )
    a.createOrReplaceTempView("a")
    b.createOrReplaceTempView("b")
    own = spark.sql(
        "SELECT id, bid FROM (SELECT a.id, b.id AS bid, "
        f"rank() OVER (PARTITION BY a.id ORDER BY {by} NULLS LAST) AS n "
        f"FROM a LEFT JOIN b ON {ON} AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}) "
        "WHERE n <= 2"
    )
    found = ours.select("a.id", F.col("b.id").alias("bid")).collect()
    assert Counter(map(tuple, found)) == Counter(map(tuple, own.collect()))


@pytest.mark.slow
def test_nearest_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """An as-of join: each left row with the latest right row before it."""
    n_epochs, on = 4, "b.ts <= a.ts AND a.y > 1"
    given = streams(spark, tmp_path, range(n_epochs))
    joined = th.join(given, on=on, within=f"{WITHIN_S} seconds", how=th.Nearest(1, by="a.ts - b.ts"))
    columns = ["a.id", F.col("b.id").alias("bid"), "a.ts", "result_time"]
    found = outcome(joined, columns, tmp_path)

    def keep_timely(rows: list[Any]) -> list[Any]:
        def is_timely(row: Any) -> bool:
            return row["ts"] is not None and row["ts"].timestamp() * 1000 > found.late_ms(row["id"] // ROWS)

        return [row for row in rows[: n_epochs * ROWS] if is_timely(row)]

    def wait(a: Any, b: Any) -> float:
        return float((a["ts"] - b["ts"]).total_seconds())

    end = max(found.watermarks_ms.values()) / 1000
    left = [row for row in keep_timely(LEFT) if row["ts"].timestamp() <= end]
    expected = nearest(
        1,
        wait,
        False,
        lambda a, b: a["y"] > 1 and 0 <= wait(a, b) <= WITHIN_S,
        left,
        keep_timely(RIGHT),
    )
    pairs: Counter[Any] = Counter()
    for (a, b, ts, time), n in found.rows.items():
        pairs[a, b] += n
        assert ts == time  # a left row waits for right rows up to its own event time
    assert pairs == expected


@pytest.mark.parametrize("by", ["a.x + b.x", "abs(a.x)- b.x - a.y", "a.tags", "z.x - b.x", "x - y"])
def test_nearest_refuses_other_expressions(spark: SparkSession, by: str) -> None:
    a, b = frames(spark)
    with pytest.raises(QueryError, match="NEAREST"):
        th.join({"a": a, "b": b}, on="a.x = b.x", within="5 seconds", how=th.Nearest(1, by=by))
    with pytest.raises(QueryError, match="NEAREST"):
        th.Nearest(0, by=by)


def test_nearest_refuses_texts(spark: SparkSession) -> None:
    """A text beside a number ended the query in its first epoch with CAST_INVALID_INPUT of Spark."""
    rows = spark.sql("SELECT 1 AS id, 'a' AS s, 1.5D AS x, timestamp'2026-01-05' AS ts")
    for by, says in {
        "a.s - b.x": r"STRING and DOUBLE; try_cast\(a.s AS DOUBLE\) is NULL for a text that is no DOUBLE",
        "abs(a.ts - b.s)": r"TIMESTAMP and STRING; try_cast\(b.s AS TIMESTAMP\) is NULL",
        "abs(a.s - b.s)": "its operands are STRING and STRING",
        "b.s DESC": "its type is string",
    }.items():
        with pytest.raises(QueryError, match=rf"\[NEAREST\] by='.*{says}"):
            th.join({"a": rows, "b": rows}, on="a.id = b.id", how=th.Nearest(1, by=by))


STATEMENTS = [
    "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.x < b.x AND a.y > 5 {}",
    "SELECT a.id, b.id AS bid FROM a RIGHT OUTER JOIN b ON a.x = b.x {} WHERE b.y > 2 OR a.id IS NULL",
    "SELECT count(*), sum(b.y) FROM a FULL JOIN b ON a.x = b.x {} WHERE b.id IS NULL",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x {} WHERE y > 3",
    "SELECT id FROM a ANTI JOIN b ON a.x = b.x {}",
    "SELECT x, y FROM a LEFT JOIN b USING (x)",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_sql(spark: SparkSession, statement: str) -> None:
    a, b = (frame.drop("tags") for frame in frames(spark))
    if "USING" in statement:
        a, b = a.select("ts", "x"), b.select("ts", "x", "y")
    a.createOrReplaceTempView("a")
    b.createOrReplaceTempView("b")
    window = f"AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"
    ours, within = statement.format(""), f" WITHIN {WITHIN_S} seconds"
    own = (
        statement.format(window)
        .replace("USING (x)", f"ON a.x = b.x {window}")
        .replace("SELECT x", "SELECT a.x")
    )
    found, expected = th.sql(spark, ours + within), spark.sql(own)
    assert Counter(map(tuple, found.collect())) == Counter(map(tuple, expected.collect()))


def test_exists_in_sql(spark: SparkSession) -> None:
    a, b = frames(spark)
    a.createOrReplaceTempView("a")
    b.createOrReplaceTempView("b")
    for word in ("EXISTS", "NOT EXISTS"):
        inner = "(SELECT 1 FROM b WHERE abs(a.x - b.x) <= 1{})"
        text = f"SELECT id, x FROM a WHERE y > 1 AND {word} {inner} AND y < 8"
        window = f" AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"
        found = th.sql(spark, text.format("") + f" WITHIN {WITHIN_S} seconds")
        assert Counter(map(tuple, found.collect())) == Counter(
            map(tuple, spark.sql(text.format(window)).collect())
        )


REFUSED = {
    "HOW": [{"how": "outermost"}, {"how": 1}, {"order": "outer", "how": "left"}],
    "UNDECIDED": [{"within": None, "how": "left"}],
    "PARTNERS_APART": [
        {"model": th.Biclique(1), "how": "left"},
        {"model": th.Matrix(2, 1), "how": "full"},
        {"model": th.Split(2), "how": "semi"},
        {"model": th.Chain(2), "how": "anti"},
    ],
}


@pytest.mark.parametrize(
    ("name", "given"), [(name, given) for name, each in REFUSED.items() for given in each], ids=repr
)
def test_refused_by_name(spark: SparkSession, name: str, given: dict[str, Any]) -> None:
    rate = spark.readStream.format("rate").load()
    stream = rate.selectExpr("value AS x", "timestamp AS ts").withWatermark("ts", "1 second")
    with pytest.raises(QueryError, match=name):
        th.join({"a": stream, "b": stream}, **{"on": "a.x < b.x", "within": "5 seconds", **given})


def test_three_streams_and_tables_are_refused_by_name(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    table = spark.range(3).withColumnRenamed("id", "value")
    for third in (stream, table):
        with pytest.raises(QueryError, match="HOW"):
            th.join(
                {"a": stream, "b": stream, "c": third},
                on="a.value = b.value AND a.value = c.value",
                within="5 seconds" if third is stream else {"a": "5 seconds", "b": "5 seconds"},
                how="left",
            )
    with pytest.raises(QueryError, match="HOW"):
        th.join({"a": stream, "b": stream}, on="a.value = b.value", within=th.Rows(3), how="left")
