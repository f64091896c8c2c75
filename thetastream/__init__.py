"""Joins on any condition between unbounded streams, on Apache Spark Structured Streaming."""

import thetastream.core.search_path  # It runs first, so that nothing comes from the current folder.
import thetastream.spark.version  # noqa: F401 (it refuses an old PySpark before anything else needs it)
from thetastream import checkpoints, errors, types
from thetastream.conditions import jaccard, metres, predicate, stable, within_metres
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import Nearest
from thetastream.core.shed import Shed
from thetastream.core.spans import Rows
from thetastream.core.version import VERSION
from thetastream.joins.ask.watermark import with_watermark
from thetastream.joins.changes import changes
from thetastream.joins.handle import control
from thetastream.joins.join import col, from_nanos, join, plan
from thetastream.joins.join_many import join_many
from thetastream.joins.measured_predicate import measure_predicate
from thetastream.joins.measured_statistics import statistics
from thetastream.joins.plan import Plan
from thetastream.joins.write import write
from thetastream.lowering.statistics import Statistics
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.models.replicated import Replicated
from thetastream.results.question import query
from thetastream.results.snapshots import Snapshots
from thetastream.results.subscription import subscribe
from thetastream.runtime.control.policies import LoadBalancing, TwoPhaseScaling
from thetastream.spark.end_of_input import finish
from thetastream.spark.event_time import by_arrival
from thetastream.spark.fork import fork
from thetastream.spark.observe.export import export_metrics
from thetastream.spark.observe.live import watch
from thetastream.spark.observe.metrics import metrics
from thetastream.spark.session.configure import configure, local_session
from thetastream.spark.sinks.changes import apply_changes
from thetastream.spark.sources.parquet import read_parquet
from thetastream.spark.tables.table import Table
from thetastream.spark.tables.versions import stage, versions
from thetastream.statements import aggregate, insert, sql
from thetastream.stores import CassandraStore, DeltaStore, HBaseStore, ParquetStore, PostgresStore

__version__ = VERSION

__all__ = [
    "ATR",
    "CTR",
    "Biclique",
    "CassandraStore",
    "Chain",
    "DeltaStore",
    "HBaseStore",
    "LoadBalancing",
    "Matrix",
    "Nearest",
    "ParquetStore",
    "Plan",
    "PostgresStore",
    "QueryError",
    "Replicated",
    "Ring",
    "Rows",
    "Shed",
    "Snapshots",
    "Split",
    "Statistics",
    "Table",
    "ThetastreamError",
    "TwoPhaseScaling",
    "aggregate",
    "apply_changes",
    "by_arrival",
    "changes",
    "checkpoints",
    "col",
    "configure",
    "control",
    "errors",
    "export_metrics",
    "finish",
    "fork",
    "from_nanos",
    "insert",
    "jaccard",
    "join",
    "join_many",
    "local_session",
    "measure_predicate",
    "metres",
    "metrics",
    "plan",
    "predicate",
    "query",
    "read_parquet",
    "sql",
    "stable",
    "stage",
    "statistics",
    "subscribe",
    "types",
    "versions",
    "watch",
    "with_watermark",
    "within_metres",
    "write",
]
