"""The join of ``handshake``, aggregated over 1,000 groups instead of given out pair by pair."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.data import Task
from bench.core.engines.thetastream import DEFAULTS, asked, counters

GROUP = "r.x % 1000"


def prepare(task: Task) -> spark.Query:
    """Session and query of a task; option ``folded=false`` lets Spark aggregate the pairs."""
    options = {**DEFAULTS, "folded": True, **task.options}

    def groups(streams: dict[str, DataFrame]) -> DataFrame:
        join = asked(task, streams, options["m"], options["n"])
        if options["folded"]:
            return th.aggregate(**join, group_by=GROUP, aggs={"n": "count(*)", "total": "sum(s.c)"})
        matches = th.join(**join).groupBy(F.expr(GROUP))
        return matches.agg(F.count(F.lit(1)).alias("n"), F.sum("s.c").alias("total"))

    # Every group changes in every epoch of many more results than groups, so the sum over the updated ones is
    # the number of results so far. Windows of less than about 32,768 tuples are too small for that.
    return spark.Query(
        th.local_session(2, "bench-aggregate", **spark.CONF, **{"spark.driver.memory": task.driver_memory}),
        groups,
        f"count and sum over {GROUP}, {'folded in the units' if options['folded'] else 'of pairs, by Spark'}",
        counters,
        mode="update",
        results="coalesce(sum(n), 0)",
        is_running=True,
    )


def run(task: Task) -> dict[str, Any]:
    return spark.measure(task, prepare(task))
