"""Wide values: Arrow batches and blocks stay small, answers are exact, and a huge tuple is refused."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.core.blocks import STEP, drop_fillers
from thetastream.spark.dataflow import wide_rows

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


def measure(batches):
    """Measure the batches that Spark makes of filled rows, and their tuples."""
    import pyarrow as pa

    for batch in batches:
        tuples = drop_fillers(batch)
        columns = {"rows": [tuples.num_rows], "nbytes": [batch.nbytes], "columns": [tuples.num_columns]}
        yield pa.RecordBatch.from_pydict(columns)


def check_batches(spark: SparkSession, frame: DataFrame) -> None:
    filled = wide_rows.fill_up(frame.coalesce(1), "a row")
    with configured(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}):
        found = filled.mapInArrow(measure, "rows long, nbytes long, columns long").collect()
    assert sum(row.rows for row in found) == N
    assert {row.columns for row in found if row.rows} == {len(frame.columns)}
    assert max(row.nbytes for row in found) <= 50 * STEP + 1_000_000


@pytest.mark.parametrize("columns", [600, pytest.param(2_000, marks=pytest.mark.slow)])
def test_arrow_batches_of_rows_with_very_many_columns_are_small(spark: SparkSession, columns: int) -> None:
    """Rows have 8 KB or more each although no value is wide, and some have a wide value too."""
    numbers = (f"id + {n} AS `c {n}`" for n in range(columns))
    check_batches(spark, spark.range(N).selectExpr(*numbers, f"repeat('w', {WIDTH}) AS text"))


def test_arrow_batches_of_wide_rows_are_small(spark: SparkSession) -> None:
    """Of 60 rows, 20 have 900 KB each. Without rows behind them, they would all be in one batch."""
    check_batches(spark, wide(spark).drop("ts"))
    narrow = spark.range(5).selectExpr(
        "id", "CAST(id AS DECIMAL(9, 2)) AS d", "struct(id, current_date()) AS s"
    )
    assert wide_rows.fill_up(narrow, "a row") is narrow


@pytest.mark.slow
def test_predicates_behind_spark_joins_and_stores_get_small_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark hands rows to Python in two more places: a predicate over a table, and a store."""
    monitored = tmp_path / "sizes"

    @th.predicate(a=["text"], t=["nested"])
    def note_bytes(a, t):
        with monitored.open("a") as file:
            file.write(f"{a.text.nbytes + t.nested.nbytes}\n")
        return pc.equal(pc.binary_length(a.text), pc.binary_length(a.text))

    frame = wide(spark, rows=20).coalesce(1)
    stream = replay(frame.select("id"), [range(20)], tmp_path, by_key=True).join(frame, "id").coalesce(1)
    table = frame.select("id", "nested").withColumnRenamed("id", "key")
    store = th.ParquetStore(str(tmp_path / "store"))
    with configured(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}):
        joined = th.join({"a": stream, "t": table}, on=["a.id = t.key", note_bytes])
        th.write(
            joined,
            store,
            select=["a.id AS id", "a.text", "t.nested AS nested"],
            checkpoint=str(tmp_path / "checkpoint"),
            trigger="available now",
        ).awaitTermination()
    sizes = [int(line) for line in monitored.read_text().split()]
    assert max(sizes[1:]) <= 20 * STEP + 1_000_000
    assert store.read().num_rows == 20


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


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "percent"), [(1_000, 100), (4_000, 1)])
def test_arrays_of_floats_need_less_than_2_gb(rows: int, percent: int) -> None:
    """Results with arrays ended the JVM, which has 1 GB: they left the units as blocks without a bound."""
    command = [sys.executable, "-m", "tests.support.arrays_of_floats", str(rows), str(percent)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout
    matched, peak = map(int, printed.split())
    assert matched == pytest.approx(rows * rows * percent / 100, rel=0.01)
    assert peak < 2_000_000_000
