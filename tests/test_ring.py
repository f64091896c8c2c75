"""Models of m streams against the nested loop: random graphs, windows, disorder, lateness, cuts, nodes."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetastream.joiner import chain
from thetastream.local.ring import LocalRing
from thetastream.models import ATR, CTR, Multiway, Ring
from thetastream.plan.ring import ring_spec
from thetastream.testing.graphs import GraphCase, answer, graph_cases
from thetastream.windows import Rows

SLICES = st.sampled_from([Rows(1), Rows(3), timedelta(microseconds=1), timedelta(microseconds=4)])
NODES = st.integers(1, 4)
SEGMENTS = st.integers(1, 12).map(lambda us: timedelta(microseconds=us))
MODELS = st.one_of(
    st.builds(Ring, NODES, SLICES),
    st.builds(ATR, NODES, SEGMENTS, st.integers(0, 1)),
    st.builds(CTR, NODES, st.integers(1, 4), SEGMENTS),
)
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def run(case: GraphCase, model: Multiway) -> Counter:
    join = LocalRing(ring_spec(case.graph, case.orders, model, case.archive_period_us))
    found: Counter = Counter()
    ids = [side.columns.index(f"s{n}id") + 4 * n for n, side in enumerate(case.graph.sides)]

    def take(results) -> None:
        for columns in results:
            found.update(zip(*(columns[n].to_pylist() for n in ids), strict=True))

    watermark = None
    for rows, watermark in case.epochs:
        take(join.epoch([case.batch(n, part) for n, part in enumerate(rows)], watermark))
    take(join.drain(watermark))
    return found


@settings(RELAXED, max_examples=500)
@given(graph_cases(), MODELS)
def test_same_bag_as_the_nested_loop(case: GraphCase, model: Multiway) -> None:
    assert run(case, model) == answer(case)


@settings(RELAXED, max_examples=100)
@given(graph_cases(), MODELS)
def test_same_bag_with_tiny_tiers_and_outputs(case: GraphCase, model: Multiway) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "FAN_IN", 2)
        patch.setattr(chain, "MIN_PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "PAIRS_AT_ONCE", 1)
        patch.setattr(chain, "SHARED_PERIODS", 1)
        assert run(case, model) == answer(case)
