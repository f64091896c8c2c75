"""The join of ``handshake``, aggregated over 1,000 groups instead of given out pair by pair."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench import spark_run
from bench.engines import thetastream as pairs
from bench.task import Task

GROUP = "r.x % 1000"


def prepare(task: Task) -> spark_run.Query:
    """Session and query of a task; option ``folded=false`` lets Spark aggregate the pairs."""
    import thetastream as th

    options = {**pairs.DEFAULTS, "folded": True, **task.options}
    shape = task.shape
    conf = {**spark_run.CONF, "spark.driver.memory": task.driver_memory}
    spark = th.local_session(2, "bench-aggregate", **conf)

    def groups(left: DataFrame, right: DataFrame) -> DataFrame:
        join: dict[str, Any] = {
            "streams": dict(zip(shape.spec.aliases, (left, right), strict=True)),
            "on": shape.spec.on,
            "within": shape.within,
            "model": th.Biclique(units=(options["m"], options["n"])),
        }
        if options["folded"]:
            return th.aggregate(**join, group_by=GROUP, aggs={"n": "count(*)", "total": "sum(s.c)"})
        matches = th.join(**join).groupBy(F.expr(GROUP))
        return matches.agg(F.count(F.lit(1)).alias("n"), F.sum("s.c").alias("total"))

    form = (
        f"count and sum over {GROUP}, {'folded in the units' if options['folded'] else 'of pairs, by Spark'}"
    )
    # Every group changes in every epoch, so the sum over the updated ones is the number of results so far.
    return spark_run.Query(
        spark, groups, form, pairs.counters, mode="update", results="coalesce(sum(n), 0)", is_running=True
    )


def run(task: Task) -> dict[str, Any]:
    """Measure."""
    return spark_run.measure(task, prepare(task))
