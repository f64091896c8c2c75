"""The handshake chain on Spark: disorder, lateness, failure with letters in flight, refused queries."""

import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import read_watermarks
from thetastream.core.errors import InvalidQuery, QueryError

FILES, ROWS = 4, 60
WINDOW_S = 20
START_S = 1_700_000_000


def files(seed: int) -> dict[str, list[pa.Table]]:
    """Make tuples of two streams, with one file per epoch; some are 14 s late, and some have NULLs."""
    random = np.random.default_rng(seed)
    made: dict[str, list[pa.Table]] = {"a": [], "b": []}
    for epoch in range(FILES):
        for tables in made.values():
            seconds = START_S + epoch * 8 + random.integers(-14, 8, ROWS)
            keys = [None if key == 0 else int(key) for key in random.integers(0, 6, ROWS)]
            tables.append(
                pa.table(
                    {
                        "id": epoch * ROWS + np.arange(ROWS) + 2**53,
                        "k": pa.array(keys, pa.int64()),
                        "v": random.integers(0, 50, ROWS),
                        "tags": [[int(n), None] for n in seconds % 7],
                        "ts": pa.array([datetime.fromtimestamp(int(s), UTC) for s in seconds]),
                    }
                )
            )
    return made


def bring(folder: Path, tables: dict[str, list[pa.Table]]) -> None:
    for alias, parts in tables.items():
        (folder / alias).mkdir()
        for number, table in enumerate(parts):
            path = folder / alias / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_600_000_000 + number,) * 2)  # Spark reads files in the order of their age.


def answer(tables: dict[str, list[pa.Table]], late_ms: dict[int, int]) -> Counter:
    a, b = (
        [
            row
            for epoch, table in enumerate(parts)
            for row in table.to_pylist()
            if row["ts"].timestamp() * 1000 > late_ms.get(epoch, 0)
        ]
        for parts in tables.values()
    )
    return Counter(
        (left["id"], right["id"])
        for left in a
        for right in b
        if left["k"] == right["k"] is not None
        and left["v"] >= right["v"]
        and abs((left["ts"] - right["ts"]).total_seconds()) <= WINDOW_S
        and left["tags"][0] + right["tags"][0] > 3
        and (left["id"] + right["id"]) % 2
    )


def odd_unless(flag: Path) -> th.predicate:
    """Make a predicate that is true if identifiers add up to an odd number; it raises while a file exists."""

    @th.predicate(a=["id"], b=["id"])
    def odd(a, b):
        if flag.exists():
            raise RuntimeError("on purpose")
        return (np.asarray(a.id) + np.asarray(b.id)) % 2 == 1

    return odd


def join(spark: SparkSession, folder: Path, block: int) -> DataFrame:
    streams = {
        alias: spark.readStream.schema("id long, k long, v long, tags array<long>, ts timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / alias))
        .withWatermark("ts", "5 seconds")
        for alias in "ab"
    }
    on = ["a.k = b.k AND a.v >= b.v", "a.tags[0] + b.tags[0] > 3", odd_unless(folder / "fail")]
    model = th.Chain(workers=3, block=block)
    return th.join(streams, on, f"{WINDOW_S} seconds", model, mailbox=str(folder / "mail"))


def start(frame: DataFrame, folder: Path, **trigger):
    writer = frame.selectExpr("a.id AS a", "b.id AS b", "a.tags AS tags").writeStream.format("parquet")
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "cp"))
    return writer.trigger(**trigger).start()


def wait_for_error(metrics: Path) -> str:
    """Wait until the lines of metrics say why a query has ended. Spark reports the end a moment later."""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        for line in map(json.loads, metrics.read_text().splitlines()):
            if line.get("error"):
                return str(line["error"])
        time.sleep(0.1)
    raise AssertionError("no line of metrics has an error")


@pytest.mark.slow
def test_a_chain_goes_on_with_letters_under_way(spark: SparkSession, tmp_path: Path) -> None:
    tables = files(seed=5)
    bring(tmp_path, tables)
    query = start(join(spark, tmp_path, block=8), tmp_path, processingTime="0 seconds")
    while len(query.recentProgress) < 2:
        query.awaitTermination(0.1)
    export = th.export_metrics(spark, port=None, json_lines=tmp_path / "metrics.jsonl")
    (tmp_path / "fail").touch()
    with pytest.raises(StreamingQueryException, match="PREDICATE_RAISED"):
        query.awaitTermination()
    error = wait_for_error(tmp_path / "metrics.jsonl")
    assert error.startswith("PredicateError: [PREDICATE_RAISED] ")
    export.stop()
    watermarks = dict(read_watermarks(query))
    (tmp_path / "fail").unlink()
    # Blocks may have another size when the query is started again.
    query = start(join(spark, tmp_path, block=16), tmp_path, availableNow=True)
    query.awaitTermination()
    watermarks |= dict(read_watermarks(query))
    expected = answer(tables, {epoch: watermarks.get(epoch - 1, 0) for epoch in range(FILES)})
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(expected) > 100
    assert Counter((row.a, row.b) for row in found) == expected
    assert all(row.tags[1] is None for row in found)
    counted = th.metrics(query)
    assert sum(epoch["forwarded"] for epoch in counted) > ROWS
    assert sum(epoch["late"] for epoch in counted) > 0
    # No message is in flight any more.
    assert counted[-1]["forwarded"] == 0


def test_batch_frames_have_no_epochs_to_wait_for(spark: SparkSession) -> None:
    frame = spark.range(50)
    on = "a.id BETWEEN b.id - 1 AND b.id + 1"
    assert th.join({"a": frame, "b": frame}, on, model=th.Chain(3)).count() == 148


def test_what_a_chain_cannot_do_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    streams = {"a": stream, "b": stream}
    chain = th.Chain(2)
    with pytest.raises((QueryError, InvalidQuery), match="SPLIT_NEEDED"):
        th.plan(streams, "a.value = b.value", th.Rows(5), chain)
    with pytest.raises((QueryError, InvalidQuery), match="LATE_RESULTS"):
        th.plan({**streams, "c": stream}, "a.value = b.value AND b.value = c.value", "1 second", chain)
    text = "SELECT ONLINE DISTINCT a.value FROM a, b WHERE a.value < b.value WITHIN 1 second"
    with pytest.raises((QueryError, InvalidQuery), match="LATE_RESULTS"):
        th.sql(spark, text, streams=streams, model=chain)
    plan = th.plan(streams, "a.value = b.value", "1 second", th.Chain(2), mailbox=str(tmp_path))
    text = plan.explain()
    assert "block: J(b) = " in text
    assert "least at b = " in text
    assert "Chain(workers=2), as asked for" in text
