"""Mistakes in calls that a type checker must find, and calls that are right. Nothing here ever runs.

mypy checks this file (``make lint``). Each mistake has a comment that ignores the error. If mypy does not
find the mistake, it reports the comment, because nothing is there to ignore.
"""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th


def write_right_calls(a: DataFrame, spark: SparkSession) -> None:
    """Call functions as the documentation does."""
    streams = {"a": a, "b": a}
    th.join(streams, "a.x = b.x", "1 minute", th.Biclique((2, 3), subgroups=2, routing="hash"), how="left")
    th.join(streams, ["a.x = b.x"], timedelta(minutes=1), "auto", "left_outer", index="hash", max_units=4)
    th.join(streams, on="a.x < b.x", within=th.Rows(5), model="spark", order="strict")
    th.join(streams, on="true", within={"a": "1m", "b": th.Rows(3)}, how=th.Nearest(1, by="a.x - b.x"))
    th.Nearest(2, "f(a.v, b.v)", direction="similarity")
    th.join(streams, on="true", shed=th.Shed(threshold="1 GB", capacity="2 GB", load="state", what="probes"))
    th.ParquetStore(Path("out")), th.DeltaStore(Path("out")), th.DeltaStore("out")
    store = th.ParquetStore("out")
    pairs = th.join(streams, on="true")
    th.write(pairs, store, checkpoint="c", snapshots=th.Snapshots(every="1 minute"), key=["x"], trigger="5s")
    th.sql(spark, "SELECT 1", streams=streams, model=th.Split(2)).count()
    th.changes(a, format="upsert", key="id", sequence="n")
    th.fork("c", "d")


def make_mistakes(a: DataFrame, spark: SparkSession, query: StreamingQuery) -> None:
    """Make one mistake in each statement."""
    streams, store, pairs = {"a": a, "b": a}, th.ParquetStore("out"), a
    # Joins.
    th.join(a, a, on="true")  # type: ignore[arg-type, misc]
    th.join([a, a], on="true")  # type: ignore[arg-type]
    th.join(streams)  # type: ignore[call-arg]
    th.join(streams, on=5)  # type: ignore[arg-type]
    th.join(streams, on="true", within=5)  # type: ignore[arg-type]
    th.join(streams, on="true", withn="5m")  # type: ignore[call-arg]
    th.join(streams, on="true", how="lefty")  # type: ignore[arg-type]
    th.join(streams, on="true", model="biclique")  # type: ignore[arg-type]
    th.join(streams, on="true", index="btree")  # type: ignore[arg-type]
    th.join(streams, on="true", max_units="4")  # type: ignore[arg-type]
    th.join(streams, on="true", shed="1 GB")  # type: ignore[arg-type]
    th.join(streams, on="true", statistics={"a": 5})  # type: ignore[arg-type]
    th.join(streams, on="true", order=1.5)  # type: ignore[arg-type]
    th.join(streams, on="true", punctuations="yes")  # type: ignore[arg-type]
    th.aggregate(streams, on="true", group_by="a.x", aggs="count(*)")  # type: ignore[arg-type]
    th.sql("SELECT 1", spark)  # type: ignore[arg-type]
    # Models and values.
    th.Biclique(units="2")  # type: ignore[arg-type]
    th.Biclique(2, routing="hashed")  # type: ignore[arg-type]
    th.Matrix(2, 2, routing="random ")  # type: ignore[arg-type]
    th.Split("2")  # type: ignore[arg-type]
    th.Ring(nodes=2.5)  # type: ignore[arg-type]
    th.Nearest("1", by="a.x - b.x")  # type: ignore[arg-type]
    th.Nearest(1, by="a.x - b.x", direction="similar")  # type: ignore[arg-type]
    th.Rows("5")  # type: ignore[arg-type]
    th.Shed(threshold="1 GB", capacity="2 GB", load="size")  # type: ignore[arg-type]
    th.Shed(threshold="1 GB", capacity="2 GB", what="rows")  # type: ignore[arg-type]
    th.Snapshots(every=60)  # type: ignore[arg-type]
    # Streams and queries.
    th.changes(a, format="upserts")  # type: ignore[arg-type]
    th.with_watermark(a, "ts", 10)  # type: ignore[arg-type]
    th.by_arrival(a, slack=10)  # type: ignore[arg-type]
    th.local_session("2")  # type: ignore[arg-type]
    th.control(query).scale(units="4")  # type: ignore[arg-type]
    th.control(query).follow("two-phase-scaling")  # type: ignore[arg-type]
    th.write(pairs, "out", checkpoint="c")  # type: ignore[arg-type]
    th.write(pairs, store)  # type: ignore[call-arg]
    th.write(pairs, store, checkpoint="c", snapshots="1 minute")  # type: ignore[arg-type]
    th.write(pairs, store, checkpoint="c", trigger=5)  # type: ignore[arg-type]
    th.query("out", "SELECT 1")  # type: ignore[arg-type]
    th.finish(query, "c")  # type: ignore[arg-type]
    th.export_metrics(spark, open_telemetry="oltp")  # type: ignore[arg-type]
    th.plan(streams, on="true").writeStream.start()  # type: ignore[attr-defined]
