"""Wide values: Arrow batches and blocks stay small, answers are exact, and a huge tuple is refused."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.spark import wide_rows
from thetastream.spark.wide_rows import drop_fillers

N = 60
WIDTH = "IF(id % 3 = 0, 300000, 10)"


def wide(spark: SparkSession, width: str = WIDTH, rows: int = N) -> DataFrame:
    return spark.range(rows).selectExpr(
        "id",
        "timestamp_seconds(1700000000 + id) AS ts",
        f"repeat('w', {width}) AS text",
        f"IF(id % 7 = 0, NULL, array(repeat('v', {width}), NULL)) AS list",
        f"named_struct('p', id, 'q', map('k', repeat('u', {width}))) AS nested",
    )


@pytest.mark.slow
def test_wide_values_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A stream joins itself, with 18 MB of values. A batch of 100 rows holds 80 KB and one tuple."""
    frame = wide(spark)
    stream = replay(frame.select("id"), [range(40), range(40, N)], tmp_path, by_key=True)
    stream = stream.join(frame, "id").withWatermark("ts", "1 minute")
    sizes = ["length(a.text)", "length(b.list[0])", "length(a.nested.q['k'])", "b.nested.p"]
    with configured(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}):
        joined = th.join({"a": stream, "b": stream}, "abs(a.id - b.id) <= 1", "1 minute", th.Biclique(2))
        found = outcome(joined.selectExpr("a.id AS a", "b.id AS b", *sizes), ["*"], tmp_path)

    def width(n: int) -> int:
        return 300_000 if n % 3 == 0 else 10

    pairs = [(a, b) for a in range(N) for b in range(N) if abs(a - b) <= 1]
    expected = [(a, b, width(a), None if b % 7 == 0 else width(b), width(a), b) for a, b in pairs]
    assert found.rows == Counter(expected)


def test_arrow_batches_of_wide_rows_are_small(spark: SparkSession) -> None:
    """Of 60 rows, 20 have 900 KB each. Without rows behind them, they would all be in one batch."""
    filled = wide_rows.fill_up(wide(spark).drop("ts").coalesce(1), "a")

    def measure(batches):
        import pyarrow as pa

        for batch in batches:
            tuples = drop_fillers(batch)
            yield pa.RecordBatch.from_pydict({"rows": [tuples.num_rows], "nbytes": [tuples.nbytes]})

    with configured(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "200"}):
        found = filled.mapInArrow(measure, "rows long, nbytes long").collect()
    assert sum(row.rows for row in found) == N
    assert max(row.nbytes for row in found) <= 200 * wide_rows.STEP + 1_000_000
    narrow = spark.range(5).selectExpr(
        "id", "CAST(id AS DECIMAL(9, 2)) AS d", "struct(id, current_date()) AS s"
    )
    assert wide_rows.fill_up(narrow, "a") is narrow


def test_a_tuple_that_no_block_can_hold_is_refused_by_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "LARGEST_TUPLE", 100_000)
    streams = {"a": wide(spark, "10", 4), "b": wide(spark, "50000 * id", 3)}
    joined = th.join(streams, on="a.id = b.id", within=None)
    with pytest.raises(Exception, match=r"\[TUPLE_TOO_LARGE\] a tuple of stream 'b' has 150\d\d\d bytes"):
        joined.collect()


@pytest.mark.slow
def test_one_large_tuple_a_side_and_large_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """10 MB against 300 small tuples on each side, and then an epoch of 600 tuples of 1 MB."""
    for name, width, rows, on, n_pairs in (
        ("one", "IF(id = 0, 10000000, 10)", 301, "abs(a.id - b.id) <= 1000 AND a.id * b.id = 0", 601),
        ("many", "1000000", 600, "a.id = b.id", 600),
    ):
        frame = spark.range(rows).selectExpr("id", "timestamp_seconds(1700000000 + id) AS ts")
        stream = replay(frame, [range(rows)], tmp_path)
        stream = stream.selectExpr("*", f"repeat('w', {width}) AS text").withWatermark("ts", "1 hour")
        joined = th.join({"a": stream, "b": stream}, on, "1 hour", th.Biclique(1))
        found = outcome(joined.selectExpr("a.id", "b.id", "length(a.text) + length(b.text)"), ["*"], tmp_path)
        assert sum(found.rows.values()) == n_pairs, name
