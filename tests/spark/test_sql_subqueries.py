"""Subqueries in WHERE, beside Spark's own batch answers: IN, NOT IN and EXISTS, with NULL on both sides."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.answer_streams import WITHIN_S, frames
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.core.errors import QueryError

WINDOW = f"abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    found = {
        alias: frame.drop("tags").where("ts IS NOT NULL").localCheckpoint()
        for alias, frame in zip("ab", frames(spark), strict=True)
    }
    for alias, frame in found.items():
        frame.createOrReplaceTempView(alias)
    yield found
    for alias in found:
        spark.catalog.dropTempView(alias)


STATEMENTS = [
    # x is NULL in some rows of both sides. A NULL among the partners leaves no row, and so does a NULL value.
    "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b WHERE b.y < 4 {})",
    "SELECT id FROM a WHERE x IN (SELECT x FROM b WHERE y < a.y {})",
    "SELECT id FROM a WHERE NOT x IN (SELECT x FROM b WHERE x IS NOT NULL AND y > 5 {}) AND x > 2",
    "SELECT id FROM a WHERE NOT (a.x NOT IN (SELECT b.x + 1 FROM b WHERE b.y < 5 {}))",
    "SELECT id FROM a WHERE (x, id % 3) NOT IN (SELECT x, id % 3 FROM b WHERE b.y < 5 {})",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE x = a.x AND y > 5 {}) AND y < 8",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_rows_of_sparks_batch_answers(
    spark: SparkSession, views: dict[str, DataFrame], statement: str
) -> None:
    found = th.sql(spark, statement.format("") + f" WITHIN {WITHIN_S} seconds")
    expected = spark.sql(statement.format(f"AND {WINDOW}"))
    rows = Counter(map(tuple, found.collect()))
    assert rows == Counter(map(tuple, expected.collect()))
    assert 0 < len(rows) < views["a"].count()


@pytest.mark.slow
def test_subqueries_without_a_window(spark: SparkSession, views: dict[str, DataFrame]) -> None:
    for statement in (
        "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b WHERE y > 9.5)",
        "SELECT id FROM a WHERE x IN (SELECT max(x) AS x FROM b GROUP BY y)",
        "SELECT id FROM a WHERE x IN (SELECT x FROM a WHERE y > 5) "
        "AND id NOT IN (SELECT id FROM b WHERE y > 7)",
        "SELECT id FROM a WHERE x IN (SELECT x FROM a WHERE y > 3) AND id IN (SELECT id FROM b WHERE y > 2) "
        "AND NOT EXISTS (SELECT 1 FROM b c WHERE c.x = a.x AND c.y > 8)",
    ):
        found, expected = th.sql(spark, statement), spark.sql(statement)
        assert Counter(map(tuple, found.collect())) == Counter(map(tuple, expected.collect()))
        assert found.count() > 0


def test_not_in_uses_the_index_where_nothing_is_null(
    spark: SparkSession, views: dict[str, DataFrame]
) -> None:
    text = "EXPLAIN SELECT id FROM a WHERE {} x NOT IN (SELECT x FROM b WHERE {}) WITHIN 1 minute"
    safe = th.sql(spark, text.format("x IS NOT NULL AND", "b.x IS NOT NULL")).collect()[0][0]
    assert "equality 0" in safe
    assert "residual" not in safe
    unsafe = th.sql(spark, text.format("", "b.x IS NOT NULL")).collect()[0][0]
    assert "residual:    ((a.x) = (b.x)) IS NOT FALSE" in unsafe


@pytest.mark.slow
def test_not_in_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    """A NULL partner, or a NULL value with a partner, leaves no row; without partners, NULL is a row."""
    rows = "SELECT * FROM VALUES {} AS t(id, x, s)"
    left = "(1L, 1, 0), (2L, 2, 0), (3L, NULL, 0), (4L, 2, 100), (5L, NULL, 200), (6L, 1, 400), (7L, 1, 900)"
    right = "(1L, 1, 1), (2L, 3, 2), (3L, NULL, 101), (6L, 1, 500), (7L, 1, 900)"
    given = {
        alias: replay(
            spark.sql(rows.format(values))
            .selectExpr("id", "x", "timestamp_seconds(s) AS ts")
            .localCheckpoint(),
            [[1, 2, 3], [4, 5], [6], [7]] if alias == "a" else [[1, 2], [3], [6], [7]],
            tmp_path,
        ).withWatermark("ts", "0 seconds")
        for alias, values in {"a": left, "b": right}.items()
    }
    joined = th.sql(spark, "SELECT id FROM a WHERE x NOT IN (SELECT x FROM b) WITHIN 50 seconds", given)
    assert outcome(joined, ["id"], tmp_path).rows == Counter({(2,): 1, (5,): 1, (6,): 1})


def test_refused_in_words_of_the_statement(spark: SparkSession, views: dict[str, DataFrame]) -> None:
    with pytest.raises(QueryError, match=r"UNSUPPORTED_SQL.*FROM \(SELECT \.\.\. FROM a, b"):
        th.sql(spark, "SELECT a.id FROM a, b WHERE a.x = b.x AND a.id IN (SELECT id FROM b) WITHIN 1 day")
