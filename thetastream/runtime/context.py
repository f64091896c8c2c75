"""The settings with which the units of a query run."""

from dataclasses import dataclass

from thetastream.core.shed import Shed
from thetastream.runtime.idle.reports import IdleReports


@dataclass(frozen=True)
class RunContext:
    """What the user and the session said about how units run.

    It is read once, when a join is planned, and is passed on whole. It is pickled and sent to the workers.
    """

    mailbox: str = ""
    """The folder of mailboxes, which the driver and all workers must reach. It is empty if neither messages
    nor a load shedder nor ``max_units`` need one."""
    cache_folder: str | None = None
    """A folder on each host for mapped segments. None means Spark's local directory."""
    late: str | None = None
    """The folder of late tuples, which all workers must reach; None if late tuples are only counted."""
    idle: IdleReports | None = None
    """What units report about streams that may be idle; None if no stream may be."""
    shed: Shed | None = None
    """The load shedder; None if nothing is dropped."""
    max_units: int | None = None
    """The largest number of units at once; None if the units do not change while the join runs."""
