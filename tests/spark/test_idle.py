"""A stream with ``idle=`` that brings nothing does not hold the watermark, also after a restart."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from thetastream.spark.running import is_marked

MOMENT = "timestamp '2026-01-05 09:30:00' + make_dt_interval(0, 0, 0, second)"


class Input:
    """A folder of JSON files as a stream, which grows while a query runs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        folder.mkdir()
        self._spark, self._folder, self._n = spark, folder, 0

    def put(self, *rows: tuple[int, int]) -> None:
        self._n += 1
        path = self._folder / f"{self._n}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("\n".join(json.dumps({"id": n, "second": second}) for n, second in rows))
        hidden.rename(path)

    def read(self) -> DataFrame:
        raw = self._spark.readStream.schema("id INT, second INT").json(str(self._folder))
        return raw.selectExpr("id", f"{MOMENT} AS ts")


def wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_silent_stream_does_not_hold_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    a, b = Input(spark, tmp_path / "a"), Input(spark, tmp_path / "b")
    streams = {
        "a": th.with_watermark(a.read(), "ts", "10s"),
        "b": th.with_watermark(b.read(), "ts", "20s", idle="2 seconds").where("id < 100"),
    }
    pairs = th.join(streams, on="a.id >= b.id", within="1 minute", model=th.Biclique((1, 1)))
    writer = pairs.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))

    def has_passed(minute: int, second: int) -> bool:
        epochs = th.metrics(query)
        return bool(epochs) and epochs[-1]["watermark"] == f"2026-01-05T09:{minute}:{second}.000Z"

    a.put((1, 0), (2, 30))
    b.put((1, 1))
    query = writer.start()
    wait(lambda: has_passed(29, 41))  # b holds it, 20 seconds behind its tuple
    assert is_marked(query.id)
    a.put((3, 300))
    # 1. Stream b is silent. Spark's watermark follows a all the same, and state expires.
    wait(lambda: has_passed(34, 50))
    assert th.metrics(query)[-1]["held"] == 1
    # 2. A tuple behind the watermark is late, and one after it is joined.
    b.put((1, 100), (2, 295))
    query.processAllAvailable()
    epochs = th.metrics(query)
    assert sum(epoch["late"] for epoch in epochs) == 1
    assert sum(epoch["matched"] for epoch in epochs) == 3
    query.stop()
    wait(lambda: not is_marked(query.id))
    # 3. After a restart, the stream is idle again after the same time.
    a.put((4, 600))
    query = writer.start()
    wait(lambda: has_passed(39, 50))
    assert sum(epoch["late"] for epoch in th.metrics(query)) == 0
    query.stop()


def test_all_steps_report_all_streams(spark: SparkSession, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("value AS x", "timestamp AS ts")
    streams = {
        name: th.with_watermark(rate, "ts", "1s", idle="5m" if name == "c" else None) for name in "abc"
    }
    plan = th.plan(streams, on="a.x < b.x AND b.x < c.x", within="1 minute")
    for step in plan.steps:  # type: ignore[attr-defined]
        assert [stream.alias for stream in step.settings.idle.streams] == ["a", "b", "c"]
    assert th.plan({"a": streams["a"], "b": streams["b"]}, on="a.x < b.x", within="1m").settings.idle is None  # type: ignore[attr-defined]


def test_idle_is_refused(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    for idle in ("soon", "0 seconds", "-5 minutes", 5):
        with pytest.raises(th.QueryError, match=r"INVALID_DURATION.*idle must be a span of time above zero"):
            th.with_watermark(rate, "timestamp", "1s", idle=idle)  # type: ignore[arg-type]
    with pytest.raises(th.QueryError, match=r"UNKNOWN_COLUMN.*'ts'.*timestamp, value"):
        th.with_watermark(rate, "ts", "1s", idle="5m")


def test_a_batch_has_no_idle(spark: SparkSession) -> None:
    rows = spark.range(3).selectExpr("id", "timestamp_seconds(id) AS ts")
    assert th.with_watermark(rows, "ts", "1s", idle="5m").collect() == rows.collect()
