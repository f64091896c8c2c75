"""Joins whose units change while they run: requests, restarts in the middle of a change, refusals."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support import oracle
from tests.support.streams import replay

ON = "abs(a.x - b.x) <= 1 AND a.id <> b.id"
WITHIN_S = 60


class Controlled:
    """A join over files of ids, with one epoch per file."""

    def __init__(self, spark: SparkSession, folder: Path, n: int = 4000) -> None:
        self.folder, self.found = folder, Counter()
        self.frame = spark.range(n).selectExpr(
            "id", "timestamp_seconds(1700000000 + id) AS ts", "id * 7 % 11 AS x"
        )
        empty: list[list[int]] = [[]]
        frame = self.frame.localCheckpoint()
        self.streams = {alias: replay(frame, empty, folder, by_key=True) for alias in "ab"}
        self.sources = sorted(folder.glob("stream-*"))
        self.n = 0
        self.query: Any = None

    def start(self, model: Any, within: Any = f"{WITHIN_S} seconds", **settings: Any) -> Any:
        marked = {name: frame.withWatermark("ts", "5 seconds") for name, frame in self.streams.items()}
        pairs = th.join(marked, ON, within, model, mailbox=str(self.folder / "box"), **settings)

        def collect(batch: DataFrame, epoch: int) -> None:
            self.found.update((row[0], row[1]) for row in batch.collect())

        writer = pairs.select("a.id", "b.id").writeStream.foreachBatch(collect)
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        return self.query

    def add(self, n: int = 40) -> None:
        """Write the next file of each stream, and wait until it has been read."""
        for source in self.sources:
            path = source / f".epoch-{self.n + 1:05}.csv"  # Spark does not read names that begin with a dot.
            path.write_text("".join(f"{row}\n" for row in range(self.n, self.n + n)))
            path.rename(source / path.name[1:])
        self.n += n
        self.query.processAllAvailable()

    def run_until(self, is_done: Any) -> dict[str, Any]:
        """Feed the streams until the status of the join is as wanted."""
        handle = th.control(self.query)
        for _ in range(40):
            status = handle.status()
            if is_done(status):
                return status
            self.add()
        raise AssertionError(status)

    def expect(self) -> Counter[tuple[int, int]]:
        return Counter(
            (a, b)
            for a in range(self.n)
            for b in range(max(0, a - WITHIN_S), min(self.n, a + WITHIN_S + 1))
            if a != b and abs(a * 7 % 11 - b * 7 % 11) <= 1
        )

    def replay_counted(self, count: int) -> Counter[tuple[int, int]]:
        """Replay a count window. Its pairs depend on the epochs in which Spark has read the files."""
        done, epochs = [0, 0], []
        for entry in th.metrics(self.query):
            read = [entry["streams"].get(alias, {}).get("timely", 0) for alias in "ab"]
            epochs.append([[{"id": d + i} for i in range(n)] for d, n in zip(done, read, strict=True)])
            done = [d + n for d, n in zip(done, read, strict=True)]
        assert done == [self.n, self.n]
        meetings = oracle.replay(
            lambda a, b: a["id"] != b["id"] and abs(a["id"] * 7 % 11 - b["id"] * 7 % 11) <= 1,
            epochs,
            (count, count),
            "id",
        )
        return Counter((one.left, one.right) for one in meetings)


def test_units_change_and_a_restart_in_the_middle_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)), max_units=6)
    run.add()
    handle = th.control(run.query)
    assert handle.status()["generations"][0]["held"] > 0
    # 1. Grow, and become another model, in one epoch or in two.
    handle.scale(units=(2, 1))
    handle.scale(model=th.Split(2))
    status = run.run_until(lambda status: status["version"] == 2)
    assert len(status["generations"]) == 2
    assert set(status["generations"][0]["leaving"]) >= {0, 1}
    # 2. Restart in the middle, from another process as it were: the checkpoint tells where the folder is.
    run.query.stop()
    request = th.control(tmp_path / "checkpoint").scale(cores=1)
    assert th.control(str(tmp_path / "checkpoint")).status()["requests"][request] == "waiting"
    run.start(th.Biclique((1, 1)), max_units=6)
    status = run.run_until(lambda status: len(status["generations"]) == 1)
    assert status["requests"][request] == "accepted"
    assert status["generations"][0]["model"] == "Split(cores=1)"
    assert status["version"] >= 4
    run.add()
    # 3. Only the units of the last generation are called, and the query is idle without input.
    units = th.metrics(run.query)[-1]["units"]
    assert [unit["unit"] for unit in units] == status["generations"][0]["units"]
    epoch = run.query.lastProgress["batchId"]
    time.sleep(1)
    assert run.query.lastProgress["batchId"] == epoch
    run.query.stop()
    assert run.found == run.expect()
    # 4. The scaled join does not continue without control.
    with pytest.raises(StreamingQueryException, match=r"\[CONTROL_NEEDED\]"):
        run.start(th.Biclique((1, 1))).processAllAvailable()


@pytest.mark.slow
def test_units_of_a_count_window_change(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Split(1), th.Rows(50), max_units=4)
    run.add()
    handle = th.control(run.query)
    with pytest.raises(th.QueryError, match=r"\[CANNOT_SCALE\]"):
        handle.scale(model=th.Matrix(2, 1))
    handle.scale(cores=2)
    run.run_until(lambda status: status["version"] == 1)
    status = run.run_until(lambda status: len(status["generations"]) == 1)
    assert status["generations"][0]["model"] == "Split(cores=2)"
    run.add()
    run.query.stop()
    assert run.found == run.replay_counted(50)


@pytest.mark.slow
def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)))
    run.add()
    with pytest.raises(th.QueryError, match=r"\[NOT_CONTROLLED\]"):
        th.control(run.query)
    run.query.stop()
    # The same checkpoint continues with control.
    run.start(th.Biclique((1, 1)), max_units=3)
    run.add()
    handle = th.control(run.query)
    for sizes, condition in (({"units": (9, 9)}, "MAX_UNITS"), ({"cores": 2}, "CANNOT_SCALE")):
        with pytest.raises(th.QueryError, match=rf"\[{condition}\]"):
            handle.scale(**sizes)
    run.query.stop()
    assert run.found == run.expect()
    with pytest.raises(th.ThetastreamError, match=r"\[NO_CHECKPOINT\]"):
        th.control(tmp_path)
    for model, how, condition in (
        (th.Chain(2), "inner", "CANNOT_SCALE"),
        (th.Split(1), "left", "CANNOT_SCALE"),
        (th.Split(9), "inner", "MAX_UNITS"),
    ):
        with pytest.raises(th.QueryError, match=rf"\[{condition}\]"):
            run.start(model, how=how, max_units=4)


def test_a_policy_scales_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    run = Controlled(spark, tmp_path)
    run.start(th.Biclique((1, 1)), max_units=8)
    run.add()
    # A window of 60 tuples of each stream has more than 2 kB.
    policy = th.TwoPhaseScaling(capacity="2 kB", every="100 milliseconds", agree=2)
    follower = th.control(run.query).follow(policy)
    status = run.run_until(lambda status: status["version"] >= 1)
    follower.stop()
    assert not follower.is_following
    assert follower.requests
    assert len(status["generations"][-1]["units"]) > 2
    for _ in range(3):
        run.add()
    assert len(th.metrics(run.query)[-1]["units"]) > 2
    assert sum(epoch["busy_ms"] for epoch in th.metrics(run.query)) > 0
    run.query.stop()
    assert run.found == run.expect()
