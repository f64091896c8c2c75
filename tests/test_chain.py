"""The handshake chain against the nested loop: random conditions, disorder, lateness, bursts, silence."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetastream.joiner import chain, handshake
from thetastream.joiner.handshake import ChainJoin
from thetastream.local.chain import LocalChain
from thetastream.models import Chain
from thetastream.testing import oracle
from thetastream.testing.strategies import Case, cases
from thetastream.types import Side

BLOCKS = st.one_of(st.just("auto"), st.integers(1, 5))
MODELS = st.builds(Chain, st.integers(1, 5), BLOCKS, st.one_of(st.none(), st.integers(0, 4)))
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def pairs(matches) -> Counter:
    found: Counter = Counter()
    for left, right in matches:
        found.update(zip(left["id"].to_pylist(), right["id"].to_pylist(), strict=True))
    return found


def run(case: Case, model: Chain, pauses: list[int]) -> tuple[Counter, int]:
    """The pairs of a case, and how many tuples were late; epochs of silence behind some of the others."""
    join = LocalChain(ChainJoin(case.condition, case.indexes, case.archive_period_us, model))
    found: Counter = Counter()
    late, watermark = 0, None
    for (left, right, watermark), pause in zip(case.epochs, pauses, strict=False):
        found += pairs(join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark))
        late += sum(counters.late for counters in join.counters)
        for _ in range(pause):
            found += pairs(join.epoch(None, None, watermark))
    return found + pairs(join.drain(watermark)), late


def expected(case: Case) -> tuple[Counter, int]:
    kept: tuple[list, list] = ([], [])
    late = 0
    for left, right, watermark in case.epochs:
        for side, rows in zip(Side, (left, right), strict=True):
            timely = oracle.timely(rows, watermark, "t")
            late += len(rows) - len(timely)
            kept[side].extend(timely)
    return oracle.join(case.condition, *kept), late


PAUSES = st.lists(st.sampled_from([0, 0, 1, 3, 6]), min_size=4, max_size=4)


@settings(RELAXED, max_examples=400)
@given(cases(), MODELS, PAUSES)
def test_same_bag_as_the_nested_loop(case: Case, model: Chain, pauses: list[int]) -> None:
    assert run(case, model, pauses) == expected(case)


@settings(RELAXED, max_examples=150)
@given(cases(), MODELS, PAUSES)
def test_same_bag_with_tiny_tiers_and_outputs(case: Case, model: Chain, pauses: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "FAN_IN", 2)
        patch.setattr(chain, "MIN_PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "SHARED_PERIODS", 1)
        patch.setattr(handshake, "FIRST_BLOCK", 1)
        assert run(case, model, pauses) == expected(case)
