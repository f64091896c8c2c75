"""Joins on any condition between unbounded streams, on Apache Spark Structured Streaming."""

from thetastream.api import join, join_many, plan
from thetastream.binary import JoinPlan
from thetastream.cascade import CascadePlan
from thetastream.errors import (
    InvalidQuery,
    PredicateError,
    QueryError,
    SessionError,
    StateError,
    ThetastreamError,
)
from thetastream.frontend.statistics import statistics
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.plan.query import CrossJoinWarning
from thetastream.plan.statistics import Statistics
from thetastream.predicate import predicate
from thetastream.spark.arrival import by_arrival
from thetastream.spark.metrics import metrics
from thetastream.spark.session import configure, local_session
from thetastream.sql import aggregate, sql
from thetastream.tasks import JoinTasks
from thetastream.windows import Rows

__version__ = "0.1.0"

__all__ = [
    "ATR",
    "CTR",
    "Biclique",
    "CascadePlan",
    "Chain",
    "CrossJoinWarning",
    "InvalidQuery",
    "JoinPlan",
    "JoinTasks",
    "Matrix",
    "PredicateError",
    "QueryError",
    "Ring",
    "Rows",
    "SessionError",
    "Split",
    "StateError",
    "Statistics",
    "ThetastreamError",
    "aggregate",
    "by_arrival",
    "configure",
    "join",
    "join_many",
    "local_session",
    "metrics",
    "plan",
    "predicate",
    "sql",
    "statistics",
]
