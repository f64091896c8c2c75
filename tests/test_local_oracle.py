"""Local runner against the nested loop, over random conditions, disorder, lateness, cuts, units."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetastream.joiner import chain
from thetastream.joiner.unit import UnitSpec
from thetastream.local import LocalJoin
from thetastream.models import Biclique
from thetastream.models.base import Model
from thetastream.testing import oracle
from thetastream.testing.strategies import Case, cases
from thetastream.types import Side

MODELS = st.one_of(st.builds(Biclique, st.tuples(st.integers(1, 3), st.integers(1, 3))))


def run(case: Case, model: Model) -> tuple[Counter, int]:
    join = LocalJoin(UnitSpec(case.condition, case.indexes, case.archive_period_us), model)
    found: Counter = Counter()
    late = 0
    for left, right, watermark in case.epochs:
        for matches in join.epoch(case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right), watermark):
            found.update(zip(matches.left["id"].to_pylist(), matches.right["id"].to_pylist(), strict=True))
        late += sum(counters.late for counters in join.counters)
    return found, late


def expected(case: Case) -> tuple[Counter, int]:
    kept: tuple[list, list] = ([], [])
    late = 0
    for left, right, watermark in case.epochs:
        for side, rows in zip(Side, (left, right), strict=True):
            timely = oracle.timely(rows, watermark, "t")
            late += len(rows) - len(timely)
            kept[side].extend(timely)
    return oracle.join(case.condition, *kept), late


@settings(
    max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(cases(), MODELS)
def test_same_bag_as_the_nested_loop(case: Case, model: Model) -> None:
    assert run(case, model) == expected(case)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(case=cases(), model=MODELS)
def test_same_bag_with_tiny_tiers_and_outputs(case: Case, model: Model) -> None:
    """Merging after two segments, emitting one pair at a time, one period to a segment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "FAN_IN", 2)
        patch.setattr(chain, "MIN_PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "SHARED_PERIODS", 1)
        assert run(case, model) == expected(case)
