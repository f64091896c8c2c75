"""The facts of a Spark task: what Spark tells, what is unknown, and that a reused worker reads them anew."""

from types import SimpleNamespace

import pytest
from pyspark import TaskContext, cloudpickle

from thetastream.core.errors import StateError
from thetastream.runtime.task_facts import TaskFacts
from thetastream.spark.task_properties import read_task

RESTORED = "spark.sql.streaming.internal.stateStore.partitions"


def run_task(monkeypatch: pytest.MonkeyPatch, partition: int, **properties: str) -> None:
    """Let a task begin in this process."""
    told = {name.replace("__", "."): value for name, value in properties.items()}
    context = SimpleNamespace(partitionId=lambda: partition, getLocalProperty=told.get)
    monkeypatch.setattr(TaskContext, "get", lambda: context)


def test_a_reused_worker_reads_the_facts_of_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    read = cloudpickle.loads(cloudpickle.dumps(read_task))
    assert read() == TaskFacts("unknown", None, 0, None)
    names = {"sql__streaming__queryId": "q", "spark__sql__shuffle__partitions": "200"}
    run_task(monkeypatch, 3, streaming__sql__batchId="7", **names, spark__jobGroup__id="r")
    assert read() == TaskFacts("q", 7, 3, 200, "r")
    # The checkpoint knows better than the session with how many partitions the query runs.
    run_task(monkeypatch, 0, streaming__sql__batchId="8", **names, **{RESTORED.replace(".", "__"): "5"})
    assert read() == TaskFacts("q", 8, 0, 5)


def test_an_epoch_that_spark_does_not_tell_is_refused_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_task(monkeypatch, 0)
    with pytest.raises(StateError, match=r"\[EPOCH_UNKNOWN\] Spark must tell"):
        read_task().find_epoch()
