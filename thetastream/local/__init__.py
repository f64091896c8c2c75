"""The same routers, units and indexes in one process, without Spark."""

from thetastream.local.runner import LocalJoin
from thetastream.local.tasks import LocalTasks

__all__ = ["LocalJoin", "LocalTasks"]
