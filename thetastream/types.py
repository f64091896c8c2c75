"""Classes of values that functions return and programs do not make, for annotations."""

from thetastream.joins.handle import ControlHandle
from thetastream.joins.tasks import JoinTasks
from thetastream.results.snapshots import Snapshot
from thetastream.results.subscription import Delivery

__all__ = ["ControlHandle", "Delivery", "JoinTasks", "Snapshot"]
