"""Thetastream, called the way a user calls it."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from bench import spark_run
from bench.task import Task

DEFAULTS: dict[str, Any] = {"m": 1, "n": 1}


def counters(query: StreamingQuery) -> dict[int, dict[str, int]]:
    """Bytes of state, and bytes that left the units, per epoch, from the engine's own counters."""
    import thetastream as th

    # An epoch that no unit took part in, such as a last one without input, has no counters.
    names = ("state_bytes", "emitted_bytes")
    return {
        epoch["epoch"]: {name: epoch.get(name, 0) for name in names}
        for epoch in th.metrics(query)
        if epoch["units"]
    }


def prepare(task: Task) -> spark_run.Query:
    """Session and join of a task."""
    import thetastream as th

    options = {**DEFAULTS, **task.options}
    shape = task.shape
    conf = {**spark_run.CONF, "spark.driver.memory": task.driver_memory}
    spark = th.local_session(2, "bench-thetastream", **conf)

    def join(left: DataFrame, right: DataFrame) -> DataFrame:
        streams = dict(zip(shape.spec.aliases, (left, right), strict=True))
        model = th.Biclique(units=(options["m"], options["n"]))
        return th.join(streams, on=shape.spec.on, within=shape.within, model=model)

    form = f"Biclique(units=({options['m']}, {options['n']}))"
    return spark_run.Query(spark, join, form, counters)


def run(task: Task) -> dict[str, Any]:
    """Measure."""
    return spark_run.measure(task, prepare(task))
