"""Everything that benchmarks import from inside Thetastream. The rest uses the public interface."""

from tests.support.local import LocalJoin, LocalMultiway
from thetastream.aggregate.base import Measure
from thetastream.aggregate.count import MatchCount
from thetastream.aggregate.engine import FoldedSpec
from thetastream.aggregate.extremes import Greatest, Least
from thetastream.aggregate.operands import SideColumn
from thetastream.aggregate.sums import Total
from thetastream.aggregate.view import Fold, LocalView
from thetastream.control.change import Rules
from thetastream.control.load import LoadReader
from thetastream.control.offset import fold
from thetastream.control.request import Request
from thetastream.core.blocks import concat, pack, unpack
from thetastream.core.columns import HASH as HASH_COLUMN
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.core.keys import scramble
from thetastream.core.sides import Side
from thetastream.core.windows import Rows as CountWindow
from thetastream.engine.counters import Counters
from thetastream.engine.handshake.block_size import BYTE_S, LOOK_S, MESSAGE_S, BlockCost
from thetastream.engine.handshake.instructions import AckBlk, Group, TupleBlk
from thetastream.engine.handshake.letters import Letter
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.handshake.worker import HandshakeWorker
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.moved_tuples import is_moved
from thetastream.engine.multiway.equal_decisions import is_decision
from thetastream.engine.multiway.graph import Edge, Ends, GraphPredicate, JoinGraph
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.order import Order, sort_results
from thetastream.engine.store.run import Run as SortedRun
from thetastream.engine.store.segment import MemoryStore, SegmentMeta
from thetastream.engine.two_stream.query import SUBINDEXES_PER_WINDOW, UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import REGISTRY as SHAPES
from thetastream.index import IndexSpec
from thetastream.index.base import CANDIDATE_S, INSERT_S
from thetastream.kernels import walk as walk_kernel
from thetastream.local import LocalRun
from thetastream.local.controlled import ControlledRun
from thetastream.models.base import AUTO, Model
from thetastream.plan.cost import SEND_BYTE_S
from thetastream.plan.efficiency import brute_force, by_hash, by_range, matches
from thetastream.plan.index_choice import choose_index
from thetastream.plan.multiway_spec import HopOrders, build_multiway_spec
from thetastream.predicate import Predicate
from thetastream.predicate.sphere import RADIUS_M
from thetastream.simulator import core_time
from thetastream.simulator.core_time import Cluster, compute_core_parts, compute_driver_s
from thetastream.simulator.load_curve import BISTREAM as BISTREAM_CURVE
from thetastream.simulator.setting import Setting
from thetastream.spark.choice import FittedSpec
from thetastream.spark.exchange import route_rows
from thetastream.spark.mailbox.files import Mailbox
from thetastream.spark.mailbox.outbox import list_pages
from thetastream.spark.standard_error import stderr_into
from thetastream.spark.state.manifest import FORMAT as STATE_FORMAT
