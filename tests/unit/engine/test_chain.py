"""Compare the handshake chain with the nested loop: random conditions, disorder, late tuples, bursts,
silence."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from tests.support.local import LocalChain, LocalJoin
from tests.support.strategies import Case, cases
from tests.support.tiny import make_all_tiny
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.engine.handshake import block_size
from thetastream.engine.handshake.block_size import LARGEST, SMALLEST, BlockCost
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import IndexSpec, Scan
from thetastream.models import Chain

BLOCKS = st.one_of(st.just("auto"), st.integers(1, 5))
MODELS = st.builds(Chain, st.integers(1, 5), BLOCKS, st.one_of(st.none(), st.integers(0, 4)))
EVERYTHING = Condition(tuple(SideSpec(alias, ("id", "t"), time=Key("t", Domain.INT)) for alias in "ab"))


def pairs(matches) -> Counter:
    found: Counter = Counter()
    for left, right, _ in matches:
        found.update(zip(left["id"].to_pylist(), right["id"].to_pylist(), strict=True))
    return found


def run(case: Case, model: Chain, pauses: list[int]) -> tuple[Counter, int]:
    """Compute the pairs of a case and the number of late tuples. ``pauses`` are empty epochs after each
    epoch."""
    join = LocalChain(HandshakeSpec(case.condition, case.indexes, case.archive_period_us, model))
    found: Counter = Counter()
    late, watermark = 0, None
    for (left, right, watermark), pause in zip(case.epochs, pauses, strict=False):
        found += pairs(join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark))
        late += sum(counters.late for counters in join.counters)
        for _ in range(pause):
            found += pairs(join.epoch(None, None, watermark))
    return found + pairs(join.drain(watermark)), late


PAUSES = st.lists(st.sampled_from([0, 0, 1, 3, 6]), min_size=4, max_size=4)


@draw_cases(25)
@given(cases(), MODELS, PAUSES)
def test_same_bag_as_the_nested_loop(case: Case, model: Chain, pauses: list[int]) -> None:
    assert run(case, model, pauses) == case.answer()


@draw_cases(25)
@given(cases(), MODELS, PAUSES)
def test_same_bag_with_tiny_tiers_and_outputs(case: Case, model: Chain, pauses: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_all_tiny(patch)
        patch.setattr(block_size, "FIRST_BLOCK", 1)
        assert run(case, model, pauses) == case.answer()


def grow(model: Chain, epochs: int, n: int, condition: Condition = EVERYTHING) -> LocalChain:
    """Run a chain with ``n`` tuples of each stream per epoch, until it forwards no more blocks."""
    join = LocalChain(HandshakeSpec(condition, (IndexSpec(Scan()),) * 2, 10, model))
    for epoch in range(epochs):
        rows = [pa.RecordBatch.from_pydict({"id": list(range(n)), "t": [epoch] * n}) for _ in Side]
        list(join.epoch(*rows))
    list(join.drain())
    return join


@pytest.mark.parametrize(("workers", "threshold", "block"), [(2, 8, 8), (4, 10, 4), (5, None, 16)])
def test_loads_of_neighbours_differ_by_threshold_and_block_at_most(workers, threshold, block) -> None:
    join = grow(Chain(workers, block, threshold), 6, 60)
    loads = [sum(meta.n_rows for meta in state.segments) for state in join.states]
    assert sum(loads) == 6 * 2 * 60
    assert np.abs(np.diff(loads)).max() <= (block if threshold is None else threshold) + block
    assert not any(state.neighbourhood.copies for state in join.states)


def test_tuples_are_stored_once_and_go_when_they_have_expired() -> None:
    span = 5
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -span), Bound(TIME, span))
    join = LocalChain(
        HandshakeSpec(Condition(EVERYTHING.sides, window=window), (IndexSpec(Scan()),) * 2, 1, Chain(3, 2))
    )
    held = []
    for now in range(40):
        rows = [pa.RecordBatch.from_pydict({"id": [0, 1], "t": [now] * 2}) for _ in Side]
        list(join.epoch(*rows, now - 1 if now else None))
        held.append(sum(meta.n_rows for state in join.states for meta in state.segments))
    # Each stream has 2 tuples per tick. Right tuples in flight have copies as well.
    assert 4 * span <= held[-1] <= 4 * (span + 2) + 2 * 2 * 3
    assert max(held[20:]) - min(held[20:]) <= 12


def test_blocks_follow_what_workers_measure() -> None:
    join = grow(Chain(3), 8, 200)
    measured = BlockCost(*join.states[0].neighbourhood.measured)
    assert join.blocks[0] == measured.find_best() != block_size.FIRST_BLOCK
    assert SMALLEST <= join.blocks[0] <= LARGEST
    assert grow(Chain(3, block=7), 2, 20).blocks == [7] * 3
    # The more messages weigh, the larger the blocks are. Without alpha, a checkpoint has the model as before.
    larger = grow(Chain(3, alpha=0.9), 8, 200)
    assert larger.blocks[0] > join.blocks[0] > measured.find_best(alpha=0.1)
    assert (repr(Chain(3)), repr(Chain(3, alpha=0.9))) == ("Chain(workers=3)", "Chain(workers=3, alpha=0.9)")


@draw_cases(10)
@given(cases(), st.integers(1, 4))
def test_fast_forward_finds_all_in_the_epoch_of_the_later_tuple(case: Case, workers: int) -> None:
    spec = UnitSpec(case.condition, case.indexes, case.archive_period_us)
    join = LocalJoin(spec, Chain(workers, fast_forward=True))
    found: Counter = Counter()
    for left, right, watermark in case.epochs:
        found += pairs(join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark))
    assert found == case.answer()[0]


@pytest.mark.parametrize(
    ("build", "condition"),
    [
        (lambda: Chain(0), "BAD_UNITS"),
        (lambda: Chain((1, 2)), "BAD_UNITS"),
        (lambda: Chain(2, block=0), "BAD_BLOCK"),
        (lambda: Chain(2, block="big"), "BAD_BLOCK"),
        (lambda: Chain(2, forward_threshold=-1), "BAD_LIMIT"),
        (lambda: Chain(2, forward_threshold=True), "BAD_LIMIT"),
        (lambda: Chain(2, fast_forward=1), "BAD_VALUE"),
        (lambda: Chain(2, alpha=1), "BAD_VALUE"),
        (lambda: Chain(2, alpha="half"), "BAD_VALUE"),
    ],
)
def test_bad_settings_are_refused_by_name(build, condition) -> None:
    with pytest.raises(QueryError) as refused:
        build()
    assert refused.value.condition == condition


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 3])
def test_pauses_do_not_leave_a_segment_each(workers: int) -> None:
    """At a silence, one group takes over the segments of the other. In an old version they were never
    merged."""
    join = LocalChain(HandshakeSpec(EVERYTHING, (IndexSpec(Scan()),) * 2, None, Chain(workers)))
    for n in range(200):
        batch = pa.RecordBatch.from_pydict({"id": [n], "t": [n]})
        list(join.epoch(batch, batch))
        list(join.drain())
    assert max(len(state.segments) for state in join.states) < 40


def test_neighbours_do_not_hand_blocks_back_and_forth() -> None:
    """A block larger than half the difference of the loads would reverse it, and the neighbour would send it
    back."""
    join = LocalChain(HandshakeSpec(EVERYTHING, (IndexSpec(Scan()),) * 2, None, Chain(2, 10, 0)))
    for n in (1000, 1005):
        left, right = (pa.RecordBatch.from_pydict({"id": list(range(n)), "t": [0] * n}) for _ in Side)
        list(join.epoch(left, right.slice(5)))
    epochs = 0
    while join.counters[0].forwarded + join.counters[1].forwarded and epochs < 500:
        list(join.epoch(None, None))
        epochs += 1
    assert epochs < 20
