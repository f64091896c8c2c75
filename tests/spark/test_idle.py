"""A stream with ``idle=`` that brings nothing does not hold the watermark, also after a restart."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support import faults
from tests.support.idle_job import KEYS, WITHIN_S
from thetastream.runtime.observe.running import is_marked

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


def wait(is_done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
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
    for step in cast(Any, plan.join).steps:
        assert [stream.alias for stream in step.planned.run.idle.streams] == ["a", "b", "c"]
    two = th.plan({"a": streams["a"], "b": streams["b"]}, on="a.x < b.x", within="1m")
    assert cast(Any, two.join).planned.run.idle is None


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


# Kills

START_S, ROUNDS = 1_700_000_000, 4


class KilledJob:
    """``tests.support.idle_job`` on files that the test writes, with the tuples that it has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times: dict[str, dict[int, int]] = {"a": {}, "b": {}}
        self._files = 0
        for alias in "ab":
            (folder / alias).mkdir()

    def put(self, alias: str, *seconds: int) -> None:
        """Write a file of tuples with these event times, in seconds after the start."""
        known = self.times[alias]
        new = {len(known) + n: second for n, second in enumerate(seconds)}
        known.update(new)
        stamps = pa.array([(START_S + second) * 10**6 for second in new.values()], pa.int64())
        path = self.folder / alias / f"{self._files:04}.parquet"
        hidden = path.with_name(f"_{path.name}")
        times = stamps.cast(pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"id": pa.array(new, pa.int64()), "ts": times}), hidden)
        os.utime(hidden, (1_600_000_000 + self._files,) * 2)
        hidden.rename(path)
        self._files += 1

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.support.idle_job", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            environment = faults.environment_of_processes()
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def read_offsets(self) -> list[Any]:
        """The lines of the newest epoch: the watermark, and what each source has read."""
        offsets = self.folder / "checkpoint" / "offsets"
        newest = max((int(path.name) for path in offsets.glob("[0-9]*")), default=None)
        if newest is None:
            return []
        return [json.loads(line) for line in (offsets / str(newest)).read_text().splitlines()[1:]]

    def watermark_s(self) -> float:
        """The watermark of the newest epoch, in seconds after the start."""
        lines = self.read_offsets()
        return lines[0]["batchWatermarkMs"] / 1000 - START_S if lines else -1.0

    def has_read_all(self) -> bool:
        """Whether an epoch has begun that reads the last file of stream a."""
        lines = self.read_offsets()
        return len(lines) > 1 and lines[1]["logOffset"] == len(list((self.folder / "a").glob("[0-9]*"))) - 1

    def late(self) -> dict[str, list[int]]:
        """The ids of the late tuples that were kept."""
        found: dict[str, list[int]] = {"a": [], "b": []}
        if (self.folder / "late").exists():
            for row in ds.dataset(self.folder / "late", partitioning="hive").to_table().to_pylist():
                found[row["alias"]].append(row[row["alias"]]["id"])
        return found

    def expected(self) -> Counter[tuple[int, int]]:
        """The pairs of all tuples that were not late."""
        late = self.late()
        a, b = (
            {id_: second for id_, second in self.times[alias].items() if id_ not in late[alias]}
            for alias in "ab"
        )
        return Counter(
            (i, j)
            for i, one in a.items()
            for j, other in b.items()
            if i % KEYS == j % KEYS and abs(one - other) <= WITHIN_S
        )


@pytest.mark.slow
def test_a_job_with_an_idle_stream_is_killed_again_and_again(tmp_path: Path) -> None:
    """What is late follows from the offsets of an epoch, so an epoch that runs again has the same answer."""
    rng, job, second = random.Random(1), KilledJob(tmp_path), 0
    job.put("b", 0, 1, 2, 3)
    interrupted = 0
    for number in range(ROUNDS):
        with faults.killed_at_the_end(job.start()) as process:
            goal = second + 60
            # 1. Stream b is silent until the watermark has followed a, at least a minute on.
            while job.watermark_s() < goal:
                assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
                if not job.times["a"] or job.has_read_all():
                    second += 10
                    job.put("a", *(second - rng.randrange(2) for _ in range(6)))
                time.sleep(0.1)
            # 2. Some tuples of b are late, some are not. The driver is killed in the epoch that reads them.
            job.put("b", second - 300, second + 40, *(second + rng.randrange(40, 50) for _ in range(6)))
            job.put("a", *(second + rng.randrange(40, 50) for _ in range(6)))
            second += 50
            wait(job.has_read_all, 120)
            time.sleep(rng.uniform(0, 0.3) * (number > 0))
        checkpoint = job.folder / "checkpoint"
        interrupted += faults.epochs(checkpoint, "offsets") > faults.epochs(checkpoint, "commits")
    assert interrupted, "no kill has interrupted a running epoch"
    with faults.killed_at_the_end(job.start()):
        wait(
            lambda: (
                len(job.late()["b"]) >= ROUNDS and faults.read_committed(tmp_path / "sink") == job.expected()
            ),
            120,
        )
        time.sleep(2)
    late = job.late()
    assert all(len(set(ids)) == len(ids) for ids in late.values())
    found = faults.read_committed(tmp_path / "sink")
    assert found == job.expected()
    assert found.total() > 100
    # The first tuple of each later file of b was 300 seconds behind.
    assert set(late["b"]) >= {4 + 8 * number for number in range(ROUNDS)}
