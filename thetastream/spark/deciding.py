"""Runs the second units of a join that answers each tuple by a condition that Spark evaluates in part.

    first units -> candidate pairs, decided tuples -> Spark drops pairs -> exchange -> second units -> answers

Both operators run in the same epoch. A row reaches the second unit that has the slot of its first unit.
No column between them is marked as event time, so Spark drops no row as late. Second units need no watermark.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from thetastream.core.identity import Identity, Part, digest
from thetastream.engine.answers.deciding import ROWS
from thetastream.engine.answers.spec import DecidingSpec
from thetastream.plan.domains import quote
from thetastream.plan.identity import identify_settings
from thetastream.spark import metrics
from thetastream.spark.choice import Choice, Fitted, FittedSpec
from thetastream.spark.emit import Emitter, FrameEmitter
from thetastream.spark.epoch import UnitEpoch
from thetastream.spark.exchange import route_rows
from thetastream.spark.operator import run_batch_units, run_units
from thetastream.spark.output import CANDIDATE, Output
from thetastream.spark.session import read_meaning

UNITS = "the units"
"""The part of an identity that tells the second units of a query from its first units."""


@dataclass(frozen=True)
class Deciding:
    """The second units of a join."""

    spec: DecidingSpec
    output: Output
    choice: Choice | None = None
    """What the planner chooses for other numbers of partitions; None if the user named the model."""

    def with_slots(self, max_units: int) -> "Deciding":
        """Return the second units of a join whose first units may change, up to a number of slots."""
        choice = self.choice
        if choice is not None:
            choice = replace(choice, fit=partial(_fit_slots, choice.fit, max_units))
        return replace(self, spec=replace(self.spec, max_units=max_units), choice=choice)


def _fit_slots(fit: Callable[[int], Fitted], max_units: int, partitions: int) -> Fitted:
    spec, model = fit(partitions)
    assert isinstance(spec, DecidingSpec)
    return Fitted(replace(spec, max_units=max_units), model)


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
