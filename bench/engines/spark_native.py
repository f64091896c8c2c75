"""Spark's own stream-stream join, in the best form that a user can write by hand.

handshake   both values cut into cells of a grid: R stands in its cell, S is copied into every cell
            that its box touches; equality on the cell, the condition behind it.
equi        the plain join.
stock       equality on the symbol, the inequality behind it.
inequality  Spark refuses; the error is the result.

Every form bounds both event times, so that its state is bounded. The options below can be set with
``--option spark.cell=40`` and so on; the defaults are the fastest found (bench/README.md).
"""

from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import spark_run
from bench.data import Shape
from bench.task import Task

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "handshake": {"provider": "hdfs", "state_format": 2, "cell": 60},
    "equi": {"provider": "hdfs", "state_format": 2},
    "stock": {"provider": "hdfs", "state_format": 2},
    "inequality": {"provider": "hdfs", "state_format": 2},
}


def session(task: Task, options: dict[str, Any]) -> SparkSession:
    """Two cores, two partitions, the state store that was asked for."""
    builder = SparkSession.builder.master("local[2]").appName("bench-spark")
    conf = {
        **spark_run.CONF,
        "spark.driver.memory": task.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.streaming.stateStore.providerClass": PROVIDERS[options["provider"]],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
        "spark.sql.streaming.join.stateFormatVersion": options["state_format"],
    }
    for key, value in conf.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cells(side: DataFrame, x: str, y: str, cell: int, reach: int) -> DataFrame:
    """Number of the grid cell of (x, y); with a reach, one row per cell of the box around it."""

    def floor(column: str, offset: int) -> Any:
        return F.floor((F.col(column).cast("double") + F.lit(offset)) / F.lit(cell))

    if not reach:
        return side.withColumn("cell", floor(x, 0) * 1_000_000 + floor(y, 0))
    column = F.explode(F.sequence(floor(x, -reach), floor(x, reach)))
    row = F.explode(F.sequence(floor(y, -reach), floor(y, reach)))
    exploded = side.withColumn("_x", column).withColumn("_y", row)
    return exploded.withColumn("cell", F.col("_x") * 1_000_000 + F.col("_y")).drop("_x", "_y")


def join(shape: Shape, options: dict[str, Any]) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """The native join of a workload: all columns of both sides."""
    left, right = shape.spec.aliases

    def apply(left_stream: DataFrame, right_stream: DataFrame) -> DataFrame:
        columns = [
            *(F.col(f"{left}.{name}").alias(f"{left}_{name}") for name in left_stream.columns),
            *(F.col(f"{right}.{name}").alias(f"{right}_{name}") for name in right_stream.columns),
        ]
        condition = f"({shape.spec.on}) AND {left}.ts BETWEEN {right}.ts - INTERVAL {shape.within}"
        condition += f" AND {right}.ts + INTERVAL {shape.within}"
        if cell := options.get("cell"):
            left_stream = cells(left_stream, "x", "y", cell, reach=0)
            right_stream = cells(right_stream, "a", "b", cell, reach=10)
            condition = f"{left}.cell = {right}.cell AND {condition}"
        joined = left_stream.alias(left).join(right_stream.alias(right), F.expr(condition), "inner")
        return joined.select(*columns)

    return apply


def prepare(task: Task) -> spark_run.Query:
    """Session and join of a task."""
    options = {**DEFAULTS[task.shape.workload], **task.options}
    form = ", ".join(f"{key} {value}" for key, value in options.items())
    return spark_run.Query(session(task, options), join(task.shape, options), form)


def run(task: Task) -> dict[str, Any]:
    """Measure, or report Spark's refusal."""
    query = prepare(task)
    try:
        return spark_run.measure(task, query)
    except AnalysisException as error:
        return {"refused": str(error).splitlines()[0], "form": "refused"}
