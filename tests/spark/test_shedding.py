"""Shedding on Spark: the answer is that of the kept tuples, also if an epoch runs again."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import replay
from thetastream.core.columns import HASH
from thetastream.core.errors import QueryError
from thetastream.engine.semantic_shedding import CellCounts
from thetastream.engine.shedding import Shedding
from thetastream.engine.spreading import Spreader
from thetastream.engine.two_stream.content_routing import find_placing
from thetastream.spark.dataflow.exchange import select_block_columns

N_EPOCHS, N_TUPLES = 6, 50
ON = "abs(a.x - b.x) <= 1"


def make_frame(spark, seed):
    chance = np.random.default_rng(seed)
    n = N_EPOCHS * N_TUPLES
    table = pa.table(
        {
            "id": pa.array(np.arange(n)),
            "x": pa.array(chance.integers(0, 12, n)),
            "ts": pa.array(np.arange(n) * 20_000, pa.timestamp("us", "UTC")),
        }
    )
    return spark.createDataFrame(table)


def find_kept(plan, frames, shedding, loads):
    """Find the ids of the kept tuples: the number of a tuple decides, and the load before its epoch."""
    tuples = [find_tuples(plan, side, frame) for side, frame in enumerate(frames)]
    kept, counts = [set(), set()], CellCounts.begin()
    for epoch in range(N_EPOCHS):
        reports = []
        for side in range(2):
            (batch,) = tuples[side].slice(epoch * N_TUPLES, N_TUPLES).to_batches()
            shedder = shedding.open(side, epoch, loads[epoch], counts=counts)
            # A file is one task. The tasks of both streams are numbered together.
            spread = Spreader(epoch, partition=side).spread(batch)
            kept[side] |= set(shedder.drop(spread)[0]["id"].to_pylist())
            reports.append(shedder.report)
        counts = counts.add(filter(None, reports))
    return kept


def find_tuples(plan, side, frame):
    """Find the blocks of a stream in the order of its ids, with their hashes."""
    described = plan.join.planned.physical.sides[side]
    blocks = select_block_columns(described, frame)
    (column,) = (carried.block_column for carried in described.carried if carried.field == "id")
    hashed = blocks.select("*", F.col(column).alias("id"), F.xxhash64(*blocks.columns).alias(HASH))
    return hashed.toArrow().sort_by("id").combine_chunks()


def run(pairs, checkpoint, found, crash=None):
    """Run until the input is used up; put the pairs of each epoch into ``found`` and return the metrics.

    The sink fails in epoch ``crash``, after it has got the pairs.
    """

    def save(batch, epoch):
        found[epoch] = Counter(tuple(row) for row in batch.select("a.id", "b.id").collect())
        if epoch == crash:
            raise RuntimeError("crash")

    writer = pairs.writeStream.foreachBatch(save).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if crash is None:
        query.awaitTermination()
    else:
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
    return [epoch for epoch in th.metrics(query) if epoch["epoch"] < N_EPOCHS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "semantic"])
def test_the_answer_is_that_of_the_kept_tuples_also_when_an_epoch_runs_again(spark, tmp_path, kind):
    frames = [make_frame(spark, seed) for seed in range(2)]
    epochs = [range(e * N_TUPLES, (e + 1) * N_TUPLES) for e in range(N_EPOCHS)]
    streams = {
        alias: replay(frame, epochs, tmp_path).withWatermark("ts", "0 seconds")
        for alias, frame in zip("ab", frames, strict=True)
    }
    shed = th.Shed("2 kB", "9 kB", base=0.2, kind=kind)
    plan = th.plan(streams, ON, "10 seconds", th.Biclique(1), shed=shed, mailbox=str(tmp_path / "mailbox"))
    assert "shed      tuples are dropped from 2 kB of state at the fullest unit on" in plan.explain()
    # 1. The sink crashes in the last epoch with tuples, and the epoch runs again.
    pairs, first, again = plan.dataframe(), {}, {}
    last = N_EPOCHS - 1
    metrics = run(pairs, tmp_path / "checkpoint", first, crash=last)
    metrics += run(pairs, tmp_path / "checkpoint", again)
    assert [epoch["epoch"] for epoch in metrics] == list(range(N_EPOCHS))
    assert again[last] == first[last]
    assert first[last]
    # 2. Every tuple is counted once, and the answer is a nested loop over the kept tuples.
    condition = plan.join.planned.physical.condition
    shedding = Shedding(
        shed, condition.sides, find_placing(condition).find_places if shed.is_semantic else None
    )
    loads = [None, *(max(unit["mlv_bytes"] for unit in epoch["units"]) for epoch in metrics)]
    kept = find_kept(plan, frames, shedding, loads)
    assert [epoch["left"] + epoch["right"] + epoch["shed"] for epoch in metrics] == [2 * N_TUPLES] * N_EPOCHS
    assert sum(epoch["shed"] for epoch in metrics) == 2 * N_EPOCHS * N_TUPLES - sum(map(len, kept)) > 100
    assert [epoch["shed"] > 0 for epoch in metrics[:2]] == [False, True]
    share = metrics[last]["left"] * metrics[last]["right"] / N_TUPLES**2
    assert metrics[last]["kept"] == pytest.approx(share)
    rows = [frame.where(F.col("id").isin(list(ids))) for frame, ids in zip(frames, kept, strict=True)]
    expected = th.join(dict(zip("ab", rows, strict=True)), ON, "10 seconds", event_time="ts")
    answer = Counter(tuple(row) for row in expected.select("a.id", "b.id").collect())
    assert sum(first.values(), Counter()) == answer


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"how": "left"}, "answers each tuple"),
        ({"how": th.Nearest(1, "a.ts - b.ts")}, "answers each tuple"),
        ({"shed": "1 GB"}, r"shed must be th\.Shed"),
        ({"shed": th.Shed("1 GB", "2 GB", kind="semantic"), "on": "a.x < b.x"}, "a band of one width"),
        ({"shed": th.Shed("1 s", "9 s", load="lag", what="probes"), "model": th.Matrix(2, 2)}, "th.Biclique"),
    ],
    ids=["left", "nearest", "text", "semantic", "probes"],
)
def test_joins_that_cannot_shed_say_so(spark, settings, what):
    rows = spark.readStream.format("rate").load().selectExpr("value AS x", "timestamp AS ts")
    rows = rows.withWatermark("ts", "1 second")
    given = {"on": ON, "within": "1 minute", "shed": th.Shed("1 GB", "2 GB"), **settings}
    with pytest.raises(QueryError, match=rf"(?s)\[SHED\].*{what}"):
        th.plan({"a": rows, "b": rows}, **given)


def test_three_streams_one_after_the_other_do_not_shed_and_lag_needs_event_times(spark):
    rows = spark.readStream.format("rate").load().selectExpr("value AS x", "timestamp AS ts")
    shed = th.Shed("1 s", "9 s", load="lag")
    with pytest.raises(QueryError, match=r"\[SHED\] load=\"lag\""):
        th.plan({"a": rows, "b": rows}, ON, th.Rows(5), shed=shed)
    marked = rows.withWatermark("ts", "1 second")
    three = dict.fromkeys("abc", marked)
    with pytest.raises(QueryError, match=r"(?s)\[SHED\].*use th\.Ring"):
        th.plan(three, f"{ON} AND b.x = c.x", "1 minute", shed=shed)
    assert (
        "shed      tuples"
        in th.plan(three, f"{ON} AND b.x = c.x", "1 minute", th.Ring(2), shed=shed).explain()
    )
