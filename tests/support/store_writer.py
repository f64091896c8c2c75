"""A process that commits epochs to a store as Spark does, and that a test kills at any moment.

Spark writes its own commit of an epoch behind that of the store. Here it is the text of a file. A process
that starts again runs the first epoch that has no such commit.
"""

import os
from pathlib import Path

import pyarrow as pa

from thetastream.results.description import Description
from thetastream.results.snapshots import Snapshots
from thetastream.results.staged import Origin
from thetastream.results.store import Store

HELD = Description(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), "at", ("id",))
RULE = Snapshots(every="10 us", size=60, delays=1)
TASKS, ROWS = 2, 5


def list_ids(epoch: int, task: int) -> list[int]:
    """List the ids that a task brings in an epoch."""
    return [(epoch * TASKS + task) * ROWS + n for n in range(ROWS)]


def write(store: Store, checkpoint: str, epochs: int) -> None:
    """Run all epochs that have no commit of Spark."""
    log = Path(checkpoint)
    first = int(log.read_text()) + 1 if log.exists() else 0
    for epoch in range(first, epochs):
        staged = []
        for task in range(TASKS):
            stage = store.open_stage(Origin("q", epoch, str(task)), HELD)
            ids = list_ids(epoch, task)
            times = pa.array([3 * epoch] * ROWS).cast(HELD.schema.field("at").type)
            stage.add(pa.RecordBatch.from_arrays([pa.array(ids), times], schema=HELD.schema))
            staged.append(stage.close())
        store.commit("q", epoch, [one for one in staged if one is not None], RULE)
        temporary = log.with_suffix(".new")
        temporary.write_text(str(epoch))
        os.replace(temporary, log)
