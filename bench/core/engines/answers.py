"""Outer, semi, anti and nearest joins of Thetastream, under the condition of the workload."""

from typing import Any

import thetastream as th
from bench.core import spark
from bench.core.answers import NEAREST_BY
from bench.core.data import Task
from bench.core.engines.thetastream import counters


def prepare(task: Task) -> spark.Query:
    """Make the session and query of a task. The planner chooses the model, unless an option names one."""
    how: Any = th.Nearest(1, by=NEAREST_BY) if task.engine == "nearest" else task.engine
    conf = {**spark.CONF, "spark.driver.memory": task.driver_memory}
    shape, model = task.shape, None
    if "rows" in task.options:
        model = th.Matrix(rows=int(task.options["rows"]), columns=1)
    return spark.Query(
        th.local_session(2, f"bench-{task.engine}", **conf),
        lambda streams: th.join(streams, shape.spec.on, shape.within, model, how),
        f"how={task.engine}, by {model or 'the model that the planner chooses'}",
        counters,
    )
