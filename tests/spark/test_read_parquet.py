"""Streams of ``th.read_parquet`` join as those of Spark's own reader, epoch by epoch."""

import datetime
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.spark.event_time import list_plan_lines

SCHEMA = "id LONG, x INT, t STRING, ts TIMESTAMP"
BAND = "r.x BETWEEN s.x - 10 AND s.x + 10"
WORDS = np.array(["", "a", "bcd", "žluťoučký", "a longer text, 32 bytes long....", "nul\0byte", None], object)


def write_epochs(folder: Path, numbers: range, seed: int) -> None:
    """Write a file for each epoch. Some values are NULL, and some tuples are late."""
    random = np.random.default_rng([seed, numbers.start])
    folder.mkdir(exist_ok=True)
    for number in numbers:
        n = 300
        x = [None if one % 40 == 0 else int(one) for one in random.integers(0, 2000, n)]
        times = (number + random.random(n)) * 1e7 - random.choice([0, 6e7], n, p=[0.98, 0.02])
        rows = {
            "id": pa.array(np.arange(n) + number * n),
            "x": pa.array(x, pa.int32()),
            "t": pa.array(list(random.choice(WORDS, n)), pa.string()),
            "ts": pa.array([None if one % 61 == 0 else int(one) for one in times], pa.timestamp("us", "UTC")),
        }
        path = folder / f"{number:03}.parquet"
        pq.write_table(pa.table(rows), path)
        os.utime(path, (1_600_000_000 + number,) * 2)


def read(spark: SparkSession, folder: Path, by_arrow: bool) -> DataFrame:
    if by_arrow:
        return th.read_parquet(spark, str(folder), SCHEMA, maxFilesPerTrigger=1)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def read_both(spark: SparkSession, folder: Path, by_arrow: bool) -> dict[str, DataFrame]:
    return {alias: read(spark, folder / alias, by_arrow).withWatermark("ts", "2 seconds") for alias in "rs"}


def run(pairs: DataFrame, checkpoint: Path, results: Path) -> StreamingQuery:
    writer = pairs.writeStream.format("json").option("path", str(results))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def collect(spark: SparkSession, results: Path) -> Counter[str]:
    return Counter(row.value for row in spark.read.text(str(results)).collect())


def list_counters(query: StreamingQuery) -> list[tuple[Any, ...]]:
    counters = ("timely", "late")
    return [
        (
            one["epoch"],
            one["watermark"],
            {a: [s[name] for name in counters] for a, s in one["streams"].items()},
        )
        for one in th.metrics(query)
    ]


def is_read_by_units(pairs: DataFrame, alias: str) -> bool:
    return any(line.startswith(f"MapInArrow read_and_route_{alias}_") for line in list_plan_lines(pairs))


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("r.t = s.t AND r.x < s.x AND s.x < r.x + 300", {}, "rs"),
    (BAND, {}, "rs"),
    (BAND, {"how": "left"}, "s"),  # A tuple of r is a result without a partner too.
    (f"{BAND} AND r.x > 300 AND s.x BETWEEN 100 AND 1700", {"how": "left"}, "s"),
    (f"{BAND} AND r.id % 2 = 0", {}, "s"),
    (f"{BAND} AND r.x > 300 AND 1900 >= r.x AND s.t IN ('a', 'bcd')", {}, "rs"),
    (BAND, {"model": th.Biclique(2), "max_units": 4}, "rs"),
    (BAND, {"model": th.Matrix(2, 2)}, "rs"),
    (BAND, {"order": "outer", "model": th.Split(2)}, "rs"),
    (BAND, {"how": th.Nearest(1, by="abs(r.x - s.x)")}, ""),  # Spark computes the rank.
]
"""A condition, options of the join, and the streams that units read themselves."""


def join_both(streams: dict[str, DataFrame], on: str, options: dict[str, Any], folder: Path) -> DataFrame:
    mailbox = {"mailbox": str(folder)} if "max_units" in options else {}
    return th.join(streams, on, "3 seconds", **options, **mailbox)


@pytest.mark.parametrize(("on", "options", "fused"), CASES)
def test_units_read_plain_streams_themselves(
    spark: SparkSession, tmp_path: Path, on: str, options: dict[str, Any], fused: str
) -> None:
    for alias in "rs":
        write_epochs(tmp_path / alias, range(1), 0)
    for by_arrow in (True, False):
        streams = read_both(spark, tmp_path, by_arrow)
        pairs = join_both(streams, on, options, tmp_path / f"mailbox-{by_arrow}")
        assert [a for a in "rs" if is_read_by_units(pairs, a)] == ([*fused] if by_arrow else [])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("on", "options"), [(on, options) for on, options, _ in CASES])
def test_results_and_counters_are_those_of_sparks_reader(
    spark: SparkSession, tmp_path: Path, on: str, options: dict[str, Any]
) -> None:
    for seed, alias in enumerate("rs"):
        write_epochs(tmp_path / alias, range(6), seed)
    outcomes = []
    for by_arrow in (True, False):
        streams = read_both(spark, tmp_path, by_arrow)
        pairs = join_both(streams, on, options, tmp_path / f"mailbox-{by_arrow}")
        results = tmp_path / f"results-{by_arrow}"
        query = run(pairs, tmp_path / f"checkpoint-{by_arrow}", results)
        outcomes.append((collect(spark, results), list_counters(query)))
    assert outcomes[0] == outcomes[1]
    assert sum(outcomes[0][0].values()) > 100


def test_a_checkpoint_continues_with_the_other_reader(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps the same log of files for both readers, so a query may change to the other one."""
    parts = range(3), range(3, 5), range(5, 7)
    for part, by_arrow in zip(parts, (False, True, False), strict=True):
        for seed, alias in enumerate("rs"):
            write_epochs(tmp_path / alias, part, seed)
        streams = read_both(spark, tmp_path, by_arrow)
        run(th.join(streams, BAND, "3 seconds"), tmp_path / "checkpoint", tmp_path / "results")
    streams = read_both(spark, tmp_path, False)
    run(th.join(streams, BAND, "3 seconds"), tmp_path / "once", tmp_path / "expected")
    # Each run ends with an epoch without input, so the watermark may drop what one run would keep.
    found, expected = collect(spark, tmp_path / "results"), collect(spark, tmp_path / "expected")
    assert found <= expected
    assert sum(found.values()) > 0.9 * sum(expected.values()) > 100


def test_a_join_of_one_stream_with_itself_continues_with_the_other_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A checkpoint has as many sources with both readers, or Spark would refuse to continue."""
    for part, by_arrow in enumerate((False, True, False)):
        write_epochs(tmp_path / "r", range(part, part + 1), 0)
        stream = read(spark, tmp_path / "r", by_arrow).withWatermark("ts", "1 minute")
        pairs = th.join({"r": stream, "s": stream}, f"{BAND} AND r.id < s.id", "20 seconds")
        run(pairs, tmp_path / "checkpoint", tmp_path / "results")
    found = collect(spark, tmp_path / "results")
    assert sum(found.values()) > 100
    assert max(found.values()) == 1


@pytest.mark.parametrize(
    ("on", "fused"),
    [
        ("r.x = s.x AND r.t = 'a' AND s.t = 'bcd'", ""),
        ("r.x = s.x AND r.t = 'a' AND s.t = 'a'", "rs"),
        ("r.x < s.id AND r.id < s.id", ""),  # Rows in which x is NULL are dropped on one side.
    ],
)
def test_aliases_of_one_stream_have_one_watermark(
    spark: SparkSession, tmp_path: Path, on: str, fused: str
) -> None:
    """Epoch 0 has an early row of one text and a late row of the other one, and epoch 1 lies between them."""
    rows = [
        [(1, 1, "a", 1), (2, None, "bcd", 100)],
        [(3, 2, "a", 10), (4, 2, "bcd", 10)],
        [(5, 1, "a", 102), (6, 1, "bcd", 102), (7, 1, "a", 103)],
    ]
    (tmp_path / "r").mkdir()
    for number, values in enumerate(rows):
        ids, x, texts, seconds = zip(*values, strict=True)
        times = pa.array([one * 1_000_000 for one in seconds], pa.timestamp("us", "UTC"))
        file = tmp_path / "r" / f"{number}.parquet"
        columns = {"id": pa.array(ids, pa.int64()), "x": pa.array(x, pa.int32()), "t": pa.array(texts)}
        pq.write_table(pa.table({**columns, "ts": times}), file)
        os.utime(file, (1_600_000_000 + number,) * 2)
    outcomes = []
    for by_arrow in (True, False):
        stream = read(spark, tmp_path / "r", by_arrow).withWatermark("ts", "0 seconds")
        pairs = th.join({"r": stream, "s": stream}, on, "50 seconds")
        assert "".join(a for a in "rs" if is_read_by_units(pairs, a)) == (fused if by_arrow else "")
        query = run(pairs, tmp_path / f"checkpoint-{by_arrow}", tmp_path / f"results-{by_arrow}")
        outcomes.append((collect(spark, tmp_path / f"results-{by_arrow}"), list_counters(query)))
    assert outcomes[0] == outcomes[1]


def test_keys_that_are_null_move_the_watermark_as_with_sparks_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A left tuple waits for the watermark of both streams, also if the other one brings no keys."""
    outcomes = []
    for name, nulls in (("r", False), ("s", True)):
        (tmp_path / name).mkdir()
        for number in range(4):
            x = pa.array([None if nulls else number], pa.int32())
            ts = pa.array([number * 10_000_000], pa.timestamp("us", "UTC"))
            rows = {"id": [number], "x": x, "t": ["t"], "ts": ts}
            pq.write_table(pa.table(rows), tmp_path / name / f"{number}.parquet")
            os.utime(tmp_path / name / f"{number}.parquet", (1_600_000_000 + number,) * 2)
    for by_arrow in (True, False):
        streams = {
            alias: read(spark, tmp_path / alias, by_arrow).withWatermark("ts", "0 seconds") for alias in "rs"
        }
        left = th.join(streams, BAND, "1 second", how="left")
        query = run(left, tmp_path / f"c-{by_arrow}", tmp_path / f"r-{by_arrow}")
        progress = [
            ((one["eventTime"] or {}).get("watermark"), (one["eventTime"] or {}).get("max"))
            for one in query.recentProgress
        ]
        outcomes.append((collect(spark, tmp_path / f"r-{by_arrow}"), progress))
    assert outcomes[0] == outcomes[1]
    assert sum(outcomes[0][0].values()) >= 3


def test_an_epoch_that_runs_again_reads_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    for seed, alias in enumerate("rs"):
        write_epochs(tmp_path / alias, range(4), seed)
    checkpoint = tmp_path / "checkpoint"

    def count() -> dict[int, int]:
        streams = read_both(spark, tmp_path, True)
        pairs = th.join(streams, BAND, "3 seconds")
        writer = pairs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return {one["epoch"]: one["matched"] for one in th.metrics(query)}

    before = count()
    # The last epoch with input runs again, as after a crash before its commit.
    for log, number in (("commits", 3), ("commits", 4), ("offsets", 4)):
        for name in (str(number), f".{number}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)
    assert count()[3] == before[3] > 100


def test_rows_are_those_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    """The stream is a DataFrame like any other, also without a join."""
    schema = (
        "b BOOLEAN, y TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20,3), "
        "w DECIMAL(38,9), t STRING, z BINARY, day DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, v ARRAY<FLOAT>, "
        "lacks STRING"
    )
    values = {
        "b": [True, None],
        "y": [-128, None],
        "s": [300, None],
        "i": [2**31 - 1, None],
        "l": [2**53 + 1, None],
        "f": [float("nan"), None],
        "d": [-0.0, None],
        "m": [Decimal("1.234"), None],
        "w": [Decimal("-9.999999999"), None],
        "t": ["ž", None],
        "z": [b"\0\xff", None],
        "day": [datetime.date(1969, 12, 31), None],
        "ts": [datetime.datetime(1969, 12, 31, 23, 59, 59, 5, datetime.UTC), None],
        "n": [datetime.datetime(1, 1, 1), None],
        "v": [[0.5, None], None],
    }
    names = [field.split()[0] for field in schema.split(", ")]
    typed = ", ".join(field for field in schema.split(", ") if field.split()[0] in values)
    rows = list(zip(*values.values(), strict=True))
    spark.createDataFrame(rows, typed).write.parquet(str(tmp_path / "in" / "a b%20#c"))
    found = []
    for by_arrow in (True, False):
        if by_arrow:
            stream = th.read_parquet(spark, str(tmp_path / "in" / "a b%20#c"), schema)
        else:
            stream = spark.readStream.schema(schema).parquet(str(tmp_path / "in" / "a b%20#c"))
        results = tmp_path / f"results-{by_arrow}"
        run(
            stream.select(*(F.col(name).cast("string") for name in names)),
            tmp_path / f"c-{by_arrow}",
            results,
        )
        found.append(collect(spark, results))
    assert found[0] == found[1]
    assert sum(found[0].values()) == 2


def test_only_a_stream_as_it_was_read_is_read_by_units(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "r", range(1), 0)
    stream = read(spark, tmp_path / "r", True)
    marked = stream.withWatermark("ts", "2 seconds")
    as_read = {"m": marked, "c": marked.select("TS", "x").alias("z")}
    changed = {
        "f": (marked.where("x > 3"), "Filter lies between"),
        "w": (marked.withColumn("x", F.expr("x + 1")), "a selection of computed"),
        "u": (marked.union(marked), "Union lies between"),
        "n": (stream.selectExpr("x", "ts AS t").withWatermark("t", "2 seconds"), "a selection of computed"),
    }
    for alias, (frame, why) in ({name: (one, "") for name, one in as_read.items()} | changed).items():
        streams, on = {alias: frame, "q": marked}, f"{alias}.x < q.x"
        plan = th.plan(streams, on, "3 seconds")
        pairs, explained = plan.dataframe(), plan.explain()
        assert is_read_by_units(pairs, "q") == (alias in as_read), "the watermark of both aliases is one"
        assert is_read_by_units(pairs, alias) == (not why), alias
        assert (f"{alias}: its rows go through Spark   ({why}" in explained) == bool(why)
        assert ("q: the task that reads a file routes its rows" in explained) != bool(why)
    other = read(spark, tmp_path / "r", True).withWatermark("ts", "2 seconds")
    explained = th.plan({"p": other, "q": marked}, "p.x < q.x AND q.x % 2 = 0", "3 seconds").explain()
    assert "p: the task that reads a file routes its rows" in explained
    assert "q: its rows go through Spark   (Spark evaluates q.x % 2 = 0)" in explained


def test_names_of_a_selection_may_have_another_case(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "r", range(2), 0)
    found = []
    for by_arrow in (True, False):
        stream = (
            read(spark, tmp_path / "r", by_arrow).withWatermark("ts", "2 seconds").select("ID", "X", "TS")
        )
        pairs = th.join({"r": stream, "s": stream}, BAND, "3 seconds")
        assert is_read_by_units(pairs, "r") == by_arrow
        results = tmp_path / f"results-{by_arrow}"
        run(pairs, tmp_path / f"checkpoint-{by_arrow}", results)
        found.append(collect(spark, results))
    assert found[0] == found[1]
    assert sum(found[0].values()) > 100


def test_wrong_arguments_are_refused_before_the_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((None, folder, SCHEMA), {}, "NO_SESSION"),
        ((spark, 3, SCHEMA), {}, "BAD_VALUE.*path"),
        ((spark, folder, 3), {}, "BAD_VALUE.*schema"),
        ((spark, folder, "id LUNG"), {}, "BAD_VALUE.*schema"),
        ((spark, folder, "id LONG, ID INT"), {}, "BAD_VALUE.*twice"),
        ((spark, folder, "m MAP<STRING, INT>"), {}, "BAD_VALUE.*'m' has type map"),
        ((spark, folder, "t STRING COLLATE UTF8_LCASE"), {}, "BAD_VALUE.*'t' has type string collate"),
        ((spark, folder, SCHEMA), {"maxFilesPerTriger": 1}, "BAD_VALUE.*did you mean 'maxFilesPerTrigger'"),
        ((spark, folder, "id LONG, c CHAR(3)"), {}, "BAD_VALUE.*column 'c' has type char"),
        ((spark, folder, "LONG"), {}, "BAD_VALUE.*no name of a column"),
        ((spark, folder, SCHEMA), {"maxFilesPerTrigger": [1]}, "BAD_VALUE.*maxFilesPerTrigger"),
    ]
    for positional, named, match in wrong:
        with pytest.raises(th.ThetastreamError, match=match):
            th.read_parquet(*positional, **named)


def test_a_file_of_another_type_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1], "x": [1.5]}), tmp_path / "in" / "a.parquet")
    stream = read(spark, tmp_path / "in", True).withWatermark("ts", "1 second")
    pairs = th.join({"a": stream, "b": stream}, "a.x < b.x", "1 second")
    with pytest.raises(StreamingQueryException, match=r"SOURCE_FILE.*a\.parquet has the column 'x'"):
        run(pairs, tmp_path / "checkpoint", tmp_path / "results")
