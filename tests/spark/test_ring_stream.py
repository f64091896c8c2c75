"""The ring on Spark: disorder and lateness, failures at every step, and a damaged mailbox that is refused.

The tests of messages ask for the mailbox. Without being asked, this ring makes all hops in one epoch.
"""

import itertools
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import read_watermarks, replay

ALIASES = "abc"
EPOCHS, ROWS = 4, 12
WINDOW_US, DELAY = 20_000_000, "5 seconds"
START_US = 1_700_000_000_000_000
Row = tuple[int, int, int, int]


@th.predicate(a=["v"], b=["v"], c=["v"])
def odd_together(a, b, c):
    return (np.asarray(a.v) + np.asarray(b.v) + np.asarray(c.v)) % 2 == 1


# Half of all pairs have keys of the same parity, but a tenth is assumed for an equality. An eighth of all
# pairs has values far apart, but a third is assumed for an inequality. So tuples of b first visit a in the
# beginning, and first visit c later.
ON = ["a.k % 2 = b.k % 2 AND b.v < c.v - 4", "a.k + b.k + c.k > 2", odd_together]


def matches(a: Row, b: Row, c: Row) -> bool:
    times = [row[3] for row in (a, b, c)]
    return (
        a[1] % 2 == b[1] % 2
        and b[2] < c[2] - 4
        and a[1] + b[1] + c[1] > 2
        and (a[2] + b[2] + c[2]) % 2 == 1
        and max(times) - min(times) <= WINDOW_US
    )


class Job:
    """Files of three streams, with one file per epoch, and a query over them."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.spark, self.folder = spark, folder
        self.files: dict[str, list[list[Row]]] = {alias: [] for alias in ALIASES}
        for epoch, alias in itertools.product(range(EPOCHS), ALIASES):
            seconds = epoch * 8 + random.integers(-14, 8, ROWS)
            rows = [
                (
                    epoch * ROWS + n,
                    int(random.integers(0, 4)),
                    int(random.integers(0, 9)),
                    START_US + int(s) * 10**6,
                )
                for n, s in enumerate(seconds)
            ]
            self.files[alias].append(rows)

    def bring(self, epoch: int) -> None:
        for alias in ALIASES:
            (self.folder / alias).mkdir(exist_ok=True)
            ids, ks, vs, times = zip(*self.files[alias][epoch], strict=True)
            table = pa.table({"id": ids, "k": ks, "v": vs, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
            path = self.folder / alias / f"{epoch}.parquet"
            pq.write_table(table, path)
            # Spark reads files in the order of their age.
            os.utime(path, (1_600_000_000 + epoch, 1_600_000_000 + epoch))

    def join(self, on=ON, order=None, hops="mailbox", **settings) -> DataFrame:
        streams = {
            alias: self.spark.readStream.schema("id long, k long, v long, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / alias))
            .withWatermark("ts", DELAY)
            for alias in ALIASES
        }
        model = th.Ring(nodes=3, slice=th.Rows(5), order=order, hops=hops)
        return th.join(streams, on, "20 seconds", model, mailbox=str(self.folder / "mail"), **settings)

    def run(self, joined: DataFrame, **trigger):
        return (
            joined.selectExpr("a.id AS a", "b.id AS b", "c.id AS c")
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def read_found(self) -> Counter:
        return Counter(tuple(row) for row in self.spark.read.parquet(str(self.folder / "out")).collect())

    def expected(self, late_ms: dict[int, int]) -> Counter:
        kept: dict[str, list[Row]] = {
            alias: [
                row
                for epoch, rows in enumerate(files)
                for row in rows
                if row[3] > late_ms.get(epoch, 0) * 1000
            ]
            for alias, files in self.files.items()
        }
        return Counter(
            (a[0], b[0], c[0])
            for a, b, c in itertools.product(*(kept[alias] for alias in ALIASES))
            if matches(a, b, c)
        )


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path, seed=4)


def test_all_hops_end_in_one_epoch_also_after_a_restart(job: Job) -> None:
    """The orders are measured by each node for itself. The planner would store another stream once later."""
    watermarks: dict[int, int] = {}
    for epoch in range(EPOCHS):
        job.bring(epoch)
        if epoch % 2:
            rates = th.Statistics(tuples_per_second={"a": 1.0, "b": 1.0, "c": epoch + 1.0})
            query = job.run(job.join(hops="auto", statistics=rates))
            query.awaitTermination()
            watermarks |= dict(read_watermarks(query))
            counted = th.metrics(query)
            assert not any(entry["forwarded"] for entry in counted)
    assert not (job.folder / "mail").exists()
    assert sum(unit["late"] for unit in counted) > 0
    # The watermark moves state in an epoch without files, after the first run.
    in_files = {0: 0, 1: 1, 3: 2, 4: 3}
    expected = job.expected({file: watermarks.get(batch - 1, 0) for batch, file in in_files.items()})
    assert expected
    assert job.read_found() == expected


@pytest.mark.slow
def test_three_streams_with_a_restart_in_between(job: Job) -> None:
    watermarks: dict[int, int] = {}
    epochs = 0
    for epoch in range(EPOCHS):
        job.bring(epoch)
        if epoch % 2:
            query = job.run(job.join())
            query.awaitTermination()
            watermarks |= dict(read_watermarks(query))
            counted = th.metrics(query)
            epochs += len(counted)
    # Epochs that drain the mailbox come before that of the third file, so its number is not the number of the
    # file.
    assert epochs == 6
    in_files = {0: 0, 1: 1, 3: 2, 4: 3}
    assert sum(unit["late"] for unit in counted) > 0
    expected = job.expected({file: watermarks.get(batch - 1, 0) for batch, file in in_files.items()})
    assert expected
    assert job.read_found() == expected


def fail_while(flag: Path) -> th.predicate:
    """Make a predicate like ``odd_together`` that raises while a file exists."""

    @th.predicate(a=["v"], b=["v"], c=["v"])
    def odd_or_failing(a, b, c):
        if flag.exists() and len(a.v):
            raise RuntimeError("on purpose")
        return odd_together(a, b, c)

    return odd_or_failing


@pytest.mark.slow
def test_an_epoch_that_failed_is_run_again_with_the_same_messages(job: Job) -> None:
    flag = job.folder / "fail"
    on = [*ON[:2], fail_while(flag)]
    for epoch in range(EPOCHS):
        job.bring(epoch)
    query = job.run(job.join(on), processingTime="0 seconds")
    while not query.recentProgress:
        query.awaitTermination(0.1)
    flag.touch()
    # 1. The predicate reads all three streams, so it fails in an epoch that reads messages.
    with pytest.raises(StreamingQueryException, match="PREDICATE_RAISED"):
        query.awaitTermination()
    watermarks = dict(read_watermarks(query))
    assert th.metrics(query)[0]["order"]["b"] == ["a", "c"]
    flag.unlink()
    # 2. The messages of that epoch are refused if they are damaged; test_mailbox covers other reasons.
    newest = max((job.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    (offset,) = (json.loads(line) for line in newest.read_text().splitlines() if '"mailbox"' in line)
    mailbox = job.folder / "mail" / offset["mailbox"]
    file = mailbox / str(offset["epoch"]) / str(offset["units"][0])
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + whole[-8:])
    with pytest.raises(StreamingQueryException, match="MAILBOX_DAMAGED"):
        job.run(job.join(on)).awaitTermination()
    file.write_bytes(whole)
    # 3. With the restored files the query continues, also with one hop order set, and nothing is lost or
    # found twice.
    query = job.run(job.join(on, order={"a": ["c", "b"]}))
    query.awaitTermination()
    watermarks |= dict(read_watermarks(query))
    assert th.metrics(query)[-1]["order"] == {"a": ["c", "b"], "b": ["c", "a"], "c": ["b", "a"]}
    expected = job.expected({epoch: watermarks.get(epoch - 1, 0) for epoch in range(EPOCHS)})
    assert expected
    assert job.read_found() == expected


@th.predicate("numpy", f=["v"], r=["v"])
def close(f, r):
    return np.abs(f.v - r.v) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("door", ["sql", "aggregate"])
def test_close_predictions_are_counted_in_sliding_windows(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    """PSP's first example: forecasts of two models beside real values, a predicate, a window and a count.

    Results come epochs behind their last tuple. No group is closed before them, so each of them counts.
    """
    frame = spark.range(60).selectExpr("id", "timestamp_seconds(id DIV 3 * 2) AS ts", "id * 7 % 11 AS v")
    epochs = [range(n, n + 12) for n in range(0, 60, 12)]
    streams = {
        alias: replay(frame.where(f"id % 3 = {number}"), [one[number::3] for one in epochs], tmp_path)
        .withWatermark("ts", "1 second")
        for number, alias in enumerate("fgr")
    }  # fmt: skip
    model, by = th.Ring(3), "window(result_time, '10 seconds', '5 seconds')"
    if door == "sql":
        text = f"SELECT ONLINE {by} AS w, count(*) AS n FROM f, g, r WHERE abs(f.v - r.v) <= 2"
        text += f" AND abs(g.v - r.v) <= 2 WITHIN '10 seconds' GROUP BY {by}"
        counted = th.sql(spark, text, streams, model=model)
    else:
        on = [close, "abs(g.v - r.v) <= 2"]
        counted = th.aggregate(streams, on, "10 seconds", model=model, group_by=by, aggs={"n": "count(*)"})
    columns = counted.columns
    assert columns[-1] == "n"
    found: dict[tuple[object, object], int] = {}

    def keep(rows: DataFrame, epoch: int) -> None:
        found.update({(row[0].start, row[0].end): row.n for row in rows.collect()})

    writer = counted.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    for number, alias in enumerate("fgr"):
        frame.where(f"id % 3 = {number}").createOrReplaceTempView(alias)
    rows = spark.sql(
        "SELECT window(t, '10 seconds', '5 seconds') AS w, count(*) AS n FROM (SELECT"
        " greatest(f.ts, g.ts, r.ts) AS t, least(f.ts, g.ts, r.ts) AS s FROM f, g, r"
        " WHERE abs(f.v - r.v) <= 2 AND abs(g.v - r.v) <= 2)"
        " WHERE t <= s + INTERVAL 10 SECONDS GROUP BY 1"
    ).collect()
    assert found == {(row.w.start, row.w.end): row.n for row in rows}
    assert len(found) > 5
