"""Reads the facts of a Spark task from its local properties.

Spark hands them to its tasks, also on Spark Connect. There is an exception: inside ``foreachBatch``, the
server of Spark Connect runs each action of the user's function in a thread that has none of the properties of
the query (``thetastream.runtime.task_facts`` says what follows).
"""

from pyspark import TaskContext

from thetastream.results.writer import PARTITIONS
from thetastream.runtime.task_facts import UNKNOWN, TaskFacts

_EPOCH, QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"
"""Spark names the jobs of a query by the identifier of its run."""
_RESTORED_PARTITIONS = "spark.sql.streaming.internal.stateStore.partitions"
"""The setting in which Spark keeps the number of a checkpoint. Earlier versions restored ``PARTITIONS``
itself. Units compare models again, so that another version cannot mix them."""


def read_task() -> TaskFacts:
    """Read the facts of the Spark task that calls. Outside of Spark tasks, nothing is known."""
    context = TaskContext.get()
    if context is None:
        return TaskFacts()
    read = context.getLocalProperty
    epoch = read(_EPOCH)
    partitions = read(_RESTORED_PARTITIONS) or read(PARTITIONS)
    return TaskFacts(
        read(QUERY) or UNKNOWN,
        None if epoch is None else int(epoch),
        context.partitionId(),
        int(partitions) if partitions else None,
        read(_RUN),
    )
