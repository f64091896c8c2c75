"""Everything that benchmarks import from inside Thetastream. The rest uses the public interface."""

from bench.papers.efficiency import brute_force, by_hash, by_range, matches
from tests.support.controlled_run import ControlledRun
from tests.support.local import LocalJoin, LocalMultiway
from tests.support.local_run import LocalRun
from thetastream.aggregates.base import Measure
from thetastream.aggregates.operands import SideColumn
from thetastream.aggregates.simple import Greatest, Least, MatchCount, Total
from thetastream.conditions import Predicate
from thetastream.core.blocks import concat, pack, unpack
from thetastream.core.columns import HASH as HASH_COLUMN
from thetastream.core.columns import SIGN as SIGN_COLUMN
from thetastream.core.condition import (
    SUBINDEXES_PER_WINDOW,
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    MeasuredPair,
    PythonPredicate,
    RankedPair,
    SideSpec,
)
from thetastream.core.how import INNER, MeasuredRanking, find_nearest
from thetastream.core.keys import scramble
from thetastream.core.measure import MeasureLimit
from thetastream.core.sides import Role, Side
from thetastream.core.spans import Rows as CountWindow
from thetastream.core.sphere import RADIUS_M
from thetastream.engine.counters import Counters
from thetastream.engine.handshake.block_size import BYTE_S, LOOK_S, MESSAGE_S, BlockCost
from thetastream.engine.handshake.instructions import AckBlk, Group, HandshakeMessage, TupleBlk
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.handshake.worker import HandshakeWorker
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.lookup import Lookup, TableRuns
from thetastream.engine.moved_tuples import is_moved
from thetastream.engine.multiway.equal_decisions import is_decision
from thetastream.engine.multiway.graph import Edge, Ends, GraphPredicate, JoinGraph
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.order import Order, sort_results
from thetastream.engine.predicate_time import PredicateTime
from thetastream.engine.semantic_shedding import CellCounts
from thetastream.engine.shedding import Shedding
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run as SortedRun
from thetastream.engine.store.run import build
from thetastream.engine.store.segment import MemoryStore, SegmentMeta
from thetastream.engine.two_stream.content_routing import find_placing
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.views import Fold, FoldedSpec, LocalView
from thetastream.families.hops.cost import MultiwayLoad, choose_initial_slice, estimate_load
from thetastream.families.hops.graph import HopOrders, build_multiway_spec
from thetastream.families.pairs.cost import SEND_BYTE_S
from thetastream.index import REGISTRY as SHAPES
from thetastream.index import IndexSpec
from thetastream.index.base import CANDIDATE_S, INSERT_S
from thetastream.index.measures import REGISTRY as MEASURES
from thetastream.joins.measured_statistics import measure_statistics
from thetastream.kernels import walk as walk_kernel
from thetastream.lowering.lower import choose_index
from thetastream.models.base import AUTO, Model
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.control.change import apply_requests
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.policies import UnitLoad
from thetastream.runtime.control.policies.load import LoadReader
from thetastream.runtime.control.request import Request
from thetastream.runtime.mailbox.files import Mailbox
from thetastream.runtime.mailbox.outbox import list_pages
from thetastream.runtime.state.manifest import FORMAT as STATE_FORMAT
from thetastream.simulator import limits
from thetastream.simulator.limits import Cluster, compute_core_parts, compute_driver_s
from thetastream.simulator.scaling import BISTREAM as BISTREAM_CURVE
from thetastream.simulator.scaling import Setting
from thetastream.spark.dataflow.exchange import route_rows
from thetastream.spark.session.jvm import locate_archive, stderr_into
