"""Fills the window of a join once, for engines that put the results of the same join into different sinks.

The checkpoint of the query is kept beside the data as soon as the window is full. Each engine continues from
a copy of it: Spark lets a query continue with another sink, and the units of a join let it continue with
other columns. So no engine spends minutes on epochs that are not measured.
"""

import shutil
import tempfile
from typing import Any

import thetastream as th
from bench.core import spark
from bench.core.data import FULL, Task
from bench.core.engines import files


def run(task: Task) -> dict[str, Any]:
    """Run the join until its window is full, and keep its checkpoint. Its results are one column."""
    shape, query = task.shape, files.prepare(task)
    epochs = -(-shape.window // shape.epoch)
    pairs = query.join(spark.streams(query.spark, shape.folder, shape.spec.aliases))
    select = [f"{shape.spec.aliases[0]}.ts AS ts"]
    # Spark keeps the path of a checkpoint in it, so the folder cannot be renamed when it is complete.
    checkpoint = task.full_window
    assert checkpoint is not None
    shutil.rmtree(checkpoint, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = th.ParquetStore(folder)
        running = th.write(pairs, store, select=select, checkpoint=str(checkpoint), trigger="0 seconds")
        while spark.count_done(running) < epochs:
            if running.awaitTermination(spark.POLL_SECONDS):  # type: ignore[arg-type]
                raise RuntimeError(f"the query ended after {spark.count_done(running)} epochs")
        running.stop()
    (checkpoint / FULL).touch()
    query.spark.stop()
    return {}
