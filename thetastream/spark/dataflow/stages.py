"""What follows the units of a join on Spark: second units, the order of results, columns, or a store.

Second units decide the tuples of a join that answers each tuple by a condition that Spark evaluates in part:

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> exchange -> second units -> answers

Both operators run in the same epoch. A row reaches the second unit that has the slot of its first unit. No
column between them is marked as event time, so Spark drops no row as late. Second units need no watermark.

If results are ordered, one Spark task gathers and sorts what all units found in an epoch. If they go into a
store, units stage them, and only names, counts and bounds leave the stateful operator:

    matches of a unit -> columns that the user selected -> stage of the store     (inside the epoch)
                                                               |
                                                               +-> one row: {name, rows, bytes, bounds}

To bring a result row through the JVM into a file costs more than to find it. If an attempt of a task fails,
it leaves rows behind that no commit names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from thetastream.core.blocks import cut, gather
from thetastream.core.columns import BLOCK, project
from thetastream.core.identity import UNITS, Identity, Part, digest
from thetastream.engine.answers.deciding import ROWS
from thetastream.engine.order import ARRIVAL_LEFT, ARRIVAL_RIGHT, Order, sort_results
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import identify_settings
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.emit import (
    BYTES_AT_ONCE,
    MOST_BYTES,
    Emitter,
    FrameEmitter,
    build_result_batch,
    unpack_blocks,
)
from thetastream.runtime.epoch import UnitEpoch
from thetastream.runtime.flow import CANDIDATE, Flow, Output, RunContext, Staging, UnitStage
from thetastream.spark.dataflow.exchange import route_rows
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.operator import run_batch_units, run_units
from thetastream.spark.observe import metrics
from thetastream.spark.session.configure import read_meaning
from thetastream.spark.session.zones import TIME_ZONE, read_zone
from thetastream.spark.task_properties import read_task

if TYPE_CHECKING:
    import pandas as pd

STAGED = "staged"
"""Column of the operator's output that describes what a unit has staged, as JSON."""
ROWS_AT_ONCE = 1 << 16
"""Rows of results that are projected together."""
STAGED_COLUMNS = StructType([StructField(STAGED, StringType())])
"""The columns that leave the units instead of results."""


def gather_in_order(results: DataFrame, columns: StructType, order: Order) -> DataFrame:
    """Sort the results of every epoch in one partition; ``results`` are rows, or blocks of rows."""
    places = columns.names.index(ARRIVAL_LEFT), columns.names.index(ARRIVAL_RIGHT)
    step = _make_gathering_step(order, places, results.columns == [BLOCK])
    return run_step(results.repartition(1), step, columns, "order results")


def _make_gathering_step(
    order: Order, places: tuple[int, int], is_packed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in sort_results(unpack_blocks(batches) if is_packed else batches, order, places):
            for batch in piece.to_batches():
                yield from cut(batch, MOST_BYTES)

    return step


def parse_columns(columns: Sequence[str]) -> StructType:
    """Parse columns, which are written as DDL, into a schema."""
    return cast(StructType, StructType.fromDDL(", ".join(columns))) if columns else StructType([])


def restore(results: DataFrame, output: Output) -> DataFrame:
    """Restore the user's columns from the columns that leave the units, and filter by the residual."""
    restored = results.selectExpr(*output.restored)
    if not output.residual:
        return restored
    return restored.where(" AND ".join(f"({conjunct}\n)" for conjunct in output.residual))


def identify_query(flow: Flow, meaning: dict[str, str]) -> Identity:
    """Return the identity of a query: that of its join, and what the session's settings mean for it."""
    return {**flow.identity, **identify_settings(meaning)}


def decide(stage: UnitStage, candidates: DataFrame, flow: Flow, run: RunContext | None) -> DataFrame:
    """Run the second units; return the columns that leave them.

    ``candidates`` are the rows of the first units that the residual has left. ``run`` is None for batch.
    """
    spark = candidates.sparkSession
    columns = parse_columns(stage.output.columns)
    fitted = FittedSpec(stage.spec, stage.choice)
    candidates = candidates.select(f"{quote(CANDIDATE)}.*")
    rows = route_rows(fitted, ROWS, candidates, "pairs", is_streaming=run is not None)
    if run is None:
        return run_batch_units(rows, stage.spec, columns, read_zone(spark))
    meaning = read_meaning(spark)
    own = {UNITS: Part("second", "the second units")}
    query = {**identify_query(flow, meaning), **own}

    def epoch_of(emitter: Emitter) -> UnitEpoch:
        # The first units report about the streams.
        return UnitEpoch(fitted, query, emitter, RunContext(cache_folder=run.cache_folder), read_task)

    results = run_units(rows, columns, FrameEmitter, stage.spec.has_event_time, epoch_of, meaning[TIME_ZONE])
    plan = metrics.describe_plan(flow, query)
    plan["words"] |= {UNITS: query[UNITS].words}
    return metrics.observe(results, digest(query), plan)


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
        stage = target.open_stage(read_task())
        batches = (build_result_batch(columns, self._block) for columns in pieces)
        for batch in gather(batches, ROWS_AT_ONCE, BYTES_AT_ONCE, MOST_BYTES):
            stage.add(project(batch, self._staging.sources, target.description.schema))
        staged = stage.close()
        if staged is not None:
            row = build_result_batch([pa.array([json.dumps(staged.as_json())])], self._schema)
            yield self._pack_frame(row)
