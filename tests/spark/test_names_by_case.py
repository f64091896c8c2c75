"""SQL over streams whose columns differ by case only, in a session that compares names case-sensitively."""

from collections import Counter
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.truth import configured

WINDOW = "abs(unix_seconds({0}.ts) - unix_seconds({1}.ts)) <= 5"
AB, AC, BC = (WINDOW.format(*pair) for pair in ("ab", "ac", "bc"))
STATEMENTS = [
    ("SELECT id, bid, X FROM a LEFT JOIN b ON X = k{} WHERE x > 2", (f" AND {AB}",)),
    (
        "SELECT id, bid, cid FROM a LEFT JOIN b ON X = k{} LEFT JOIN c ON x = Y AND (K > y) IS NOT FALSE{}",
        (f" AND {AB}", f" AND {AC} AND ({BC}) IS NOT FALSE"),
    ),
    ("SELECT X, count(*), sum(K) FROM a JOIN b ON x = k{} GROUP BY X", (f" AND {AB}",)),
]
"""Statements, and the windows of their joins as Spark's own joins need them."""


def make_frame(spark: SparkSession, names: str, factor: int) -> DataFrame:
    """Build rows with an identifier, an event time, and two columns of small numbers."""
    values = [(n, n % 13, n * factor % 7, n * factor % 5) for n in range(30)]
    seconds, *others = names.split()
    return (
        spark.createDataFrame(values, f"{seconds} int, s int, {others[0]} int, {others[1]} int")
        .selectExpr(seconds, "timestamp_seconds(s) AS ts", *others)
        .localCheckpoint()
    )


def test_names_that_differ_by_case_are_two(spark: SparkSession) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        frames = {
            "a": make_frame(spark, "id x X", 3),
            "b": make_frame(spark, "bid k K", 2),
            "c": make_frame(spark, "cid y Y", 4),
        }
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
