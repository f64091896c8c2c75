"""The bound of the watermark, compared with Spark's rule: the minimum over streams of max(t) - delay."""

import random

import pyarrow as pa
import pytest

from thetastream.core.condition import Condition, Domain, Key, SideSpec
from thetastream.core.sides import Role, Side
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox
from thetastream.engine.store.segment import MemoryStore
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec, BoundSource, find_watermark_bound
from thetastream.engine.views import ViewDelays, is_followed
from thetastream.index import IndexSpec, Scan
from thetastream.models import Biclique

CONDITION = Condition(
    (
        SideSpec("l", ("t", "bound"), time=Key("t", Domain.INT)),
        SideSpec("r", ("u",), time=Key("u", Domain.INT)),
    )
)
LEFT = pa.schema([("t", pa.int64()), ("bound", pa.int64())])
RIGHT = pa.schema([("u", pa.int64())])


def fill(left, right, role=Role.BOTH):
    inbox = Inbox()
    for side, schema, rows in ((Side.LEFT, LEFT, left), (Side.RIGHT, RIGHT, right)):
        if rows:
            names = schema.names
            block = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
            inbox.add(side, role, 0, block, 0)
    return inbox


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_the_watermark_of_the_tuples_of_the_epoch(seed):
    chance = random.Random(seed)

    def draw():
        return None if chance.random() < 0.2 else chance.randrange(-9_000, 90_000)

    left = [(draw(), draw()) for _ in range(chance.randrange(5))]
    right = [(draw(),) for _ in range(chance.randrange(5))]
    delays = chance.randrange(20), chance.randrange(20)
    times = [t for t, _ in left if t is not None], [u for (u,) in right if u is not None]
    wanted = None
    if times[0] and times[1]:
        wanted = min(max(mine) // 1000 - delay for mine, delay in zip(times, delays, strict=True))
    sources = BoundSource("t", delays[0]), BoundSource("u", delays[1])
    inbox = fill(left, right, chance.choice([Role.BOTH, Role.PROBE, Role.STORE]))
    assert find_watermark_bound(inbox, sources) == wanted


def test_results_have_the_bound_of_their_epoch_and_not_of_stored_tuples():
    spec = UnitSpec(CONDITION, (IndexSpec(Scan()),) * 2, None)
    join = BoundingSpec(TwoStreamSpec(spec, Biclique(1)), (BoundSource("t", 2), BoundSource("u", 3)))
    state, store, found = UnitState(), MemoryStore(), []
    epochs = [([(50_000, 0)], [(9_000,)]), ([], [(20_000,)]), ([(8_000, 0)], [(30_000,)])]
    for number, (left, right) in enumerate(epochs):
        unit = join.open(0, state, lambda _: store)
        pieces = list(unit.epoch(fill(left, right), Clock(number, None, None)))
        found.append({value for columns in pieces for value in columns[-1].to_pylist()})
        state = unit.state
    assert found == [{6_000}, {None}, {6_000}]


@pytest.mark.parametrize(
    ("bounds", "watermark_ms", "expected"),
    [
        ([7_000, 9_000], 7, True),
        ([7_000, 9_000], 8, False),  # the timer stands one millisecond after the watermark
        ([None, 9_000], 7, True),
        ([None], 7, False),
        ([], 7, False),
    ],
)
def test_a_view_of_joined_streams_waits_only_for_a_watermark_that_rises(bounds, watermark_ms, expected):
    lazy = ViewDelays(60_000, (0, 1), ("bound", None))
    # The result time of the left tuples is far ahead, and says nothing about the streams behind them.
    inbox = fill([(10**9, bound) for bound in bounds], [(10**9,)])
    assert is_followed(lazy, CONDITION, inbox, watermark_ms) is expected
