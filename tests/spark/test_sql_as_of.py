"""As-of joins in the words of other systems, and mixed numbers in rankings, beside Spark and DuckDB."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.answer_streams import WITHIN_S, frames
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.core.errors import QueryError


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> dict[str, DataFrame]:
    """Rows with one event time each, so that as-of joins have no ties."""
    columns = ["id", "timestamp_micros(unix_micros(ts) + id) AS ts", "x % 4 AS k", "y"]
    numbers = ["CAST(id * 7 % 50 AS BIGINT) AS n", "CAST(id * 11 % 50 + id / 100 AS DECIMAL(10,2)) AS d"]
    found = {
        alias: frame.where("ts IS NOT NULL")
        .selectExpr(*columns, *numbers, "CAST(y AS STRING) AS s")
        .localCheckpoint()
        for alias, frame in zip("ab", frames(spark), strict=True)
    }
    for alias, frame in found.items():
        frame.createOrReplaceTempView(alias)
    return found


def rows_of(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


AS_OF = [
    ("a ASOF JOIN b USING (k, ts)", "a ASOF JOIN b USING (k, ts)"),
    ("a LEFT ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts", "a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts"),
    (
        "a ASOF JOIN b MATCH_CONDITION (a.ts > b.ts) ON a.k = b.k",
        "a ASOF LEFT JOIN b ON a.k = b.k AND a.ts > b.ts",
    ),
    ("a JOIN b FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k", "a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"),
    ("a ASOF JOIN b ON a.n >= b.d", "a ASOF JOIN b ON a.n >= b.d"),
    ("a ASOF LEFT JOIN b ON a.k = b.k AND a.d < b.n", "a ASOF LEFT JOIN b ON a.k = b.k AND a.d < b.n"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("ours", "theirs"), AS_OF)
def test_the_rows_of_duckdb(spark: SparkSession, given: dict[str, DataFrame], ours: str, theirs: str) -> None:
    """Numbers of b repeat, and DuckDB chooses one of equal partners. So ids are compared by their number."""
    tables = duckdb.connect()
    for alias, frame in given.items():
        tables.register(alias, frame.drop("s").toArrow())
    shown = next((f"a.id, {name}" for name in ("b.n", "b.d") if name in ours), "a.id, b.id")
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        found = rows_of(th.sql(spark, f"SELECT DISTINCT {shown} FROM {ours}"))
    expected = Counter(tables.sql(f"SELECT {shown} FROM {theirs}").fetchall())
    assert found == expected
    assert len(found) > 10


RANKED = [
    ("th", "abs(a.n - b.d)", "abs(a.n - b.d)"),
    ("th", "a.d - b.n", "a.d - b.n"),
    ("th", "b.n - a.d", "b.n - a.d"),
    ("th", "b.y DESC", "b.y DESC"),
    ("th", "abs(b.n - a.d)", "abs(b.n - a.d)"),
    ("sql", "JOIN LATERAL (SELECT * FROM b WHERE b.k = a.k ORDER BY b.n DESC LIMIT 2) q ON true", "b.n DESC"),
    (
        "sql",
        "JOIN LATERAL (SELECT id FROM b q WHERE k = a.k ORDER BY abs(n - a.n) LIMIT 2) ON true",
        "abs(b.n - a.n)",
    ),
    ("sql", "JOIN b q NEAREST 2 BY DISTANCE q.k DESC NULLS FIRST ON a.y = q.y", "b.k DESC NULLS FIRST"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("door", "what", "by"), RANKED)
def test_the_ranks_of_spark(
    spark: SparkSession, given: dict[str, DataFrame], door: str, what: str, by: str
) -> None:
    on = "a.y = b.y" if "NULLS FIRST" in what else "a.k = b.k"
    if door == "th":
        joined = th.join(given, on=on, how=th.Nearest(2, by=what)).select("a.id", "b.id")
    else:
        joined = th.sql(spark, f"SELECT a.id, q.id AS other FROM a {what}")
    nulls = "" if "NULLS" in by or door == "sql" else " NULLS LAST"
    ranks = f"rank() OVER (PARTITION BY a.id ORDER BY {by}{nulls})"
    own = spark.sql(
        f"SELECT id, other FROM (SELECT a.id, b.id AS other, {ranks} AS n FROM a JOIN b ON {on}) WHERE n <= 2"
    )
    found = rows_of(joined)
    assert found == rows_of(own)
    assert len(found) > 10


def test_long_distances_of_mixed_numbers(spark: SparkSession) -> None:
    """9 * 10^18 and a decimal: the difference has more digits than a key."""
    a = spark.sql("SELECT 1 AS id, 9000000000000000000L AS n UNION ALL SELECT 2, -9000000000000000000L")
    b = spark.sql(
        "SELECT CAST(d AS DECIMAL(18,6)) AS d FROM VALUES (0.000001), (999999999999.5), (-3) AS t(d)"
    )
    for by, expected in {
        "abs(a.n - b.d)": {(1, "999999999999.500000"), (2, "-3.000000")},
        "a.n - b.d": {(1, "999999999999.500000"), (2, "999999999999.500000")},
    }.items():
        found = th.join({"a": a, "b": b}, on="true", how=th.Nearest(1, by=by))
        assert {(row[0], str(row[1])) for row in found.select("a.id", "b.d").collect()} == expected


def test_versions_on_streams(spark: SparkSession, given: dict[str, DataFrame], tmp_path: Path) -> None:
    streams = {
        alias: replay(frame, [[row.id for row in frame.select("id").collect()]], tmp_path).withWatermark(
            "ts", "0 seconds"
        )
        for alias, frame in given.items()
    }
    text = (
        "SELECT a.id, v.id AS version FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k "
        f"WITHIN {WITHIN_S} seconds"
    )
    found = outcome(th.sql(spark, text, streams), ["id", "version"], tmp_path).rows
    whole = rows_of(th.sql(spark, text, given))
    last = max(given["a"].selectExpr("max(ts)").first()[0], given["b"].selectExpr("max(ts)").first()[0])
    undecided = {
        row.id for row in given["a"].where(f"ts > TIMESTAMP '{last}' - INTERVAL 1000 SECONDS").collect()
    }
    assert {row for row in whole if row[0] not in undecided} <= set(found) <= set(whole)
    assert len(found) > 10


def test_refused_in_words_of_the_statement(spark: SparkSession, given: dict[str, DataFrame]) -> None:
    with pytest.raises(QueryError, match=r"\[NEAREST\] 'a.s >= b.s', by which .* STRING and STRING") as error:
        th.sql(spark, "SELECT a.id FROM a ASOF JOIN b ON a.s >= b.s")
    assert "by=" not in str(error.value)
    with pytest.raises(QueryError, match=r"NO_WATERMARK.*FOR SYSTEM_TIME AS OF needs the event time of 'v'"):
        th.sql(
            spark,
            "SELECT a.id FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k",
            {"a": given["a"], "b": given["b"].drop("ts")},
        )
