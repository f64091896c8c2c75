"""Joins on any condition between unbounded streams, on Apache Spark Structured Streaming."""

import thetastream.core.search_path  # noqa: F401 (it runs first, so that nothing comes from the current folder)
from thetastream.conditions import predicate, within_metres
from thetastream.core.errors import (
    InvalidQuery,
    PredicateError,
    QueryError,
    SessionError,
    StateError,
    StoreError,
    ThetastreamError,
)
from thetastream.core.how import Nearest
from thetastream.core.shed import Shed
from thetastream.core.spans import Rows
from thetastream.families.hops.plan import MultiwayPlan
from thetastream.families.pairs.plan import JoinPlan
from thetastream.joins.ask.statistics import statistics
from thetastream.joins.ask.watermark import with_watermark
from thetastream.joins.compose.pipeline import PipelinePlan
from thetastream.joins.handle import ControlHandle, control
from thetastream.joins.join import col, from_nanos, join, plan
from thetastream.joins.join_many import join_many
from thetastream.joins.plan import Plan
from thetastream.joins.tasks import JoinTasks
from thetastream.joins.write import read_results, write
from thetastream.lowering.query import CrossJoinWarning, UnboundedStateWarning
from thetastream.lowering.statistics import Statistics
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.results.question import query
from thetastream.results.snapshots import Snapshot, Snapshots
from thetastream.results.subscription import Delivery, subscribe
from thetastream.runtime.checkpoints.paths import update_paths
from thetastream.runtime.control.policies import TwoPhaseScaling
from thetastream.runtime.observe.watch import LateTuplesWarning, StalledWatermarkWarning
from thetastream.spark.event_time import by_arrival
from thetastream.spark.observe.export import export_metrics
from thetastream.spark.observe.metrics import metrics
from thetastream.spark.session.configure import ManyPartitionsWarning, configure, local_session
from thetastream.spark.session.memory import SmallMemoryWarning
from thetastream.spark.sinks.file_sink_log import finish_epoch
from thetastream.statements import aggregate, insert, sql
from thetastream.stores import CassandraStore, DeltaStore, HBaseStore, ParquetStore, PostgresStore

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
