"""Runs the second units of a join that answers each tuple by a condition that Spark evaluates in part.

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> exchange -> second units -> answers

Both operators run in the same epoch. A row reaches the second unit that has the slot of its first unit.
No column between them is marked as event time, so Spark drops no row as late. Second units need no watermark.
"""

from pyspark.sql import DataFrame

from thetastream.core.identity import Identity, Part, digest
from thetastream.engine.answers.deciding import ROWS
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import identify_settings
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.emit import Emitter, FrameEmitter
from thetastream.runtime.epoch import UnitEpoch
from thetastream.runtime.flow import CANDIDATE, Deciding
from thetastream.spark.dataflow.exchange import route_rows
from thetastream.spark.dataflow.operator import run_batch_units, run_units
from thetastream.spark.observe import metrics
from thetastream.spark.session.configure import read_meaning

UNITS = "the units"
"""The part of an identity that tells the second units of a query from its first units."""


def decide(
    deciding: Deciding, candidates: DataFrame, identity: Identity, cache_folder: str | None
) -> DataFrame:
    """Run the second units; return the columns that leave them.

    ``candidates`` are the rows of the first units that the residual has left, and ``identity`` is that of the
    join.
    """
    columns = deciding.output.columns
    fitted = FittedSpec(deciding.spec, deciding.choice)
    rows = route_rows(fitted, ROWS, candidates.select(f"{quote(CANDIDATE)}.*"), "pairs")
    if not candidates.isStreaming:
        return run_batch_units(rows, deciding.spec, columns)
    own = {UNITS: Part("second", "the second units")}
    query = {**identity, **identify_settings(read_meaning(candidates.sparkSession)), **own}

    def epoch_of(emitter: Emitter) -> UnitEpoch:
        return UnitEpoch(
            fitted, query, emitter, "", cache_folder, late=None, idle=None, shed=None, delays_us={}
        )

    results = run_units(rows, columns, FrameEmitter, deciding.spec.has_event_time, epoch_of)
    plan = metrics.describe_plan(deciding.spec.candidates.join.model, query)
    plan["words"] |= {UNITS: query[UNITS].words}
    return metrics.observe(results, digest(query), plan)
