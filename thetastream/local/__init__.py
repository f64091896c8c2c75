"""The same routers, units and indexes in one process, without Spark."""

from thetastream.local.runner import LocalJoin

__all__ = ["LocalJoin"]
