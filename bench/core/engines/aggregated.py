"""The join of ``handshake``, folded into 1,000 groups instead of emitted pair by pair."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.data import Task
from bench.core.engines.thetastream import DEFAULTS, asked, counters

GROUP = "r.x % 1000"


def prepare(task: Task) -> spark.Query:
    """Make the session and query of a task. With the option ``folded=false``, Spark aggregates the pairs."""
    options = {**DEFAULTS, "folded": True, **task.options}

    def groups(streams: dict[str, DataFrame]) -> DataFrame:
        join = asked(task, streams, options["m"], options["n"])
        if options["folded"]:
            return th.aggregate(**join, group_by=GROUP, aggs={"n": "count(*)", "total": "sum(s.c)"})
        matches = th.join(**join).groupBy(F.expr(GROUP))
        return matches.agg(F.count(F.lit(1)).alias("n"), F.sum("s.c").alias("total"))

    # Complete mode emits all groups in every epoch, so their sum is the number of results so far. Update mode
    # emits only the groups that the epoch changed, and with small windows these are not all.
    return spark.Query(
        th.local_session(2, "bench-aggregate", **spark.CONF, **{"spark.driver.memory": task.driver_memory}),
        groups,
        f"count and sum over {GROUP}, {'folded in the units' if options['folded'] else 'of pairs, by Spark'}",
        counters,
        mode="complete",
        results="coalesce(sum(n), 0)",
        is_running=True,
    )
