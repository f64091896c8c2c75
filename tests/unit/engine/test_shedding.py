"""Shedding: the curve, who is dropped, replays, and what is counted."""

import json
import pickle
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.support import oracle
from tests.support.local_run import LocalRun
from thetastream.core.columns import HASH
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.core.shed import CURVES, Shed
from thetastream.core.sides import Side
from thetastream.engine.inbox import ShedReport
from thetastream.engine.semantic_shedding import CELLS, CellCounts
from thetastream.engine.shedding import Shedding
from thetastream.engine.two_stream.content_routing import find_placing
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import IndexSpec, Sorted
from thetastream.models import Biclique, Matrix, Split

SECOND = 1_000_000
MODELS = [Biclique(1), Biclique((2, 3)), Matrix(2, 2), Split(2)]


def make_side(alias):
    return SideSpec(alias, ("id", "x"), keys=(Key("x", Domain.INT),), time=Key("t", Domain.INT))


WINDOW = Dimension(Side.LEFT, TIME, Bound(TIME, -5 * SECOND), Bound(TIME, 5 * SECOND))
BAND = Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, 1))
CONDITION = Condition((make_side("a"), make_side("b")), dimensions=(BAND,), window=WINDOW)
UNIT = UnitSpec(CONDITION, (IndexSpec(Sorted(), dimensions=(0,)),) * 2, SECOND)


def make_batch(ids, times):
    chance = np.random.default_rng(ids[0])
    columns = {
        "id": ids,
        "x": chance.integers(0, 20, len(ids)),
        "t": times,
        HASH: chance.integers(-(2**63), 2**63 - 1, len(ids)),
    }
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    )


def make_epochs(n_epochs, n_tuples):
    """Each epoch brings a second of both streams."""
    for epoch in range(n_epochs):
        times = epoch * SECOND + np.arange(n_tuples) * (SECOND // n_tuples)
        yield [make_batch((2 * epoch + side) * n_tuples + np.arange(n_tuples), times) for side in Side]


def step(join, batches, epoch):
    """Run an epoch; return the pairs and the ids of the kept tuples of each stream."""
    watermark_us = max(0, (epoch - 1) * SECOND) or None
    inboxes = join.deliver(batches, watermark_us)
    found: Counter = Counter()
    for slot, inbox in enumerate(inboxes):
        for columns in join.run(slot, inbox):
            found.update(zip(columns[0].to_pylist(), columns[2].to_pylist(), strict=True))
    return found


# The curve


def test_the_curve_jumps_to_base_and_reaches_1_at_the_capacity():
    shed = Shed("100 B", "200 B", base=0.2)
    assert [shed.compute_factor(load) for load in (0, 99, 100, 150, 199, 200, 10**9)] == pytest.approx(
        [0, 0, 0.2, 0.6, 0.992, 1, 1]
    )
    quadratic = Shed("100 B", "200 B", base=0.2, curve="quadratic")
    assert quadratic.compute_factor(150) == pytest.approx(0.2 + 0.8 / 4)


@pytest.mark.parametrize("curve", CURVES)
def test_a_curve_never_falls(curve):
    shed = Shed("10 s", "30 s", base=0, curve=curve, load="lag")
    factors = [shed.compute_factor(load) for load in range(0, 40 * SECOND, SECOND)]
    assert all(before <= after for before, after in pairwise(factors))
    assert (factors[0], factors[-1]) == (0, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"base": 1.1},
        {"base": True},
        {"curve": "cubic"},
        {"load": "heavy"},
        {"what": "results"},
        {"kind": "any"},
        {"threshold": "2 GB"},
        {"threshold": "10 seconds"},
        {"threshold": "1 GB", "capacity": "2 GB", "load": "lag"},
        {"what": "probes"},
    ],
    ids=repr,
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(QueryError, match=r"\[SHED\]"):
        Shed(**{"threshold": "1 GB", "capacity": "2 GB", **settings})


# Who is dropped first


def make_skewed(stream, epoch, n=3000, cells=60):
    """Tuples of a stream whose values are far apart. Few are frequent, and others in the other stream."""
    chance = np.random.default_rng([stream, epoch])
    share = 1 / np.arange(1, cells + 1)
    order = np.random.default_rng(stream).permutation(cells)
    x = 1000 * order[chance.choice(cells, n, p=share / share.sum())]
    numbers = np.arange(n) + (2 * epoch + stream) * n
    columns = {"id": numbers, "x": x, "t": np.full(n, epoch), HASH: chance.integers(-(2**63), 2**63 - 1, n)}
    return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


def count_pairs(tables):
    left, right = (Counter(x for batch in table for x in batch["x"].to_pylist()) for table in tables)
    return sum(n * right[x] for x, n in left.items())


@pytest.mark.parametrize("factor", [0.2, 0.5, 0.8])
def test_a_semantic_shedder_drops_as_much_and_keeps_more_pairs(factor):
    places = find_placing(CONDITION).find_places
    kept = {}
    for kind in ("random", "semantic"):
        shed = Shed(1000, 2000, base=0, kind=kind)
        shedding = Shedding(shed, CONDITION.sides, places if shed.is_semantic else None)
        counts, tables = CellCounts.begin(), ([], [])
        for epoch in range(6):
            reports = []
            for stream in range(2):
                batch = make_skewed(stream, epoch)
                # Two tasks of a router, which know nothing of each other.
                for part in (batch.slice(0, 1000), batch.slice(1000)):
                    shedder = shedding.open(stream, epoch, round(1000 + 1000 * factor), counts=counts)
                    tables[stream].append(shedder.drop(part)[0])
                    reports.append(shedder.report)
            counts = counts.add([ShedReport(*json.loads(json.dumps(report))) for report in reports])
        everything = [[make_skewed(stream, epoch) for epoch in range(6)] for stream in range(2)]
        n_kept = sum(batch.num_rows for table in tables for batch in table)
        kept[kind] = n_kept / 36_000, count_pairs(tables) / count_pairs(everything)
    assert kept["random"][0] == pytest.approx(1 - factor, abs=0.02)
    assert kept["random"][1] == pytest.approx((1 - factor) ** 2, abs=0.03)
    assert kept["semantic"][0] == pytest.approx(1 - factor, abs=0.03)
    assert kept["semantic"][1] > kept["random"][1] + 0.05


def test_probes_with_few_partners_are_dropped_first_and_all_tuples_are_kept():
    shed = Shed("1 s", "9 s", base=0, load="lag", what="probes", kind="semantic")
    counts, shedding = (
        CellCounts.begin(),
        Shedding(shed, CONDITION.sides, find_placing(CONDITION).find_places),
    )
    for epoch in range(2):
        shedders = [shedding.open(stream, epoch, 5 * SECOND, counts=counts) for stream in range(2)]
        dropped = [one.drop(make_skewed(stream, epoch)) for stream, one in enumerate(shedders)]
        assert [batch.num_rows for batch, _ in dropped] == [3000, 3000]
        counts = counts.add([one.report for one in shedders])
    assert counts.arrived.tolist() == counts.kept.tolist()
    other = Counter(make_skewed(1, 0)["x"].to_pylist())
    partners = np.array([other[x] for x in make_skewed(0, 1)["x"].to_pylist()])
    probing = dropped[0][1]
    assert partners[probing].mean() > 2 * partners[~probing].mean()


def test_counts_that_are_written_are_read_again():
    counts = CellCounts.begin().add([ShedReport(1, arrived=range(CELLS), kept=[1] * CELLS)])
    assert CellCounts.decode(counts.encode()).arrived[1].tolist() == list(range(CELLS))
    with pytest.raises(ValueError, match="256 numbers"):
        CellCounts.decode("[[[1]], [[1]]]")


# Who is dropped


def drop(factor, stream=0, epoch=0, seed=0, n=20_000):
    """Find which of n tuples are kept at a factor."""
    shedding = Shedding(Shed(1000, 2000, base=0), CONDITION.sides)
    batch = make_batch(np.arange(n) + seed * n, np.zeros(n, dtype=np.int64))
    kept, probing = shedding.open(stream, epoch, round(1000 + 1000 * factor)).drop(batch)
    assert probing is None
    return set(kept["id"].to_pylist())


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_factor_is_the_share_that_is_dropped(factor):
    assert len(drop(factor)) / 20_000 == pytest.approx(1 - factor, abs=0.012)


def test_a_higher_factor_drops_more_of_the_same_epoch():
    assert drop(0.6) < drop(0.3)


def test_streams_and_epochs_are_independent():
    kept = drop(0.5)
    for other in (drop(0.5, stream=1), drop(0.5, epoch=1)):
        assert len(kept & other) / 20_000 == pytest.approx(0.25, abs=0.012)


def test_what_is_dropped_does_not_depend_on_the_unit():
    batch = make_batch(np.arange(20_000), np.zeros(20_000, dtype=np.int64))
    units = batch[HASH].to_numpy() % 4
    kept = np.isin(batch["id"].to_numpy(), list(drop(0.5)))
    assert [kept[units == unit].mean() for unit in range(4)] == pytest.approx([0.5] * 4, abs=0.03)


# The load


def test_the_lag_is_the_median_age_of_the_stream_that_is_furthest_behind():
    shedding = Shedding(Shed("1 s", "9 s", load="lag"), CONDITION.sides)
    reports = [
        ShedReport(0, 0, 0, 10, 1 * SECOND),
        ShedReport(0, 0, 0, 30, 2 * SECOND),
        ShedReport(0, 5, 0, 10, 9 * SECOND),
        ShedReport(1, 0, 0, 99, 4 * SECOND),
    ]
    assert shedding.measure_load(7, reports, 10 * SECOND) == 8 * SECOND
    assert shedding.measure_load(7, reports[3:], 10 * SECOND) == 6 * SECOND
    assert shedding.measure_load(7, [], 10 * SECOND) == 0


def test_tuples_that_are_dropped_count_for_the_lag():
    shedding = Shedding(Shed("1 s", "9 s", load="lag"), CONDITION.sides)
    shedder = shedding.open(1, 0, 100 * SECOND)
    kept, _ = shedder.drop(make_batch(np.arange(5), np.arange(5) * SECOND))
    assert kept.num_rows == 0
    assert shedder.report == ShedReport(1, 5, 0, 5, 2 * SECOND)


# Joins


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_answer_is_that_of_the_kept_tuples_and_all_are_counted(model):
    shedding = Shedding(Shed(4_000, 12_000), CONDITION.sides)
    join = LocalRun(TwoStreamSpec(UNIT, model), shedding=shedding)
    found, kept, dropped = Counter(), ([], []), 0
    for epoch, batches in enumerate(make_epochs(12, 60)):
        found += step(join, batches, epoch)
        for side, batch in zip(Side, batches, strict=True):
            mine, _ = shedding.open(side, epoch, join.load).drop(batch)
            kept[side].extend(mine.drop_columns([HASH]).to_pylist())
        shed = sum(counters.shed for counters in join.counters)
        arrived = sum(counters.left + counters.right for counters in join.counters)
        assert shed + arrived == 120
        dropped += shed
    assert 120 < dropped < 12 * 120
    assert found == oracle.join(CONDITION, *kept)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_an_epoch_that_runs_again_drops_the_same_tuples(model):
    """A copy of the run takes each epoch first and is thrown away, as after a crash."""
    join = LocalRun(TwoStreamSpec(UNIT, model), shedding=Shedding(Shed(4_000, 12_000), CONDITION.sides))
    dropped = 0
    for epoch, batches in enumerate(make_epochs(10, 60)):
        crashed = pickle.loads(pickle.dumps(join))
        found = step(crashed, batches, epoch)
        assert step(join, batches, epoch) == found
        assert [c.shed for c in join.counters] == [c.shed for c in crashed.counters]
        dropped += sum(c.shed for c in join.counters)
    assert dropped


def test_without_probes_every_tuple_is_stored_and_a_pair_is_found_by_its_later_tuple():
    shedding = Shedding(Shed("1 s", "3 s", load="lag", what="probes"), CONDITION.sides)
    join = LocalRun(TwoStreamSpec(UNIT, Biclique((2, 2))), shedding=shedding)
    found, full, stored, probes = Counter(), Counter(), 0, 0
    whole = LocalRun(TwoStreamSpec(UNIT, Biclique((2, 2))))
    for epoch, batches in enumerate(make_epochs(12, 150)):
        join.began_us = (epoch + 2) * SECOND + SECOND // 2  # A median age of 2 seconds: half of the probes
        found += step(join, batches, epoch)
        full += step(whole, batches, epoch)
        stored += sum(c.stored for c in join.counters)
        probes += sum(c.shed_probes for c in join.counters)
        assert sum(c.shed for c in join.counters) == 0
    assert stored == 12 * 300
    assert found <= full
    assert probes / (11 * 300) == pytest.approx(0.55, abs=0.03)
    # The first epoch drops nothing.
    assert found.total() / full.total() == pytest.approx(0.45, abs=0.08)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "shed",
    [Shed(8_000, 32_000, base=0.1), Shed(8_000, 48_000, base=0, curve="quadratic")],
    ids=["line", "square"],
)
def test_a_steady_overload_keeps_the_share_that_is_estimated(shed):
    """The tuples and the pairs that are kept, against the estimates for the load without a shedder."""
    whole = LocalRun(TwoStreamSpec(UNIT, Biclique(1)))
    join = LocalRun(TwoStreamSpec(UNIT, Biclique(1)), shedding=Shedding(shed, CONDITION.sides))
    full, found, kept, load = 0, 0, 0, 0
    for epoch, batches in enumerate(make_epochs(40, 200)):
        pairs, fewer = step(whole, batches, epoch), step(join, batches, epoch)
        if epoch < 20:
            continue
        full, found = full + pairs.total(), found + fewer.total()
        kept += sum(counters.left + counters.right for counters in join.counters)
        load = max(load, *(counters.mlv_bytes for counters in whole.counters))
    share = shed.find_steady_share(load)
    assert 0.2 < share < 0.7
    assert kept / (20 * 400) == pytest.approx(share, rel=0.04)
    assert found / full == pytest.approx(shed.estimate_kept(1 - share), rel=0.05)


def test_a_state_that_grows_is_held_below_its_capacity():
    """Arrivals of more than two and a half times the capacity."""
    sizes = {}
    for shed in (None, Shed(20_000, 40_000)):
        shedding = None if shed is None else Shedding(shed, CONDITION.sides)
        join = LocalRun(TwoStreamSpec(UNIT, Biclique(1)), shedding=shedding)
        largest = 0
        for epoch, batches in enumerate(make_epochs(24, 400)):
            step(join, batches, epoch)
            largest = max(largest, *(counters.mlv_bytes for counters in join.counters))
        sizes[shed is None] = largest
    assert sizes[True] > 2.5 * 40_000
    assert sizes[False] < 1.25 * 40_000
