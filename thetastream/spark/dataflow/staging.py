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
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from thetastream.core.blocks import gather
from thetastream.core.columns import project
from thetastream.runtime.emit import BYTES_AT_ONCE, MOST_BYTES, FrameEmitter, build_result_batch
from thetastream.runtime.flow import Staging

if TYPE_CHECKING:
    import pandas as pd

STAGED = "staged"
"""Column of the operator's output that describes what a unit has staged, as JSON."""
ROWS_AT_ONCE = 1 << 16
"""Rows of results that are projected together."""
COLUMNS = StructType([StructField(STAGED, StringType())])
"""The columns that leave the units instead of results."""


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
