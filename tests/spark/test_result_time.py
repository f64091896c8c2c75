"""The result time is an event time: operators behind a join lose no result, for every model.

A window behind the join is compared when the watermark has closed it. Each result of the batch truth whose
window is closed must be counted, so a result that Spark drops as late makes a test fail.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.ticks import make_ticks, stream_ticks
from tests.support.truth import configured
from thetastream.core.columns import MARK

ROWS, EPOCH = 120, 40
"""Number of tuples; number of tuples per epoch."""
ON, WITHIN = "a.k <> b.k AND a.id < b.id", 60


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return make_ticks(spark, ROWS)


def stream(frame: DataFrame, folder: Path, epoch: int = EPOCH) -> DataFrame:
    return stream_ticks(frame, folder, ROWS, epoch)


# Results of joins: columns id, k and result_time


Joined = Callable[[DataFrame], DataFrame]


def two(model: Any, **settings: Any) -> Joined:
    def join(s: DataFrame) -> DataFrame:
        pairs = th.join({"a": s, "b": s}, on=ON, within=f"{WITHIN} seconds", model=model, **settings)
        return pairs.selectExpr("a.id * 1000 + b.id AS id", "a.k", "result_time")

    return join


def three(model: Any = None) -> Joined:
    def join(s: DataFrame) -> DataFrame:
        on = "b.id = a.id + 1 AND c.id - b.id BETWEEN 1 AND 2"
        rows = th.join({"a": s, "b": s, "c": s}, on=on, within=f"{WITHIN} seconds", model=model)
        return rows.selectExpr("(a.id * 1000 + b.id) * 1000 + c.id AS id", "a.k", "result_time")

    return join


def tasks(s: DataFrame) -> DataFrame:
    within = f"{WITHIN} seconds"
    found = th.join_many({"a": s, "b": s}, {"one": {"on": ON, "within": within}}).together
    return found.selectExpr("a.id * 1000 + b.id AS id", "a.k", "result_time")


def bounded(s: DataFrame) -> DataFrame:
    """Bound event times in the condition, with another bound on each side."""
    on = f"{ON} AND b.t BETWEEN a.t - INTERVAL 60 SECONDS AND a.t + INTERVAL 60 SECONDS"
    pairs = th.join({"a": s, "b": s}, on=on)
    return pairs.selectExpr("a.id * 1000 + b.id AS id", "a.k", "result_time")


JOINS: dict[str, Joined] = {
    "biclique": two(th.Biclique((2, 2))),
    "matrix": two(th.Matrix(2, 2)),
    "split": two(th.Split(2)),
    "ordered": two(th.Split(2), order="strict"),
    "tasks": tasks,
    "bounded": bounded,
    "ring of two": two(th.Ring(2)),
    "fast forward": two(th.Chain(2, fast_forward=True)),
    "pipeline": three(),
    "ring of three": three(th.Ring(2)),
    "atr": three(th.ATR(2, segment="1 minute")),
}
OF_THREE = ("pipeline", "ring of three", "atr")


def truth(frame: DataFrame, name: str) -> DataFrame:
    """Compute the results of a join by Spark's own batch join."""
    a, b, c = (frame.alias(alias) for alias in "abc")
    if name in OF_THREE:
        rows = a.join(b, F.expr("b.id = a.id + 1")).join(c, F.expr("c.id - b.id BETWEEN 1 AND 2"))
        rows = rows.selectExpr(
            "(a.id * 1000 + b.id) * 1000 + c.id AS id",
            "a.k",
            "greatest(a.t, b.t, c.t) AS result_time",
            "least(a.t, b.t, c.t) AS first",
        )
    else:
        rows = a.join(b, F.expr(ON)).selectExpr(
            "a.id * 1000 + b.id AS id", "a.k", "greatest(a.t, b.t) AS result_time", "least(a.t, b.t) AS first"
        )
    return rows.where(f"unix_micros(result_time) - unix_micros(first) <= {WITHIN} * 1000000").drop("first")


# Operators behind a join: columns key and value


def count_windows(joined: DataFrame, _: DataFrame) -> DataFrame:
    window = F.window("result_time", "2 minutes").alias("w")
    groups = joined.groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("id").alias("sum"))
    return groups.selectExpr("concat_ws(' ', w.end, k) AS key", "n * 1000000000000 + sum AS value", "w.end")


def drop_duplicates(joined: DataFrame, _: DataFrame) -> DataFrame:
    # The results of one tuple of a lie within 60 seconds, and the mark has the delay of 70 seconds.
    named = joined.withColumn("first", F.expr("id DIV 1000"))
    kept = named.dropDuplicatesWithinWatermark(["first"]) if joined.isStreaming else named
    rows = kept.selectExpr("CAST(first AS STRING) AS key", "0L AS value", "timestamp_seconds(0) AS end")
    return rows if joined.isStreaming else rows.distinct()


def join_again(joined: DataFrame, s: DataFrame) -> DataFrame:
    if joined.isStreaming:
        pairs = th.join({"p": joined, "d": s}, on="p.k = d.k", within="30 seconds", model=th.Biclique(1))
    else:
        near = "abs(unix_micros(p.result_time) - unix_micros(d.t)) <= 30000000"
        pairs = joined.alias("p").join(s.alias("d"), F.expr(f"p.k = d.k AND {near}"))
    return pairs.selectExpr(
        "concat_ws(' ', p.id, d.id) AS key", "p.k + d.id AS value", "timestamp_seconds(0)"
    )


def join_by_spark(joined: DataFrame, s: DataFrame) -> DataFrame:
    near = "d.t BETWEEN p.result_time - INTERVAL 30 SECONDS AND p.result_time + INTERVAL 30 SECONDS"
    pairs = joined.alias("p").join(s.alias("d"), F.expr(f"p.k = d.k AND {near}"))
    return pairs.selectExpr(
        "concat_ws(' ', p.id, d.id) AS key", "p.k + d.id AS value", "timestamp_seconds(0)"
    )


FOLLOWERS = {
    "windows": count_windows,
    "deduplication": drop_duplicates,
    "th.join": join_again,
    "Spark's join": join_by_spark,
}


def check(frame: DataFrame, folder: Path, cases: list[tuple[str, str]]) -> None:
    """Compare followers behind joins with the batch truth, all in one query."""
    s = stream(frame, folder)
    streams, wanted = [], []
    for n, (join, follower) in enumerate(cases):
        streams.append(FOLLOWERS[follower](JOINS[join](s), s).selectExpr(f"{n} AS n", "*"))
        wanted.append(FOLLOWERS[follower](truth(frame, join), frame).selectExpr(f"{n} AS n", "*"))
    ours, theirs = streams[0], wanted[0]
    for one, other in zip(streams[1:], wanted[1:], strict=True):
        ours, theirs = ours.union(one), theirs.union(other)
    found = outcome(ours, ["*"], folder)
    assert sum(epoch["late"] for epoch in found.metrics) == 0
    end = max(found.watermarks_ms.values())
    settled = Counter(tuple(row) for row in theirs.collect() if row[3].timestamp() * 1000 <= end)
    for n, case in enumerate(cases):
        mine, whole = (
            Counter({row: i for row, i in rows.items() if row[0] == n}) for rows in (found.rows, settled)
        )
        assert mine == whole, case
        assert len(whole) > 20, case


@pytest.mark.slow
def test_operators_behind_joins(frame: DataFrame, tmp_path: Path) -> None:
    cases = [
        ("biclique", "windows"),
        ("ordered", "deduplication"),
        ("pipeline", "th.join"),
    ]
    check(frame, tmp_path, cases)


@pytest.mark.slow
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("join", JOINS)
def test_every_operator_behind_every_join(frame: DataFrame, tmp_path: Path, join: str, follower: str) -> None:
    check(frame, tmp_path, [(join, follower)])


# The column


ON_ALL = ["a.k = b.k", "b.k = c.k"]


def find_mark(joined: DataFrame) -> Any:
    return joined.schema["result_time"].metadata.get(MARK)


def test_streams_mark_the_column_with_their_longest_delay(frame: DataFrame, tmp_path: Path) -> None:
    raw = replay(frame, [range(4)], tmp_path)
    a, b = raw.withWatermark("t", "3 seconds"), raw.withWatermark("t", "7 seconds")
    for name, model in (("biclique", th.Biclique(1)), ("pipeline", None)):
        streams = {"a": a, "b": b} if name == "biclique" else {"a": a, "b": b, "c": a}
        joined = th.join(streams, on=ON_ALL[: len(streams) - 1], within="1 minute", model=model)
        assert joined.columns == [*streams, "result_time"]
        assert find_mark(joined) == 7000
    # Without a window, the streams still have an event time.
    assert find_mark(th.join({"a": a, "b": b}, on="a.k = b.k AND a.t = b.t", model=th.Biclique(1))) == 7000
    together = th.join_many({"a": a, "b": b}, {"one": {"on": "a.k = b.k", "within": "1 minute"}})
    assert together.together.columns == ["task", "a", "b", "result_time"]
    assert find_mark(together["one"]) == 7000
    # A stream without an event time makes results without one.
    assert th.join({"a": a, "b": raw}, on="a.k = b.k").columns == ["a", "b"]


def test_results_that_come_later_are_not_marked(frame: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("t", "3 seconds")
    mailbox = str(tmp_path / "mailbox")
    streams = {"a": s, "b": s, "c": s}
    assert find_mark(th.join(streams, on=ON_ALL, within="1 minute", model=th.Ring(2))) == 3000
    for model in (th.Ring(2, hops="mailbox"), th.CTR(2)):
        ring = th.join(streams, on="a.k = b.k AND b.k = c.k", within="1 minute", model=model, mailbox=mailbox)
        assert ring.columns == ["a", "b", "c", "result_time"]
        assert find_mark(ring) is None
    pair = {"a": s, "b": s}
    chain = th.join(pair, on="a.k = b.k", within="1 minute", model=th.Chain(2), mailbox=mailbox)
    assert find_mark(chain) is None
    tasks = {"one": {"on": "a.k = b.k", "within": "1 minute"}}
    assert find_mark(th.join_many(pair, tasks, model=th.Chain(2), mailbox=mailbox).together) is None
    with pytest.raises(th.QueryError, match=r"NO_WATERMARK.*'r'.*may come behind the watermark"):
        th.join({"r": chain, "s": s}, on="r.a.k = s.k", within="1 minute")
    counts = chain.groupBy(F.window("result_time", "1 minute")).count()
    with pytest.raises(AnalysisException, match="watermark"):
        counts.writeStream.format("noop").start()


def test_batch_results_have_the_column_without_a_mark(spark: SparkSession) -> None:
    def rows(*values: str) -> DataFrame:
        return spark.createDataFrame([(v,) for v in values], "t STRING").selectExpr(
            "CAST(t AS TIMESTAMP) AS t"
        )

    a, b = rows("2026-01-05 09:00:05", "2026-01-05 09:00:20"), rows("2026-01-05 09:00:10")
    found = th.join({"a": a, "b": b}, on="a.t <> b.t", within="1 minute", model=th.Biclique(1))
    assert find_mark(found) is None
    assert Counter(str(row.result_time)[11:] for row in found.collect()) == Counter(["09:00:10", "09:00:20"])
    # Without a window, a NULL joins, and the result time is not known.
    nothing = spark.sql("SELECT CAST(NULL AS TIMESTAMP) AS t")
    found = th.join({"a": nothing, "b": b}, on="coalesce(a.t, b.t) = b.t", model=th.Biclique(1))
    assert [row.result_time for row in found.collect()] == [None]
    # Two timestamp columns do not say which of them is the event time.
    two = a.selectExpr("t", "t AS u")
    assert th.join({"a": two, "b": b}, on="a.t <> b.t").columns == ["a", "b"]


def test_the_column_can_be_refused(frame: DataFrame) -> None:
    join: dict[str, Any] = {"on": "a.k = b.k", "within": "1 minute", "model": th.Biclique(1)}
    assert th.join({"a": frame, "b": frame}, **join, result_time=False).columns == ["a", "b"]
    with pytest.raises(th.QueryError, match=r"BAD_VALUE.*result_time.*'yes'"):
        th.join({"a": frame, "b": frame}, **join, result_time="yes")
    streams = {"a": frame, "Result_Time": frame}
    with pytest.raises(th.QueryError, match=r"INVALID_ALIAS.*result_time=False"):
        th.join(streams, on="a.k = Result_Time.k", within="1 minute")
    named = th.join(streams, on="a.k = Result_Time.k", within="1 minute", result_time=False)
    assert named.columns == ["a", "Result_Time"]


def test_statements_have_the_column_where_they_name_it(spark: SparkSession, frame: DataFrame) -> None:
    text = "SELECT ONLINE {} FROM a, b WHERE a.k = b.k WITHIN 1 minute"
    streams = {"a": frame, "b": frame.toDF("i", "u", "k")}
    assert th.sql(spark, text.format("*"), streams).columns == ["id", "t", "k", "i", "u", "k"]
    assert th.sql(spark, text.format("a.id, result_time"), streams).columns == ["id", "result_time"]


def test_punctuations_have_no_result_time(frame: DataFrame) -> None:
    found = th.join(
        {"a": frame, "b": frame}, on="a.id = b.id", within="1 minute", order="strict", punctuations=True
    )
    assert found.columns == ["a", "b", "arrival", "result_time"]
    rows = found.selectExpr("a IS NULL AS is_punctuation", "result_time IS NULL AS is_unknown").distinct()
    assert Counter(map(tuple, rows.collect())) == Counter([(True, True), (False, False)])


def test_a_watermark_behind_streams_without_one(frame: DataFrame, tmp_path: Path) -> None:
    """Spark allows ``withWatermark`` on a column of a result if no input has a watermark."""
    raw = replay(frame, [range(60), range(60, 120)], tmp_path)
    pairs = th.join({"a": raw, "b": raw}, on="a.id = b.id", model=th.Biclique(1))
    timed = pairs.select("a.id", "a.t").withWatermark("t", "70 seconds")
    counts = timed.groupBy(F.window("t", "5 minutes")).count().select("window.end", "count")
    found = outcome(counts, ["*"], tmp_path)
    whole = frame.groupBy(F.window("t", "5 minutes")).count().select("window.end", "count").collect()
    end = max(found.watermarks_ms.values())
    settled = Counter(tuple(row) for row in whole if row[0].timestamp() * 1000 <= end)
    assert found.rows == settled
    assert len(settled) > 3
