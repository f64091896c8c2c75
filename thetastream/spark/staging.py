"""Lets units stage their results in a store themselves: only names, counts and bounds leave the stateful
operator.

    matches of a unit -> columns that the user selected -> stage of the store     (inside the epoch)
                                                               |
                                                               +-> one row: {name, rows, bytes, bounds}

To bring a result row through the JVM into a file costs more than to find it. If an attempt of a task fails,
it leaves rows behind that no commit names.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from thetastream.core.blocks import gather
from thetastream.core.result_columns import ColumnSource, project
from thetastream.spark.emit import BYTES_AT_ONCE, MOST_BYTES, FrameEmitter, build_result_batch
from thetastream.spark.task_properties import read_query, read_task_epoch, read_task_partition
from thetastream.stores import Store
from thetastream.stores.description import Description
from thetastream.stores.snapshots import EACH_EPOCH, Snapshots
from thetastream.stores.staged import Origin, Stage

if TYPE_CHECKING:
    import pandas as pd

STAGED = "staged"
"""Column of the operator's output that describes what a unit has staged, as JSON."""
ROWS_AT_ONCE = 1 << 16
"""Rows of results that are projected together."""
COLUMNS = StructType([StructField(STAGED, StringType())])
"""The columns that leave the units instead of results."""


@dataclass(frozen=True)
class Target:
    """A store, what it holds and when results become a snapshot. It is pickled and sent to the workers."""

    store: Store
    description: Description
    rule: Snapshots = EACH_EPOCH

    def open_stage(self) -> Stage:
        """Open a stage for the Spark task that calls."""
        origin = Origin(read_query(), read_task_epoch(), str(read_task_partition()))
        return self.store.open_stage(origin, self.description)


@dataclass(frozen=True)
class Staging:
    """What units stage: the columns that a user selected, and where they go."""

    target: Target
    columns: tuple[str, ...]
    """The block columns that units emit."""
    sources: tuple[ColumnSource, ...]
    """For each column of the store, how it follows from a block of results."""


class StagingEmitter(FrameEmitter):
    """Stages results, and emits one row that describes them.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that leave the units, with counters.
    block : pyarrow.Schema
        The columns of the engine's results.
    staging : Staging
    """

    def __init__(self, schema: pa.Schema, block: pa.Schema, staging: Staging) -> None:
        super().__init__(schema)
        self._block, self._staging = block, staging

    def gather_results(self, pieces: Iterable[Sequence[pa.Array]]) -> "Iterator[pd.DataFrame]":
        target = self._staging.target
        stage = target.open_stage()
        batches = (build_result_batch(columns, self._block) for columns in pieces)
        for batch in gather(batches, ROWS_AT_ONCE, BYTES_AT_ONCE, MOST_BYTES):
            stage.add(project(batch, self._staging.sources, target.description.schema))
        staged = stage.close()
        if staged is not None:
            row = build_result_batch([pa.array([json.dumps(staged.as_json())])], self._schema)
            yield self._pack_frame(row)
