"""Thetastream, called as a user calls it. The engine ``spark-reader`` differs by Spark's reader of files."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import thetastream as th
from bench.core import spark
from bench.core.data import Task

DEFAULTS: dict[str, Any] = {"m": 1, "n": 1}


def counters(query: StreamingQuery) -> dict[int, dict[str, int]]:
    """Read the bytes of state and the bytes that left the units in each epoch from ``th.metrics``."""
    # An epoch in which no unit took part, such as a last one without input, has no counters.
    names = ("state_bytes", "emitted_bytes")
    return {
        epoch["epoch"]: {name: epoch.get(name, 0) for name in names}
        for epoch in th.metrics(query)
        if epoch["units"]
    }


def asked(task: Task, streams: dict[str, DataFrame], m: int, n: int) -> dict[str, Any]:
    shape, model = task.shape, th.Biclique(units=(m, n))
    return {"streams": streams, "on": shape.spec.on, "within": shape.within, "model": model}


def prepare(task: Task) -> spark.Query:
    units = {**DEFAULTS, **task.options}
    conf = {**spark.CONF, "spark.driver.memory": task.driver_memory}
    return spark.Query(
        th.local_session(2, "bench-thetastream", **conf),
        lambda streams: th.join(**asked(task, streams, units["m"], units["n"])),
        f"Biclique(units=({units['m']}, {units['n']}))",
        reads_by_arrow=task.engine != "spark-reader",
        counters=counters,
    )
