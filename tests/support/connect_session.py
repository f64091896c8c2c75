"""Run the quickstart in a Spark Connect session, in a separate process, because a classic session must not
share it.

The process prints one JSON object, which ``test_connect.py`` examines.

    python -m tests.support.connect_session FOLDER          what follows in ``main``
    python -m tests.support.connect_session FOLDER chain    a chain
    python -m tests.support.connect_session FOLDER scaled   units whose number changes
    python -m tests.support.connect_session FOLDER left     answers per tuple
    python -m tests.support.connect_session FOLDER table    a table that changes
"""

import json
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client.core import DefaultChannelBuilder

import thetastream as th
from tests.support import faults
from tests.support.fast_checkpoints import FAST_CHECKPOINTS
from thetastream.spark.event_time import list_plan_lines

CONDITION = f"abs(a.x - b.x) <= {faults.BAND} AND a.y > b.y"
IDS = ["a.id AS a", "b.id AS b"]
WITHIN = f"{faults.WITHIN_S} seconds"
SHORT_S = 5
"""A window that is short enough that tuples are decided."""


def scale(query: Any, checkpoint: str) -> list[Any]:
    """Change the units by the query and by its checkpoint; return the outcomes and the newest plan."""
    while query.isActive and not query.lastProgress:  # The first epoch of a JVM takes long.
        time.sleep(0.1)
    requests = []
    for handle, units in ((th.control(query), (2, 1)), (th.control(checkpoint), (1, 1))):
        requests.append(handle.scale(units=units))
        until_s = time.monotonic() + 120
        while handle.status()["requests"].get(requests[-1]) == "waiting" and time.monotonic() < until_s:
            time.sleep(0.1)
    plan = handle.status()
    outcomes = [plan["requests"][name] for name in requests]
    return [outcomes, plan["version"], plan["generations"][-1]["model"]]


def open_session() -> SparkSession:
    # The server of another session on this machine may hold the default port.
    port = faults.free_port()
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.connect.grpc.binding.port", str(port))
    spark = th.configure(builder, 2).getOrCreate()
    th.configure(spark, 2)
    for key, value in FAST_CHECKPOINTS.items():
        spark.conf.set(key, value)
    return spark


def read_streams(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    return {
        alias: spark.readStream.schema(faults.SCHEMA)
        .option("maxFilesPerTrigger", 2)
        .parquet(str(folder / alias))
        .withWatermark("ts", faults.DELAY)
        for alias in "ab"
    }


def collect_pairs(joined: DataFrame, name: str) -> list[list[int]]:
    """Stream the ids of pairs into a table in memory, and read it."""
    writer = joined.selectExpr("a.id AS a", "b.id AS b").writeStream.format("memory").queryName(name)
    writer.trigger(availableNow=True).start().awaitTermination()
    return [[row.a, row.b] for row in joined.sparkSession.table(name).collect()]


def count_requests(spark: SparkSession, streams: dict[str, DataFrame]) -> int:
    """Count the requests that a join of two streams sends to the server until it has a DataFrame."""
    client: Any = spark.client
    with ExitStack() as stack:
        names = ("_analyze", "config", "_execute_and_fetch")
        seen = [
            stack.enter_context(patch.object(client, name, wraps=getattr(client, name))) for name in names
        ]
        th.join(streams, on=CONDITION, within=WITHIN)
    return sum(one.call_count for one in seen)


def join_by_chain(folder: Path) -> dict[str, Any]:
    """Send the tuples of a chain through a mailbox. Its routers read the files of a stream themselves."""
    spark = open_session()
    streams = read_streams(spark, folder)
    files = th.read_parquet(spark, str(folder / "a"), faults.SCHEMA, maxFilesPerTrigger=2)
    streams["a"] = files.withWatermark("ts", faults.DELAY)
    chain = th.join(streams, on=CONDITION, within=WITHIN, model=th.Chain(workers=2))
    steps = [line.split("(")[0] for line in list_plan_lines(chain) if line.startswith("MapInArrow")]
    return {"chain": collect_pairs(chain, "chain"), "steps": steps}


def join_with_table(folder: Path) -> dict[str, Any]:
    """Join a stream with a table that changes between two epochs, and that is larger than a host's cache."""
    spark, path, incoming = open_session(), str(folder / "table"), folder / "incoming"
    incoming.mkdir()
    stream = spark.readStream.schema(faults.SCHEMA).parquet(str(incoming))
    shared: dict[str, Any] = {"mailbox": (folder / "shared").as_uri(), "cache_folder": str(folder / "host")}
    said: dict[str, Any] = {}
    for number, file in enumerate(sorted((folder / "a").iterdir())[:2]):
        shutil.copy(file, incoming)
        rows = spark.range(3000).selectExpr(
            "id AS n", "id / 10 AS low", f"id / 10 + {2 * number + 3} / 20 AS high"
        )
        rows.write.mode("overwrite").parquet(path)
        if not number:
            table = th.Table(path, key="n")
            inputs, on = {"a": stream, "t": table}, "a.x >= t.low AND a.x < t.high AND a.y > 10"
            joined = th.join(inputs, on=on, how="left", table_cache="100 KB", **shared)
        th.stage(table)
        writer = joined.selectExpr("a.id AS a", "t.n AS b").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(folder / "table-c")).trigger(availableNow=True)
        query = writer.start(str(folder / "table-out"))
        query.awaitTermination()
    said["versions"] = [[one["epoch"], one["version"], one["bytes"]] for one in th.versions(query)]
    said["used"] = [entry["tables"]["t"]["used_bytes"] for entry in th.metrics(query) if "tables" in entry]
    return said


def change_units(folder: Path) -> dict[str, Any]:
    """Write into a store by units whose number changes meanwhile."""
    streams, checkpoint = read_streams(open_session(), folder), str(folder / "scaled-c")
    plan = th.plan(streams, on=CONDITION, within=WITHIN, model=th.Biclique(units=(1, 2)), max_units=8)
    store = th.ParquetStore(str(folder / "scaled"))
    query = th.write(plan, store, select=IDS, checkpoint=checkpoint)
    said = {"scaled": scale(query, checkpoint)}
    query.processAllAvailable()
    query.stop()
    return {**said, "store": sorted([row["a"], row["b"]] for row in store.read().to_pylist())}


def answer_tuples(folder: Path) -> dict[str, Any]:
    """Answer each tuple. Second units decide behind a conjunct that Spark evaluates."""
    streams = read_streams(open_session(), folder)
    alone = th.join(streams, on=f"{CONDITION} AND {faults.RESIDUAL}", within=f"{SHORT_S} seconds", how="left")
    return {"left": collect_pairs(alone, "left")}


PARTS = {"chain": join_by_chain, "scaled": change_units, "left": answer_tuples, "table": join_with_table}


def main(folder: Path) -> dict[str, Any]:
    spark = open_session()
    said: dict[str, Any] = {"session": type(spark).__module__}

    # 1. Batch.
    tables = {alias: spark.read.schema(faults.SCHEMA).parquet(str(folder / alias)) for alias in "ab"}
    pairs = th.join(tables, on=CONDITION, within=WITHIN)
    said["batch"] = sorted([row.a, row.b] for row in pairs.selectExpr("a.id AS a", "b.id AS b").collect())

    # 2. Streaming, to a store.
    streams = read_streams(spark, folder)
    said["requests"] = count_requests(spark, streams)
    plan = th.plan(streams, on=CONDITION, within=WITHIN)
    said["explain"] = plan.explain()
    store = th.ParquetStore(str(folder / "store"))
    checkpoint = str(folder / "store-c")
    th.write(plan, store, select=IDS, checkpoint=checkpoint, trigger="available now").awaitTermination()
    said["store"] = sorted([row["a"], row["b"]] for row in store.read().to_pylist())
    said["way"] = plan.explain_write(IDS)

    # 3. Streaming, to files, with a Python predicate and in a second start on the checkpoint.
    job = faults.Job(str(folder))
    queries = []
    for _ in range(2):
        queries.append(job.write(job.pairs(spark)))
        queries[-1].awaitTermination()
    said["metrics"] = th.metrics(queries[0])

    # 4. Collect the errors of queries that cannot run.
    def refusal(**changes: Any) -> str:
        try:
            th.join(**{"streams": streams, "on": CONDITION, "within": WITHIN, **changes})
        except th.ThetastreamError as error:
            return str(error)
        return "accepted"

    said["unknown column"] = refusal(on="a.x < b.z")
    rate = spark.readStream.format("rate").load()
    said["no watermark"] = refusal(streams={"a": streams["a"], "b": rate}, on="a.x < b.value")
    local = rate.withColumn("ts", rate.timestamp.cast("timestamp_ntz")).withWatermark("ts", "1 second")
    said["no time zone"] = refusal(streams={"a": streams["a"], "b": local}, on="a.x < b.value")
    said["bad window"] = refusal(within="10 apples")
    provider = str(spark.conf.get("spark.sql.streaming.stateStore.providerClass"))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", "org.example.Another")
    said["state store"] = refusal()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)

    # 5. Conditions as Columns, and a table of pandas.
    near = F.abs(th.col("a.x") - th.col("b.x")) <= faults.BAND
    found = th.join(tables, on=[near, th.col("a.y") > th.col("b.y")], within=WITHIN)
    said["columns"] = sorted([row.a, row.b] for row in found.selectExpr("a.id AS a", "b.id AS b").collect())
    words = pd.DataFrame({"word": ["an apple", "apple"], "n": [1, 2]})
    same = (F.col("a.word") == "an apple") & (F.col("a.n") < F.col("b.n")) & (F.col("b.word") != "pear")
    said["words"] = th.join({"a": words, "b": words}, on=same).count()
    said["brackets"] = refusal(streams={"a": words, "b": words}, on=F.col("a.word") == "x, (y", within=None)
    # The session is not stopped: threads of a session must not keep a program alive.
    return said


if __name__ == "__main__":
    (place, *parts), sys.argv = sys.argv[1:], sys.argv[:1]
    print(json.dumps((PARTS[parts[0]] if parts else main)(Path(place))))
