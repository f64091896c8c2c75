"""Content-sensitive routing: fewer sends, the same answer, and even loads."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import thetastream as th
from thetastream.condition import Bound, Condition, Dimension, Domain, Equality, IndexSpec, Key, SideSpec
from thetastream.errors import QueryError
from thetastream.joiner.placing import ByRange, placing
from thetastream.joiner.unit import UnitSpec
from thetastream.local import LocalJoin
from thetastream.models import Biclique
from thetastream.testing.streams import outcome, replay
from thetastream.types import Side

N = 20_000


def ran(condition, model, batches, epochs=4):
    """Pairs, tuples received by units, and tuples stored at each unit."""
    index = IndexSpec("hash", (0,)) if condition.equalities else IndexSpec("sorted", (), (0,))
    join = LocalJoin(UnitSpec(condition, (index, index), None), model)
    pairs, received, stored = 0, 0, [0] * model.n_units
    size = N // epochs
    for start in range(0, N, size):
        parts = [batch.slice(start, size) for batch in batches]
        pairs += sum(matches.left.num_rows for matches in join.epoch(*parts))
        for unit, counters in enumerate(join.counters):
            received += counters.received
            stored[unit] += counters.stored
    return pairs, received, stored


def sides(n_keys, domain=Domain.INT):
    keys = tuple(Key(f"k{n}", domain) for n in range(n_keys))
    columns = tuple(key.column for key in keys)
    return SideSpec("a", columns, keys=keys), SideSpec("b", columns, keys=keys)


def band(key, reach):
    return Dimension(Side.LEFT, key, Bound(key, -reach), Bound(key, reach))


def test_handshake_by_range_sends_less_than_half():
    """Two bands of +-10 over 1 to 10,000, eight units, as in the benchmark."""
    chance = np.random.default_rng(2)
    batches = [
        pa.RecordBatch.from_pydict({f"k{n}": chance.integers(1, 10_001, N) for n in range(2)})
        for _ in range(2)
    ]
    condition = Condition(sides(2), dimensions=(band(0, 10), band(1, 10)))
    pairs, random_sends, _ = ran(condition, Biclique(4), batches)
    found, range_sends, stored = ran(condition, Biclique(4, 4, routing="range"), batches)
    assert found == pairs > 0
    assert random_sends == 2 * N * 5
    assert random_sends > 2 * range_sends
    assert max(stored) < 1.25 * sum(stored) / len(stored)


@pytest.mark.parametrize("domain", [Domain.INT, Domain.FLOAT])
def test_probes_reach_every_cell_their_band_touches(domain):
    chance = np.random.default_rng(3)
    spread = (
        {"k0": chance.normal(0, 300, N)} if domain is Domain.FLOAT else {"k0": chance.integers(-999, 999, N)}
    )
    batches = [pa.RecordBatch.from_pydict(spread), pa.RecordBatch.from_pydict({"k0": spread["k0"][::-1]})]
    condition = Condition(sides(1, domain), dimensions=(band(0, 3),))
    wanted = ran(condition, Biclique(1), batches)[0]
    for subgroups in ((2, 5), (5, 1)):
        assert (
            ran(condition, Biclique((3, 5), (2, 5) if subgroups == (2, 5) else (3, 1)), batches)[0] == wanted
        )


def test_heavy_keys_are_spread_over_their_subgroup():
    """Zipf 1.1: the heaviest of 1,000 keys has a sixth of the tuples."""
    chance = np.random.default_rng(4)
    weights = 1 / np.arange(1, 1001) ** 1.1
    batches = [
        pa.RecordBatch.from_pydict(
            {"k0": chance.choice(1000, N, p=weights / weights.sum()), "n": np.arange(N)}
        )
        for _ in range(2)
    ]
    condition = Condition(sides(1), equalities=(Equality(0, 0),), dimensions=())
    pure, mixed = (ran(condition, Biclique(4, subgroups), batches)[2] for subgroups in (4, 2))
    assert max(pure) > 1.3 * sum(pure) / 8
    assert max(mixed) < 1.3 * sum(mixed) / 8


def test_what_cannot_be_routed_is_refused_by_name():
    less = Condition(sides(1), dimensions=(Dimension(Side.LEFT, 0, None, Bound(0)),))
    for routing in ("auto", "range", "hash"):
        with pytest.raises(QueryError, match="NOT_ROUTABLE"):
            placing(Biclique(2, 2, routing), less)
    both = Condition(sides(2), equalities=(Equality(0, 0),), dimensions=(band(1, 5),))
    assert placing(Biclique(2), both) is None
    endless = Condition(sides(1), dimensions=(band(0, 10**40),))
    with pytest.raises(QueryError, match="NOT_ROUTABLE"):
        placing(Biclique(2, 2), endless)
    assert isinstance(placing(Biclique(2, 2, "range"), both), ByRange)
    assert not isinstance(placing(Biclique(2, 2), both), ByRange)


def test_range_routing_of_streams(spark, tmp_path):
    rows = [(n, n * 37 % 211, n / 3) for n in range(300)]
    frame = spark.createDataFrame(rows, "id INT, v INT, s DOUBLE").selectExpr(
        "id", "v / 10 AS v", "timestamp_seconds(s) AS ts"
    )
    epochs = [range(start, start + 100) for start in (0, 100, 200)]
    streams = {alias: replay(frame, epochs, tmp_path).withWatermark("ts", "1 second") for alias in "ab"}
    plan = th.plan(
        streams,
        on="abs(a.v - b.v) < 0.3 AND a.id >= b.id",
        within="20 seconds",
        model=th.Biclique((3, 4), subgroups=(3, 2), routing="range"),
    )
    assert "routing   by range of " in plan.explain()
    found = outcome(plan.dataframe(), ["a.id", "b.id"], tmp_path)
    assert found.rows == Counter(
        (a, b)
        for a, av, at in rows
        for b, bv, bt in rows
        if abs(av / 10 - bv / 10) < 0.3 and a >= b and abs(at - bt) <= 20
    )
    received = sum(epoch["received"] for epoch in found.metrics)
    assert received < 300 * (1 + 4 + 1 + 3)
