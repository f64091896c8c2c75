"""Every engine keeps the protocol: it finds the bag of the nested loop, and its state survives as JSON.

{ (l, r) : l.k = r.k, |l.v - r.v| <= 2, |l.t - r.t| <= 8, neither is late }
"""

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.support import oracle
from tests.support.controlled_run import ControlledRun
from tests.support.local_run import LocalRun
from thetastream.aggregates import Measure
from thetastream.aggregates.simple import MatchCount
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.order import ARRIVAL_LEFT, ARRIVAL_RIGHT, Order, PunctuatedSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec, BoundSource
from thetastream.engine.views import Fold, FoldedSpec, ViewDelays
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.index import Hash, IndexSpec
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.runtime.control.change import find_target
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.request import Request

WINDOW = 8
SPAN = timedelta(microseconds=WINDOW)
COLUMNS = ("id", "t", "k", "v")
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])
SIDES = tuple(
    SideSpec(alias, COLUMNS, keys=(Key("k", Domain.INT), Key("v", Domain.INT)), time=Key("t", Domain.INT))
    for alias in "lr"
)
BAND = Dimension(Side.LEFT, 1, Bound(1, -2), Bound(1, 2))
CONDITION = Condition(
    (SIDES[0], SIDES[1]),
    (Equality(0, 0),),
    (BAND,),
    Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW), Bound(TIME, WINDOW)),
)
INDEXES = (IndexSpec(Hash(), (0,)),) * 2
UNIT = UnitSpec(CONDITION, INDEXES, 2)
Pairs = Counter[tuple[int, int]]


@dataclass(frozen=True)
class Family:
    """An engine under some model, and how its results are read."""

    spec: EngineSpec
    read: Callable[[list[pa.Array]], Iterator[tuple[int, int]]]


def ids_at(left: int, right: int) -> Callable[[list[pa.Array]], Iterator[tuple[int, int]]]:
    def read(columns: list[pa.Array]) -> Iterator[tuple[int, int]]:
        pairs = zip(columns[left].to_pylist(), columns[right].to_pylist(), strict=True)
        return ((a, b) for a, b in pairs if a is not None)

    return read


def counted(columns: list[pa.Array]) -> Iterator[tuple[int, int]]:
    """Read the rows of a view: a left id, which is the group, and the number of its partners."""
    for group, n in zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True):
        yield from [(group, -1)] * n


def multiway(model: Ring | ATR | CTR) -> EngineSpec:
    named = tuple(
        SideSpec(
            f"s{n}",
            tuple(f"s{n}{name}" for name in COLUMNS),
            keys=(Key(f"s{n}k", Domain.INT), Key(f"s{n}v", Domain.INT)),
            time=Key(f"s{n}t", Domain.INT),
        )
        for n in range(2)
    )
    edge = Edge((Equality(0, 0),), (BAND,), Ends(-WINDOW, WINDOW))
    return build_multiway_spec(JoinGraph(named, {(0, 1): edge}), ((1,), (0,)), model, 2)


PAIRS = ids_at(0, len(COLUMNS))
ORDERED = UnitSpec(CONDITION, INDEXES, 2, None, is_ordered=True)
ORDERED_COLUMNS = pa.schema([*SCHEMA, (ARRIVAL_LEFT, pa.int64()), *SCHEMA, (ARRIVAL_RIGHT, pa.int64())])
FOLD = Fold(((Side.LEFT, "id"),), (Measure(MatchCount()),))
FAMILIES: dict[str, Family] = {
    **{
        repr(model): Family(TwoStreamSpec(UNIT, model), PAIRS)
        for model in (
            Biclique((2, 3)),
            Biclique((2, 3), capacities=(3, 1, 1, 2, 1)),
            Biclique(4, 2),
            Split(3),
            Matrix(2, 2),
            Chain(3, fast_forward=True),
        )
    },
    **{
        repr(model): Family(multiway(model), PAIRS)
        for model in (Ring(3), ATR(3, segment=SPAN), CTR(4, copies=1, segment=SPAN))
    },
    "Chain(3)": Family(HandshakeSpec(CONDITION, INDEXES, 2, Chain(3, block=2)), PAIRS),
    "moving": Family(MovingSpec(TwoStreamSpec(UNIT, Matrix(2, 2))), PAIRS),
    "shared tasks": Family(
        SharedTasksSpec((TaskSpec("one", TwoStreamSpec(UNIT, Biclique(2))),)), ids_at(1, 1 + len(COLUMNS))
    ),
    "shared tasks on a chain": Family(
        SharedTasksSpec((TaskSpec("one", TwoStreamSpec(UNIT, Chain(3, fast_forward=True))),)),
        ids_at(1, 1 + len(COLUMNS)),
    ),
    "shared tasks on a chain that hands on": Family(
        SharedTasksSpec((TaskSpec("one", HandshakeSpec(CONDITION, INDEXES, 2, Chain(3, block=2))),)),
        ids_at(1, 1 + len(COLUMNS)),
    ),
    "folded": Family(FoldedSpec(TwoStreamSpec(UNIT, Biclique(2)), FOLD), counted),
    "folded, lazily": Family(
        FoldedSpec(
            TwoStreamSpec(UNIT, Biclique(2)),
            Fold(FOLD.groups, FOLD.measures, lazy=ViewDelays(1_000_000, (0, 0))),
        ),
        counted,
    ),
    "bounding": Family(
        BoundingSpec(TwoStreamSpec(UNIT, Biclique(2)), (BoundSource("t"), BoundSource("t", 7))), PAIRS
    ),
    "punctuated": Family(
        PunctuatedSpec(TwoStreamSpec(ORDERED, Split(2)), Order(10, is_punctuated=True), ORDERED_COLUMNS),
        ids_at(0, len(COLUMNS) + 1),
    ),
}

Epochs = list[tuple[list[dict[str, int]], list[dict[str, int]], int | None]]


def epochs_of(seed: int) -> Epochs:
    """Make epochs with disorder, late tuples, streams without tuples, and a watermark that only rises."""
    chance = random.Random(seed)
    found: Epochs = []
    watermark: int | None = None
    now = 0
    for number in range(14):
        now += chance.randrange(5)
        sides = []
        for side in range(2):
            n = chance.choice([0, 0, 1, 4, 9]) if number % 5 != 3 else 0
            sides.append(
                [
                    {
                        "id": 1000 * number + 100 * side + i,
                        "t": now - chance.randrange(7),
                        "k": chance.randrange(3),
                        "v": chance.randrange(6),
                    }
                    for i in range(n)
                ]
            )
        if chance.random() < 0.7:
            watermark = max(now - 4, watermark or 0)
        found.append((sides[0], sides[1], watermark))
    return found


def run(family: Family, epochs: Epochs) -> tuple[Pairs, LocalRun]:
    """Run all epochs and return all results and the run. The spec is pickled, as it is for a worker."""
    join = LocalRun(pickle.loads(pickle.dumps(family.spec)))
    found: Pairs = Counter()
    watermark = None
    for *streams, watermark in epochs:
        batches = [
            pa.RecordBatch.from_pylist(rows, schema=SCHEMA).rename_columns(names_of(family.spec, stream))
            for stream, rows in enumerate(streams)
        ]
        for columns in join.epoch(batches, watermark):
            found.update(family.read(columns))
    # When streams pause, waiting views leave, and messages are delivered until none is in flight.
    for _ in range(4):
        watermark = None if watermark is None else watermark + 1
        for columns in join.epoch([], watermark):
            found.update(family.read(columns))
    for columns in join.drain(watermark):
        found.update(family.read(columns))
    return found, join


def names_of(spec: EngineSpec, stream: int) -> list[str]:
    graph = getattr(spec, "graph", None)
    return list(COLUMNS if graph is None else graph.sides[stream].columns)


def wanted(family: Family, epochs: Epochs) -> tuple[Pairs, int]:
    kept: tuple[list[oracle.Row], list[oracle.Row]] = ([], [])
    n_late = 0
    for *streams, late_us in oracle.pair_with_late_watermark(epochs):
        for side in Side:
            timely = oracle.timely(streams[side], late_us, "t")
            n_late += len(streams[side]) - len(timely)
            kept[side].extend(timely)
    pairs = oracle.join(CONDITION, *kept)
    if family.read is counted:
        pairs = Counter((left, -1) for left, _ in pairs.elements())
    return pairs, n_late


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_the_bag_of_the_nested_loop(name: str, seed: int) -> None:
    family, epochs = FAMILIES[name], epochs_of(seed)
    found, _ = run(family, epochs)
    assert found == wanted(family, epochs)[0]
    assert found


@pytest.mark.parametrize("name", FAMILIES)
def test_counters_and_an_end_of_state(name: str) -> None:
    family, epochs = FAMILIES[name], epochs_of(1)
    late = 0
    join = LocalRun(family.spec)
    for *streams, watermark in epochs:
        batches = [
            pa.RecordBatch.from_pylist(rows, schema=SCHEMA).rename_columns(names_of(family.spec, stream))
            for stream, rows in enumerate(streams)
        ]
        list(join.epoch(batches, watermark))
        late += sum(unit.late for unit in join.counters)
        # Streams without tuples are listed too, so that warnings can name the stream that is silent.
        assert len({alias for unit in join.counters for alias in unit.streams}) == 2
    assert late == wanted(family, epochs)[1] > 0
    assert sum(unit.held for unit in join.counters) > 0
    # Epochs without tuples expire all state, one epoch after the watermark at the latest.
    for _ in range(12):
        list(join.epoch([], 10_000))
    assert sum(unit.held for unit in join.counters) == 0
    assert sum(unit.segments for unit in join.counters) == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_an_engine_scales_or_says_why_it_cannot(name: str) -> None:
    """Units change twice while the streams run: to another model if the engine runs it, or to other sizes."""
    family, epochs = FAMILIES[name], epochs_of(3)
    if family.spec.scaling_obstacle is not None:
        assert " " in family.spec.scaling_obstacle
        return
    model = family.spec.router.model
    first, last = Request(model=Matrix(1, 2)), Request(model=Biclique((1, 2)))
    only_sizes = isinstance(family.spec, MultiwaySpec) or family.spec.has_messages
    if only_sizes:
        first, last = (Request(sizes=dict.fromkeys(model.sizes, n)) for n in (3, 1))
    is_ordered = isinstance(family.spec, PunctuatedSpec)
    if is_ordered:
        first, last = Request(model=Split(3)), Request(model=Split(1))
    join = ControlledRun(family.spec, model, Rules(16, only_sizes=only_sizes, is_ordered=is_ordered))
    found: Pairs = Counter()
    for number, (*streams, watermark) in enumerate(epochs):
        if number in (3, 8):
            join.put(first if number == 3 else last)
        batches = [
            pa.RecordBatch.from_pylist(rows, schema=SCHEMA).rename_columns(names_of(family.spec, stream))
            for stream, rows in enumerate(streams)
        ]
        for columns in join.epoch(batches, watermark):
            found.update(family.read(columns))
    assert found == wanted(family, epochs)[0]
    assert found
    assert join.plan.newest.model == find_target(model, last)
