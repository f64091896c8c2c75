"""Errors and warnings that programs seldom catch. ``th.ThetastreamError`` is the base of the errors."""

from thetastream.core.errors import InvalidQuery, PredicateError, SessionError, StateError, StoreError
from thetastream.lowering.query import CrossJoinWarning, UnboundedStateWarning
from thetastream.runtime.observe.health import LateTuplesWarning, StalledWatermarkWarning
from thetastream.spark.changes import UnmarkedChangesWarning
from thetastream.spark.session.configure import ManyPartitionsWarning
from thetastream.spark.session.memory import SmallMemoryWarning
from thetastream.spark.tables.stage import RefusedVersionWarning

__all__ = [
    "CrossJoinWarning",
    "InvalidQuery",
    "LateTuplesWarning",
    "ManyPartitionsWarning",
    "PredicateError",
    "RefusedVersionWarning",
    "SessionError",
    "SmallMemoryWarning",
    "StalledWatermarkWarning",
    "StateError",
    "StoreError",
    "UnboundedStateWarning",
    "UnmarkedChangesWarning",
]
