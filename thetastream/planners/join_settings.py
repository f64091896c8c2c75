"""The settings of a join of two streams, checked."""

from collections.abc import Callable
from dataclasses import dataclass

from thetastream.core.shed import Shed
from thetastream.engine.order import Order
from thetastream.models.base import Model
from thetastream.plan.statistics import Statistics
from thetastream.spark.idle.reports import IdleReports


@dataclass(frozen=True)
class JoinSettings:
    """Settings of a join of two streams."""

    model: Model | None = None
    """The model. None means the cheapest model that can run the query."""
    choose: Callable[[int], Model] | None = None
    """How the model follows from the number of shuffle partitions; None if the user set the model
    completely."""
    index: str | None = None
    archive_period_us: int | None = None
    order: Order | None = None
    partitions: int = 2
    """Number of shuffle partitions of the session."""
    statistics: Statistics | None = None
    """The statistics from which costs are estimated. None means the default assumptions."""
    cache_folder: str | None = None
    late: str | None = None
    """The folder of late tuples; None if they are only counted."""
    shed: Shed | None = None
    """The load shedder; None if nothing is dropped."""
    idle: IdleReports | None = None
    """What units report about streams that may be idle. None if no stream may be."""
    mailbox: str = ""
    """The folder of mailboxes, if the model, the load shedder or ``max_units`` needs one; otherwise empty."""
    max_units: int | None = None
    """The largest number of units at once; None if the units do not change while the join runs."""
    bounds_watermark: bool = False
    """Whether results have a column that says how far the watermark rises after the epoch."""
