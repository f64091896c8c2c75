"""Joins on any condition between unbounded streams, on Apache Spark Structured Streaming."""

import thetastream.core.search_path  # noqa: F401 (it runs first, so that nothing comes from the current folder)
from thetastream.api import col, from_nanos, join, join_many, plan, read_results, write
from thetastream.control.policies import TwoPhaseScaling
from thetastream.core.how import Nearest
from thetastream.core.shed import Shed
from thetastream.core.windows import Rows
from thetastream.errors import (
    InvalidQuery,
    PredicateError,
    QueryError,
    SessionError,
    StateError,
    StoreError,
    ThetastreamError,
)
from thetastream.frontend.statistics import statistics
from thetastream.frontend.watermark import with_watermark
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.plan.query import CrossJoinWarning, UnboundedStateWarning
from thetastream.plan.statistics import Statistics
from thetastream.planners import JoinPlan, JoinTasks, MultiwayPlan, PipelinePlan, Plan
from thetastream.predicate import predicate, within_metres
from thetastream.spark.by_arrival import by_arrival
from thetastream.spark.checkpoint_paths import update_paths
from thetastream.spark.control.handle import ControlHandle, control
from thetastream.spark.export import export_metrics
from thetastream.spark.memory import SmallMemoryWarning
from thetastream.spark.metrics import metrics
from thetastream.spark.session import ManyPartitionsWarning, configure, local_session
from thetastream.spark.unfinished_epoch import finish_epoch
from thetastream.spark.watch import LateTuplesWarning, StalledWatermarkWarning
from thetastream.sql import aggregate, insert, sql
from thetastream.stores import CassandraStore, DeltaStore, HBaseStore, ParquetStore, PostgresStore
from thetastream.stores.question import query
from thetastream.stores.snapshots import Snapshot, Snapshots
from thetastream.stores.subscription import Delivery, subscribe

__version__ = "0.1.0"

__all__ = [
    "ATR",
    "CTR",
    "Biclique",
    "CassandraStore",
    "Chain",
    "ControlHandle",
    "CrossJoinWarning",
    "Delivery",
    "DeltaStore",
    "HBaseStore",
    "InvalidQuery",
    "JoinPlan",
    "JoinTasks",
    "LateTuplesWarning",
    "ManyPartitionsWarning",
    "Matrix",
    "MultiwayPlan",
    "Nearest",
    "ParquetStore",
    "PipelinePlan",
    "Plan",
    "PostgresStore",
    "PredicateError",
    "QueryError",
    "Ring",
    "Rows",
    "SessionError",
    "Shed",
    "SmallMemoryWarning",
    "Snapshot",
    "Snapshots",
    "Split",
    "StalledWatermarkWarning",
    "StateError",
    "Statistics",
    "StoreError",
    "ThetastreamError",
    "TwoPhaseScaling",
    "UnboundedStateWarning",
    "aggregate",
    "by_arrival",
    "col",
    "configure",
    "control",
    "export_metrics",
    "finish_epoch",
    "from_nanos",
    "insert",
    "join",
    "join_many",
    "local_session",
    "metrics",
    "plan",
    "predicate",
    "query",
    "read_results",
    "sql",
    "statistics",
    "subscribe",
    "update_paths",
    "with_watermark",
    "within_metres",
    "write",
]
