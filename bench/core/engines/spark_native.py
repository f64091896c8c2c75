"""Spark's own stream-stream join, in the best form that a user can write by hand.

handshake   both values cut into cells of a grid: R stands in its cell, S is copied into every cell
            that its box touches; equality on the cell, the condition behind it.
equi        the plain join.
stock       equality on the symbol, the inequality behind it.
inequality  Spark refuses; the error is the result.

The engine ``spark-left`` is the left outer join.

Every form bounds both event times, so that its state is bounded. The options below can be set with
``--option spark.cell=40`` and so on; the defaults are the fastest found (bench/README.md).
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.core import spark
from bench.core.answers import SPARK_LEFT
from bench.core.data import Shape, Task

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
DEFAULTS: dict[str, Any] = {"provider": "hdfs", "state_format": 2}
CELLS = {"handshake": {"cell": 60}}


def session(task: Task, options: dict[str, Any]) -> SparkSession:
    """Start a session with two cores, two partitions and the chosen state store."""
    conf = {
        **spark.CONF,
        "spark.driver.memory": task.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.streaming.stateStore.providerClass": PROVIDERS[options["provider"]],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
        "spark.sql.streaming.join.stateFormatVersion": options["state_format"],
    }
    builder = SparkSession.builder.master("local[2]").appName("bench-spark")
    for key, value in conf.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def cells(side: DataFrame, x: str, y: str, cell: int, reach: int) -> DataFrame:
    """Add the number of the grid cell of (x, y); with a reach, one row for each cell of the box around it."""

    def floor(column: str, offset: int) -> Any:
        return F.floor((F.col(column).cast("double") + F.lit(offset)) / F.lit(cell))

    if not reach:
        return side.withColumn("cell", floor(x, 0) * 1_000_000 + floor(y, 0))
    column = F.explode(F.sequence(floor(x, -reach), floor(x, reach)))
    row = F.explode(F.sequence(floor(y, -reach), floor(y, reach)))
    exploded = side.withColumn("_x", column).withColumn("_y", row)
    return exploded.withColumn("cell", F.col("_x") * 1_000_000 + F.col("_y")).drop("_x", "_y")


def join(shape: Shape, cell: int | None, streams: dict[str, DataFrame], how: str) -> DataFrame:
    (left, left_stream), (right, right_stream) = streams.items()
    columns = [
        F.col(f"{alias}.{name}").alias(f"{alias}_{name}")
        for alias, stream in streams.items()
        for name in stream.columns
    ]
    condition = f"({shape.spec.on}) AND {left}.ts BETWEEN {right}.ts - INTERVAL {shape.within}"
    condition += f" AND {right}.ts + INTERVAL {shape.within}"
    if cell:
        left_stream = cells(left_stream, "x", "y", cell, reach=0)
        right_stream = cells(right_stream, "a", "b", cell, reach=10)
        condition = f"{left}.cell = {right}.cell AND {condition}"
    joined = left_stream.alias(left).join(right_stream.alias(right), F.expr(condition), how)
    return joined.select(*columns)


def prepare(task: Task) -> spark.Query:
    options = {**DEFAULTS, **CELLS.get(task.shape.workload, {}), **task.options}
    form = ", ".join(f"{key} {value}" for key, value in options.items())
    how = "left" if task.engine == SPARK_LEFT else "inner"
    return spark.Query(
        session(task, options), lambda streams: join(task.shape, options.get("cell"), streams, how), form
    )
