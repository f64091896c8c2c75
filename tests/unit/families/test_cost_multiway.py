"""Compare the cost model of the ring with the counters of nodes, and test what the planner derives from
it."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.graphs import side
from tests.support.local import LocalMultiway
from thetastream.core.condition import Equality
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.families.hops.cost import MultiwayLoad, compute_load
from thetastream.families.hops.graph import build_multiway_spec, list_hops
from thetastream.models import Ring

RATE, SPAN, KEYS = 30, 20, 10
ORDERS = ((1, 2), (0, 2), (1, 0))


def test_partial_and_complete_results_are_as_many_as_estimated() -> None:
    """The condition is a.k = b.k = c.k over uniform keys, in steady state."""
    window = Ends(-SPAN, SPAN)
    edges = {
        (0, 1): Edge((Equality(0, 0),), window=window),
        (1, 2): Edge((Equality(0, 0),), window=window),
        (0, 2): Edge(window=window),
    }
    spec = build_multiway_spec(JoinGraph(tuple(side(n) for n in range(3)), edges), ORDERS, Ring(3), 2)
    join, random = LocalMultiway(spec), np.random.default_rng(7)
    counted = np.zeros(2)
    n_epochs, n_counted = 3 * SPAN, SPAN
    for epoch in range(n_epochs):
        batches = []
        for n in range(3):
            columns = [
                np.arange(RATE),
                np.full(RATE, epoch),
                random.integers(0, KEYS, RATE),
                np.zeros(RATE, int),
            ]
            batches.append(pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=side(n).columns))
        list(join.epoch(batches, epoch - 1 if epoch else None))
        if epoch >= n_epochs - n_counted:
            counted += [sum(getattr(c, name) for c in join.counters) for name in ("forwarded", "matched")]
    # The condition ties a to b and b to c. It ties a and c only through b.
    tied = 1 / KEYS
    selectivity = {
        (frozenset(members), target): 1.0 if members in ((0,), (2,)) and target in (0, 2) else tied
        for members, target in list_hops(ORDERS)
    }
    same = dict.fromkeys(selectivity, 1.0)
    held = [RATE * SPAN] * 3
    load = compute_load([RATE] * 3, held, ORDERS, selectivity, same, same, [8] * 3)
    forwarded = sum(hops[0].found for hops in load.hops)
    assert counted / n_counted == pytest.approx([forwarded, load.output_rate], rel=0.2)


def test_longer_rings_share_the_divided_work_only() -> None:
    load = MultiwayLoad(1000, (), (), every_node_s=0.1, divided_s=2.0, sent_bytes=50)
    assert load.busy(1) == pytest.approx(2.1)
    assert load.busy(4) == pytest.approx(0.6)
    assert load.service_rate(4) == pytest.approx(1000 / 0.6)
    assert load.bandwidth(4) == 200
    assert load.response_latency_s(1, 1.0) == float("inf")
    assert load.optimal_length(32) == 4
    assert load.optimal_length(3) == 3
    assert MultiwayLoad(1000, (), (), 0.01, 0.02, 1).optimal_length(32) == 1
