"""A runner that uses the same routers, engines and indexes in one process, without Spark."""

from thetastream.local.controlled import ControlledRun
from thetastream.local.runner import LocalRun

__all__ = ["ControlledRun", "LocalRun"]
