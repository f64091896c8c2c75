"""SQL over streams whose columns differ by case only, in a session that compares names case-sensitively."""

from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured

WINDOW = "abs(unix_seconds({0}.ts) - unix_seconds({1}.ts)) <= 5"
AB, AC, BC = (WINDOW.format(*pair) for pair in ("ab", "ac", "bc"))
ROWS = 30
STATEMENTS = [
    ("SELECT id, bid, X FROM a LEFT JOIN b ON X = k{} WHERE x > 2", (f" AND {AB}",)),
    (
        "SELECT id, bid, cid FROM a LEFT JOIN b ON X = k{} LEFT JOIN c ON x = Y AND (K > y) IS NOT FALSE{}",
        (f" AND {AB}", f" AND {AC} AND ({BC}) IS NOT FALSE"),
    ),
    ("SELECT id, x, X FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE X = k AND x > K{})", (f" AND {AB}",)),
    ("SELECT X, count(*), sum(K) FROM a JOIN b ON x = k{} GROUP BY X", (f" AND {AB}",)),
]
"""Statements, and the windows of their joins as Spark's own joins need them."""


PER_TUPLE = STATEMENTS[1:3]
"""The statements that run over streams too."""


def make_frame(spark: SparkSession, names: str, factor: int) -> DataFrame:
    """Build rows with an identifier, an event time, and two columns of small numbers."""
    values = [(n, n % 13, n * factor % 7, n * factor % 5) for n in range(ROWS)]
    # These two rows have no partners. In a stream, the first one moves the watermark beyond all windows
    # before it, and the epoch of the second one decides the rows of these windows.
    values += [(ROWS, 1000, factor * 100, factor * 100), (ROWS + 1, 1000, factor * 100, factor * 100)]
    seconds, *others = names.split()
    return (
        spark.createDataFrame(values, f"{seconds} int, s int, {others[0]} int, {others[1]} int")
        .selectExpr(seconds, "timestamp_seconds(s) AS ts", *others)
        .localCheckpoint()
    )


def make_frames(spark: SparkSession) -> dict[str, DataFrame]:
    """Build the inputs of the statements."""
    names = {"a": "id x X", "b": "bid k K", "c": "cid y Y"}
    return {
        alias: make_frame(spark, names[alias], factor) for alias, factor in zip("abc", (3, 2, 4), strict=True)
    }


@pytest.mark.slow
def test_names_that_differ_by_case_are_two(spark: SparkSession) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        frames = make_frames(spark)
        for alias, frame in frames.items():
            frame.createOrReplaceTempView(alias)
        ours, own = [], []
        for text, windows in STATEMENTS:
            head, *groups = text.format("", "").partition(" GROUP BY")
            ours.append(th.sql(spark, f"{head} WITHIN 5 seconds{''.join(groups)}"))
            own.append(spark.sql(text.format(*windows)))
        # A second frame has the columns of the first one, and USING merges one of them.
        other = frames["a"].withColumnRenamed("id", "bid")
        text = "SELECT id, bid, x FROM a JOIN d USING (x) WITHIN 5 seconds"
        ours.append(th.sql(spark, text, {"a": frames["a"], "d": other}))
        other.createOrReplaceTempView("d")
        own.append(spark.sql(f"SELECT id, bid, a.x FROM a JOIN d ON a.x = d.x AND {WINDOW.format('a', 'd')}"))
        found, expected = (
            Counter(map(tuple, reduce(DataFrame.unionAll, each).collect())) for each in (ours, own)
        )
    assert found == expected
    assert found.total() > 100


@pytest.mark.slow
@pytest.mark.parametrize("statement", PER_TUPLE)
def test_streams_keep_names_that_differ_by_case_apart(
    spark: SparkSession, tmp_path: Path, statement: tuple[str, tuple[str, ...]]
) -> None:
    text, windows = statement
    epochs = [range(ROWS // 2), range(ROWS // 2, ROWS), [ROWS], [ROWS + 1]]
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        streams = {}
        for alias, frame in make_frames(spark).items():
            key = frame.columns[0]
            frame.where(F.col(key) < ROWS).createOrReplaceTempView(alias)
            streams[alias] = replay(frame, epochs, tmp_path, key).withWatermark("ts", "1 minute")
        own = Counter(map(tuple, spark.sql(text.format(*windows)).collect()))
        ours = th.sql(spark, f"{text.format('', '')} WITHIN 5 seconds", streams)
        found = outcome(ours, ours.columns, tmp_path).rows
    assert found == own
    assert own.total() > 5
