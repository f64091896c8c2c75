"""Content-sensitive routing sends fewer tuples, has the same answer, and keeps loads even."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.local import LocalJoin
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.engine.two_stream.content_routing import ByRange, choose_placing
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import Hash, IndexSpec, Sorted
from thetastream.models import Biclique, Matrix

N = 20_000


def run(condition, model, batches, epochs=4):
    """Run a join; return the numbers of pairs, of received tuples, and of stored tuples at each unit."""
    index = IndexSpec(Hash(), (0,)) if condition.equalities else IndexSpec(Sorted(), (), (0,))
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
    """The condition has two bands of +-10 over 1 to 10,000, as in the benchmark, on eight units."""
    chance = np.random.default_rng(2)
    batches = [
        pa.RecordBatch.from_pydict({f"k{n}": chance.integers(1, 10_001, N) for n in range(2)})
        for _ in range(2)
    ]
    condition = Condition(sides(2), dimensions=(band(0, 10), band(1, 10)))
    pairs, random_sends, _ = run(condition, Biclique(4), batches)
    found, range_sends, stored = run(condition, Biclique(4, 4, routing="range"), batches)
    assert found == pairs > 0
    assert random_sends == 2 * N * 5
    assert random_sends > 2 * range_sends
    assert max(stored) < 1.25 * sum(stored) / len(stored)
    found, sends, stored = run(condition, Matrix(8, 1, 8), batches)
    assert found == pairs
    # One in eight right tuples reaches into a second cell.
    assert 2 * N < sends < 2.2 * N
    assert max(stored) < 1.25 * sum(stored) / len(stored)


@pytest.mark.parametrize("domain", [Domain.INT, Domain.FLOAT])
def test_probes_reach_every_cell_their_band_touches(domain):
    chance = np.random.default_rng(3)
    spread = (
        {"k0": chance.normal(0, 300, N)} if domain is Domain.FLOAT else {"k0": chance.integers(-999, 999, N)}
    )
    batches = [pa.RecordBatch.from_pydict(spread), pa.RecordBatch.from_pydict({"k0": spread["k0"][::-1]})]
    condition = Condition(sides(1, domain), dimensions=(band(0, 3),))
    wanted = run(condition, Biclique(1), batches)[0]
    for subgroups in ((2, 5), (5, 1)):
        assert (
            run(condition, Biclique((3, 5), (2, 5) if subgroups == (2, 5) else (3, 1)), batches)[0] == wanted
        )
        assert run(condition, Matrix(*subgroups, subgroups), batches)[0] == wanted


def test_heavy_keys_are_spread_over_their_subgroup():
    """Keys follow Zipf 1.1, so the heaviest of 1,000 keys has a sixth of the tuples."""
    chance = np.random.default_rng(4)
    weights = 1 / np.arange(1, 1001) ** 1.1
    batches = [
        pa.RecordBatch.from_pydict(
            {"k0": chance.choice(1000, N, p=weights / weights.sum()), "n": np.arange(N)}
        )
        for _ in range(2)
    ]
    condition = Condition(sides(1), equalities=(Equality(0, 0),), dimensions=())
    pure, mixed = (run(condition, Biclique(4, subgroups), batches)[2] for subgroups in (4, 2))
    assert max(pure) > 1.3 * sum(pure) / 8
    assert max(mixed) < 1.3 * sum(mixed) / 8


def test_what_cannot_be_routed_is_refused_by_name():
    less = Condition(sides(1), dimensions=(Dimension(Side.LEFT, 0, None, Bound(0)),))
    for routing in ("auto", "range", "hash"):
        with pytest.raises(QueryError, match="NOT_ROUTABLE"):
            choose_placing(Biclique(2, 2, routing), less)
    both = Condition(sides(2), equalities=(Equality(0, 0),), dimensions=(band(1, 5),))
    assert choose_placing(Biclique(2), both) is None
    endless = Condition(sides(1), dimensions=(band(0, 10**40),))
    with pytest.raises(QueryError, match="NOT_ROUTABLE"):
        choose_placing(Biclique(2, 2), endless)
    assert isinstance(choose_placing(Biclique(2, 2, "range"), both), ByRange)
    assert not isinstance(choose_placing(Biclique(2, 2), both), ByRange)
