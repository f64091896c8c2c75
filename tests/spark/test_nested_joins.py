"""Outer, semi, anti and nearest joins in a row, in SQL: beside Spark's own batch joins, and on streams."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.answer_streams import (
    DELAY_S,
    EPOCHS,
    LEFT,
    RIGHT,
    ROWS,
    SCHEMA,
    WITHIN_S,
    make_rows,
)
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.core.errors import QueryError

THIRD = make_rows(3)
ROWS_OF = {"a": LEFT, "b": RIGHT, "c": THIRD}


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {
        alias: spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
        .drop("tags")
        .localCheckpoint()
        for alias, rows in ROWS_OF.items()
    }


def write_window(new: str, *known: str) -> str:
    """Write the window of a new tuple over the tuples of a row, of which some may be NULL."""
    times = ", ".join(f"{alias}.ts" for alias in (*known, known[0]))
    return (
        f"{new}.ts >= greatest({times}) - INTERVAL {WITHIN_S} SECONDS "
        f"AND {new}.ts <= least({times}) + INTERVAL {WITHIN_S} SECONDS"
    )


STATEMENTS = [
    "SELECT a.id, b.id AS bid, c.id AS cid FROM a LEFT JOIN b ON a.x = b.x {ab} "
    "LEFT JOIN c ON abs(a.x - c.x) <= 1 AND (b.y < c.y) {abc}",
    "SELECT a.id, b.id AS bid, c.id AS cid FROM a LEFT JOIN b ON abs(a.x - b.x) <= 1 {ab} "
    "LEFT JOIN c ON a.x = c.x AND a.y > 3 {abc} WHERE b.y > 2 OR b.id IS NULL",
    "SELECT a.id, c.id AS cid FROM a JOIN b ON a.x = b.x {ab} FULL JOIN c ON b.x < c.x AND c.y > 5 {abc}",
    "SELECT * FROM a RIGHT JOIN b ON a.x = b.x {ab} LEFT ANTI JOIN c ON b.x = c.x {abc}",
    "SELECT a.id, c.id AS cid FROM a LEFT SEMI JOIN b ON a.x = b.x {ab} LEFT JOIN c ON a.x > c.x {ac}",
    # A part of each condition is evaluated behind the units.
    "SELECT a.id, b.id AS bid, c.id AS cid FROM a LEFT JOIN b ON a.x = b.x AND a.y + b.y > 6 {ab} "
    "LEFT JOIN c ON abs(a.x - c.x) <= 1 AND (a.y + c.y) % 2 = 0 {abc}",
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_rows_of_sparks_batch_joins(spark: SparkSession, statement: str) -> None:
    given = {alias: frame.where("ts IS NOT NULL") for alias, frame in frames(spark).items()}
    for alias, frame in given.items():
        frame.createOrReplaceTempView(alias)
    windows = {
        "ab": write_window("b", "a"),
        "abc": write_window("c", "a", "b"),
        "ac": write_window("c", "a"),
    }
    ours = statement.format(**dict.fromkeys(windows, "")) + f" WITHIN {WITHIN_S} seconds"
    own = statement.format(**{name: f"AND {text}" for name, text in windows.items()})
    found, expected = th.sql(spark, ours), spark.sql(own)
    assert found.columns == expected.columns
    rows = Counter(map(tuple, found.collect()))
    assert rows == Counter(map(tuple, expected.collect()))
    assert len(rows) > 10


def is_near(*rows: dict[str, Any]) -> bool:
    """Whether all rows are inside the window of each other."""
    times = [row["ts"] for row in rows]
    return max(times) - min(times) <= timedelta(seconds=WITHIN_S)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 6])
def test_two_left_joins_on_streams(spark: SparkSession, tmp_path: Path, limit: int | None) -> None:
    """A left tuple without partners waits in both joins, and no row is late at the second one.

    With a limit, a part of each condition is evaluated behind the units.
    """

    def exceeds(x: dict[str, Any], y: dict[str, Any]) -> bool:
        return limit is None or x["y"] + y["y"] > limit

    first, second = ("", "") if limit is None else (f"AND a.y + b.y > {limit}", f"AND a.y + c.y > {limit}")
    epochs = [range(e * ROWS, (e + 1) * ROWS) for e in range(EPOCHS)]
    given = {
        alias: replay(frame, epochs, tmp_path).withWatermark("ts", f"{DELAY_S} seconds")
        for alias, frame in frames(spark).items()
    }
    joined = th.sql(
        spark,
        f"SELECT a.id, b.id AS bid, c.id AS cid FROM a LEFT JOIN b ON a.x = b.x {first} "
        f"LEFT JOIN c ON abs(a.x - c.x) <= 1 {second} "
        f"WITHIN {WITHIN_S} seconds",
        given,
    )
    found = outcome(joined, ["id", "bid", "cid"], tmp_path)

    def keep_timely(rows: list[Any]) -> list[Any]:
        late_ms = [found.late_ms(row["id"] // ROWS) for row in rows]
        return [
            row
            for row, late in zip(rows, late_ms, strict=True)
            if row["ts"] is not None and row["ts"].timestamp() * 1000 > late
        ]

    left, right, third = (keep_timely(rows) for rows in ROWS_OF.values())
    expected: Counter[Any] = Counter()
    for a in left:
        pairs = [
            b for b in right if is_near(a, b) and a["x"] is not None and a["x"] == b["x"] and exceeds(a, b)
        ]
        for b in pairs or [None]:
            row = [known for known in (a, b) if known is not None]
            more = [
                c
                for c in third
                if is_near(*row, c)
                and None not in (a["x"], c["x"])
                and abs(a["x"] - c["x"]) <= 1
                and exceeds(a, c)
            ]
            for c in more or [None]:
                expected[tuple(known and known["id"] for known in (a, b, c))] += 1
    # The last epoch has the last watermark, which decides all rows before it.
    last = (EPOCHS - 1) * ROWS
    rows = Counter({row: n for row, n in found.rows.items() if row[0] < last})
    timeless = {row["id"] for row in LEFT if row["ts"] is None}
    assert {row[0] for row in rows} & timeless == {number for number in timeless if number < last}
    assert Counter({row: n for row, n in rows.items() if row[0] not in timeless}) == Counter(
        {row: n for row, n in expected.items() if row[0] < last}
    )
    assert any(row[1] is None and row[2] is not None for row in rows)


AS_OF = [
    ("ASOF JOIN b ON a.x = b.x AND a.ts >= b.ts", "a.ts - b.ts", "a.x = b.x AND a.ts >= b.ts", ""),
    (
        "LEFT JOIN b EXACT NEAREST 2 BY DISTANCE abs(a.y - b.y) ON abs(a.x - b.x) <= 3",
        "abs(a.y - b.y)",
        "abs(a.x - b.x) <= 3",
        "LEFT",
    ),
]


@pytest.mark.parametrize(("join", "by", "on", "kind"), AS_OF)
def test_nearest_joins(spark: SparkSession, join: str, by: str, on: str, kind: str) -> None:
    for alias, frame in frames(spark).items():
        frame.where("ts IS NOT NULL").createOrReplaceTempView(alias)
    found = th.sql(spark, f"SELECT a.id, b.id AS bid FROM a {join} WHERE a.y < 8 WITHIN {WITHIN_S} seconds")
    window, k = write_window("b", "a"), 2 if kind else 1
    ranks = f"rank() OVER (PARTITION BY a.id ORDER BY {by})"
    own = spark.sql(
        f"SELECT id, bid FROM (SELECT a.id, a.y, b.id AS bid, {ranks} AS n FROM a {kind} JOIN b "
        f"ON {on} AND {window}) WHERE n <= {k} AND y < 8"
    )
    rows = Counter(map(tuple, found.collect()))
    assert rows == Counter(map(tuple, own.collect()))
    assert len(rows) > 10


REFUSED = {
    "HOW": "SELECT a.id FROM a LEFT JOIN b ON a.x = b.x LEFT JOIN c ON a.x = c.x WITHIN 10 ROWS",
    "UNDECIDED": "SELECT a.id FROM a LEFT JOIN b ON a.x = b.x LEFT JOIN c ON a.x = c.x",
    "UNKNOWN_ALIAS": "SELECT a.id FROM a LEFT JOIN b ON a.x = c.x LEFT JOIN c ON a.x = c.x WITHIN 1 minute",
}


@pytest.mark.parametrize(("name", "statement"), REFUSED.items())
def test_refused_by_name(spark: SparkSession, name: str, statement: str) -> None:
    rate = spark.readStream.format("rate").load()
    stream = rate.selectExpr("value AS id", "value AS x", "timestamp AS ts").withWatermark("ts", "1 second")
    with pytest.raises(QueryError, match=name):
        th.sql(spark, statement, dict.fromkeys("abc", stream))


def test_explain_shows_the_joins_in_their_order(spark: SparkSession) -> None:
    text = "SELECT a.id FROM a LEFT JOIN b ON a.x = b.x FULL JOIN c ON a.x = c.x WITHIN 1 minute"
    given = {alias: frame.where("ts IS NOT NULL") for alias, frame in frames(spark).items()}
    plan = th.sql(spark, f"EXPLAIN {text}", given).collect()[0][0]
    assert plan.startswith("== Joins in a row ==\n((a LEFT JOIN b) FULL JOIN c)\n")
    assert "== Join 2 ==" in plan


def test_a_later_ranking_reads_columns_that_nothing_else_reads(spark: SparkSession) -> None:
    """The rows of the first join have the column ``a.y`` only because the second join ranks by it."""
    given = {alias: frame.where("ts IS NOT NULL") for alias, frame in frames(spark).items()}
    found = th.sql(
        spark,
        "SELECT a.id, c.id AS cid FROM a LEFT JOIN b ON a.x = b.x "
        f"JOIN c NEAREST 1 BY DISTANCE abs(a.y - c.y) ON a.x = c.x WITHIN {WITHIN_S} seconds",
        given,
    )
    assert found.columns == ["id", "cid"]
