"""Runs units on Spark: rows grouped by unit go in, results come out.

On streams, the units run in Spark's stateful operator, and counters come out with the results.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from thetastream.core.columns import BLOCK, UNIT
from thetastream.engine.clock import BATCH
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.store.segment import MemoryStore
from thetastream.runtime.choice import find_unit_keys
from thetastream.runtime.emit import COUNTERS, Emitter, gather_batches
from thetastream.runtime.epoch import UnitEpoch
from thetastream.runtime.inbox_rows import fill_inboxes
from thetastream.runtime.routing_step import Batches
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.processor import JoinProcessor


def add_counters(columns: StructType) -> StructType:
    """Append a column of counters to the columns of results."""
    return StructType([*columns, StructField(COUNTERS, StringType())])


def run_units(
    rows: DataFrame,
    columns: StructType,
    emitter_of: Callable[[pa.Schema], Emitter],
    has_watermark: bool,
    epoch_of: Callable[[Emitter], UnitEpoch],
    zone: str,
) -> DataFrame:
    """Run the units on their rows; return ``columns`` and counters, packed in blocks if the emitter does so.

    Parameters
    ----------
    rows : DataFrame
        The rows of the exchange.
    columns : StructType
        The columns of results.
    emitter_of : callable
        Makes the emitter of results for a schema of columns and counters.
    has_watermark : bool
        Whether units use Spark's watermark.
    epoch_of : callable
        Makes the ``UnitEpoch`` that is sent to the workers, for a given emitter.
    zone : str
        The time zone of the session.
    """
    schema = add_counters(columns)
    arrow = to_arrow_schema(schema, timezone=zone)
    emitter = emitter_of(arrow)
    # A name would take two calls to the JVM more.
    return rows.groupBy(rows[UNIT]).transformWithStateInPandas(
        JoinProcessor(epoch_of(emitter)),
        StructType([StructField(BLOCK, BinaryType())]) if emitter.is_packing else schema,
        "Append",
        "EventTime" if has_watermark else "None",
    )


def run_batch_units(rows: DataFrame, spec: EngineSpec, columns: StructType, zone: str) -> DataFrame:
    """Run the units on the rows of batch DataFrames, which are one epoch; return ``columns``."""
    step = _make_batch_step(spec, to_arrow_schema(columns, timezone=zone))
    return run_step(rows.repartition(F.col(UNIT)), step, columns, "run units")


def _make_batch_step(spec: EngineSpec, schema: pa.Schema) -> Callable[[Batches], Batches]:
    slots = {key: slot for slot, key in enumerate(find_unit_keys(spec.n_units))}

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for key, inbox in fill_inboxes(batches).items():
            engine = spec.open(slots[key], spec.state_type(), lambda _: MemoryStore())
            yield from gather_batches(engine.epoch(inbox, BATCH), schema)

    return run
