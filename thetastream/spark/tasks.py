"""Several join tasks as Spark runs them: one exchange, one stateful operator, results tagged with their task.

stream -> filters, keys of all tasks -> blocks -+                     +- task 1 -+
                                                +- exchange -> unit --+- ...     +- results, by task
stream -> filters, keys of all tasks -> blocks -+                     +- task n -+
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from thetastream.joiner.clock import BATCH
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.tasks import TaskSpec, TasksState, TasksUnit
from thetastream.joiner.unit import Matches, UnitSpec
from thetastream.models.base import Model
from thetastream.plan.tasks import TASK, Task, TasksPlan
from thetastream.spark import dataflow, metrics
from thetastream.spark.dataflow import Batches, batch_inboxes, routed, slots
from thetastream.spark.emit import Emitter, outcome, result_batch, unpack_blocks, weighed
from thetastream.spark.epoch import begin, end, read_inbox
from thetastream.spark.manifest import Fingerprint, digest
from thetastream.spark.operator import stateful, with_counters
from thetastream.spark.output import is_flat, pairs
from thetastream.spark.segments import DurableStore, PartMap
from thetastream.spark.session import meaning


@dataclass(frozen=True)
class TasksEpoch:
    """What travels to the workers."""

    tasks: tuple[TaskSpec, ...]
    model: Model
    slots: dict[int, int] = field(hash=False)
    """Grouping key -> slot of the model."""
    fingerprint: Fingerprint = field(hash=False)
    emitter: Emitter
    cache_folder: str | None
    has_watermark: bool = False

    def run(
        self, key: int, rows: Iterator[pd.DataFrame], timers: Any, manifest: Any, parts: PartMap, handle: Any
    ) -> Iterator[pd.DataFrame]:
        """One unit's epoch, as ``EpochSpec.run`` is one of a single join: results, and a row of counters."""
        # 1. State as committed by the epoch before.
        state, clock, root = begin(manifest, self.fingerprint, self.cache_folder, TasksState, timers)
        stores = {task.name: DurableStore(parts, task.unit.plans, root) for task in self.tasks}
        slot = self.slots[key]
        unit = TasksUnit(self.tasks, self.model, slot, state, stores)
        # 2. The epoch.
        found = _tagged(unit.epoch(read_inbox(rows), clock))
        yield from self.emitter.gathered(weighed(found, unit.counters))
        # 3. State for the next one.
        end(manifest, self.fingerprint, clock, unit.state, self.has_watermark, handle)
        yield self.emitter.counters(slot, unit.counters)


def build_tasks(
    plan: TasksPlan, model: Model, streams: tuple[DataFrame, DataFrame], cache_folder: str | None = None
) -> DataFrame:
    """The results of all tasks: the column ``task`` and one struct column per alias.

    Parameters
    ----------
    plan : TasksPlan
        From ``thetastream.plan.tasks``.
    model : Model
        Router of all tasks; it may not route by what a condition compares.
    streams : pair of DataFrame
        Left and right input, both streaming or both batch.
    cache_folder : str, optional
        Host-local folder for mapped segments; Spark's local directory when left out.
    """
    spark = streams[0].sparkSession
    join_id = uuid.uuid4().hex
    has_watermark = any(side.time is not None for side in plan.tasks[0].plan.condition.sides)
    together = routed(plan.sides, streams, model, None, has_watermark, join_id)
    output = pairs(spark, plan.tasks[0].plan, None)  # the payload is the same for all
    columns = StructType([StructField(TASK, IntegerType()), *output.columns])
    zone = spark.conf.get("spark.sql.session.timeZone")
    specs = tuple(TaskSpec(task.name, _unit(task), task.passes) for task in plan.tasks)
    if any(stream.isStreaming for stream in streams):
        query = fingerprint(plan, model) | meaning(spark)

        def spec_of(emitter: Emitter) -> TasksEpoch:
            return TasksEpoch(specs, model, slots(model), query, emitter, cache_folder, has_watermark)

        results = stateful(together, columns, is_flat(columns), has_watermark, spec_of)
        if not is_flat(columns):
            results = results.mapInArrow(unpack_blocks, with_counters(columns))
        results = metrics.observe(results, digest(query), join_id)
    else:
        step = _batch_units(specs, model, to_arrow_schema(columns, timezone=zone))
        results = together.repartition(F.col("unit")).mapInArrow(step, columns)
    names = F.array(*(F.lit(name) for name in plan.names))
    joined = results.select(F.get(names, F.col(TASK)).alias(TASK), *output.restored)
    for task in plan.tasks:
        for conjunct in task.plan.residual:
            joined = joined.where(F.when(F.col(TASK) == task.name, F.expr(conjunct)).otherwise(True))
    return joined


def fingerprint(plan: TasksPlan, model: Model) -> dict[str, str]:
    """What must stay the same for a checkpoint to be continued: the tasks, by name, and each of them."""
    parts = {"tasks": ", ".join(sorted(plan.names)), "model": repr(model)}
    for task in plan.tasks:
        of_task = dataflow.fingerprint(task.plan, model).items()
        parts |= {f"task {task.name}: {part}": text for part, text in of_task if part != "model"}
    return parts


def _unit(task: Task) -> UnitSpec:
    return UnitSpec(task.plan.condition, task.plan.indexes, task.plan.archive_period_us)


def _tagged(found: Iterator[tuple[int, Matches]]) -> Iterator[list[pa.Array]]:
    """Matches as columns that leave the unit, behind the number of their task."""
    for number, matches in found:
        for columns in outcome(None, [matches]):
            yield [pa.array(np.full(matches.left.num_rows, number, np.int32)), *columns]


def _batch_units(
    specs: tuple[TaskSpec, ...], model: Model, schema: pa.Schema
) -> Callable[[Batches], Batches]:
    by_key = slots(model)

    def join(batches: Batches) -> Batches:
        for key, inbox in batch_inboxes(batches).items():
            stores = {spec.name: MemoryStore() for spec in specs}
            unit = TasksUnit(specs, model, by_key[key], TasksState(), stores)
            for columns in _tagged(unit.epoch(inbox, BATCH)):
                yield result_batch(columns, schema)

    return join
