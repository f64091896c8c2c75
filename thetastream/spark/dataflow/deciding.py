"""Runs the second units of a join that answers each tuple by a condition that Spark evaluates in part.

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> exchange -> second units -> answers

Both operators run in the same epoch. A row reaches the second unit that has the slot of its first unit.
No column between them is marked as event time, so Spark drops no row as late. Second units need no watermark.
"""

from pyspark.sql import DataFrame

from thetastream.core.identity import Part, digest
from thetastream.engine.answers.deciding import ROWS
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import identify_settings
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.context import RunContext
from thetastream.runtime.emit import Emitter, FrameEmitter
from thetastream.runtime.epoch import UnitEpoch
from thetastream.runtime.flow import CANDIDATE, Flow, UnitStage
from thetastream.spark.dataflow.exchange import route_rows
from thetastream.spark.dataflow.operator import run_batch_units, run_units
from thetastream.spark.dataflow.output import parse_columns
from thetastream.spark.observe import metrics
from thetastream.spark.session.configure import read_meaning

UNITS = "the units"
"""The part of an identity that tells the second units of a query from its first units."""


def decide(stage: UnitStage, candidates: DataFrame, flow: Flow, run: RunContext) -> DataFrame:
    """Run the second units; return the columns that leave them.

    ``candidates`` are the rows of the first units that the residual has left.
    """
    columns = parse_columns(candidates.sparkSession, stage.output.columns)
    fitted = FittedSpec(stage.spec, stage.choice)
    rows = route_rows(fitted, ROWS, candidates.select(f"{quote(CANDIDATE)}.*"), "pairs")
    if not candidates.isStreaming:
        return run_batch_units(rows, stage.spec, columns)
    own = {UNITS: Part("second", "the second units")}
    query = {**flow.identity, **identify_settings(read_meaning(candidates.sparkSession)), **own}

    def epoch_of(emitter: Emitter) -> UnitEpoch:
        # The first units report about the streams.
        return UnitEpoch(fitted, query, emitter, RunContext(cache_folder=run.cache_folder))

    results = run_units(rows, columns, FrameEmitter, stage.spec.has_event_time, epoch_of)
    plan = metrics.describe_plan(flow, query)
    plan["words"] |= {UNITS: query[UNITS].words}
    return metrics.observe(results, digest(query), plan)
