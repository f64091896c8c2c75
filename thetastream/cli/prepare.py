"""The command that prepares a machine, so that later sessions start faster."""

import argparse
import tempfile
import time

from thetastream.cli.shared_arguments import AddCommand
from thetastream.spark.class_archive import locate_archive

STATEMENT = (
    "SELECT ONLINE a.k, count(*) AS n, sum(a.x) AS total FROM a, b WHERE a.k = b.k WITHIN 5 seconds "
    "GROUP BY a.k, window(result_time, '3 seconds')"
)


def add_commands(add: AddCommand) -> None:
    """Add this command to the command line."""
    add(
        "prepare",
        prepare,
        "write the classes of Spark to an archive, so that local sessions start faster",
        description="Run some joins, compile the kernels that they use, and write the classes of Spark to an "
        "archive in the user's cache folder. Each environment needs this once. It takes about a minute, and "
        "the archive has about 200 MB. Local sessions of this environment then map the archive into memory "
        "instead of loading their classes from jars.",
    )


def prepare(arguments: argparse.Namespace) -> int:
    """Write the archive."""
    began_s = time.monotonic()
    archive = locate_archive()
    if not archive.make(run_joins):
        print("This Java cannot write an archive of classes. Sessions start as before.")
        return 1
    size, spent_s = archive.file.stat().st_size, time.monotonic() - began_s
    print(f"{archive.file} ({size / 1e6:.0f} MB, {spent_s:.0f} s)")
    print("Local sessions use it from now on. Remove its folder to stop that.")
    return 0


def run_joins(java_options: str) -> None:
    """Run joins of batches and of streams, so that Spark loads its classes; wait until the JVM has ended."""
    from pyspark import SparkContext

    import thetastream as th

    spark = th.local_session(2, "prepare", **{"spark.driver.extraJavaOptions": java_options})
    rows = spark.range(40).selectExpr(
        "id", "id % 7 AS k", "id / 3 AS x", "string(id) AS text", "timestamp_seconds(id) AS ts"
    )
    for on in ("a.k = b.k AND a.x > b.x", "abs(a.x - b.x) <= 0.5", "a.text < b.text AND a.k <> b.k"):
        th.join({"a": rows, "b": rows}, on=on).select("a.id", "b.text").collect()
    with tempfile.TemporaryDirectory() as folder:
        rows.repartition(2).write.parquet(f"{folder}/rows")
        reader = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(f"{folder}/rows").withWatermark("ts", "2 seconds")
        streams = {"a": stream, "b": stream}
        pairs = th.join(streams, on="abs(a.x - b.x) <= 0.5", within="5 seconds", how="left")
        sinks = {
            "groups": th.sql(spark, STATEMENT, streams).writeStream.format("memory").queryName("groups"),
            "pairs": pairs.select("a.id").writeStream.format("parquet").option("path", f"{folder}/found"),
        }
        for name, sink in sinks.items():
            sink = sink.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
            sink.start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
