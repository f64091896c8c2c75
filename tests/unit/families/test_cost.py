"""Costs: compare closed forms with routes and estimates with local joins, and test which model is chosen."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from bench.papers.closed_forms import (
    bandwidth_biclique,
    bandwidth_matrix,
    bandwidth_split,
    capacity_biclique,
    capacity_matrix,
    find_best_block,
    memory_biclique,
    memory_matrix,
    memory_per_unit_biclique,
    memory_per_unit_matrix,
    processing_latency_chain,
    processing_latency_split,
    scaling_gain_ratio_matrix,
    visiting_latency_chain,
    visiting_latency_split,
    weigh_block,
)
from tests.support.local import LocalJoin
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    SideSpec,
)
from thetastream.core.errors import QueryError
from thetastream.core.sides import Side
from thetastream.engine.handshake.block_size import BlockCost
from thetastream.engine.two_stream.content_routing import CELL_BANDS
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.families.pairs.choose import (
    MOST_UNEVEN,
    build_default_model,
    choose,
    choose_subgroups,
    compare,
    list_comparable,
    list_variants,
)
from thetastream.families.pairs.cost import compute_shares, estimate
from thetastream.families.pairs.workload import Inflow, SecondExchange, Workload, build_workload
from thetastream.index import REGISTRY as INDEXES
from thetastream.index import Hash, IndexSpec, Scan, Sorted
from thetastream.joins.measured_statistics import measure_statistics
from thetastream.lowering.lower import Lowered
from thetastream.lowering.physical import Carried, PhysicalPlan, SidePlan, compute_lifetimes
from thetastream.lowering.query import Query, Stream
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models import Biclique, Matrix, Split

BINARY = set(list_comparable())
CHANCE = np.random.default_rng(3)
EVEN = {"rel": 0.02}
"""The tolerance for even hashes. Not every number of units divides the 5,040 hashes."""


def work(
    rates=(1000, 1000),
    spans=(640, 640),
    index="sorted",
    content=None,
    candidates=None,
    skew=None,
    nbytes=60,
):
    """Build a workload of two streams."""
    left, right = (
        Inflow(alias, rate, span, nbytes, 40, 10)
        for alias, rate, span in zip("ab", rates, spans, strict=True)
    )
    heaviest = 0.0 if content is None else 0.15 if skew is None else skew
    return Workload((left, right), INDEXES[index], candidates, heaviest, content, skew is not None)


# Closed forms


def bicliques():
    for _ in range(12):
        m, n = (int(u) for u in CHANCE.integers(1, 13, 2))
        yield (m, n), (int(CHANCE.integers(1, m + 1)), int(CHANCE.integers(1, n + 1)))


@pytest.mark.parametrize(("units", "groups"), [*bicliques(), ((4, 2), (1, 1)), ((6, 4), (6, 4))], ids=str)
def test_a_biclique_routes_as_its_closed_forms_say(units, groups):
    model, inflows = Biclique(units, groups), work((700, 200), (60, 30), content="hash", skew=0.0)
    found = estimate(model, inflows, sum(units))
    r, s = 700 * 60, 200 * 30
    assert [stream.copies for stream in compute_shares(model)] == pytest.approx([1, 1])
    assert found.memory_bytes == pytest.approx(60 * memory_biclique(r, s))
    assert found.sent_per_s == pytest.approx(bandwidth_biclique(700, 200, units, groups), **EVEN)
    assert found.sent_bytes_per_s == pytest.approx(40 * found.sent_per_s)
    if all(u % g == 0 for u, g in zip(units, groups, strict=True)):
        per_unit = memory_per_unit_biclique(r, s, units)
        assert found.mlv_bytes == pytest.approx(60 * max(per_unit), **EVEN)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (5, 1), (4, 4), (1, 7)])
def test_a_matrix_routes_as_its_closed_forms_say(rows, columns):
    found = estimate(Matrix(rows, columns), work((700, 200), (60, 30)), rows * columns)
    r, s = 700 * 60, 200 * 30
    assert found.memory_bytes == pytest.approx(60 * memory_matrix(r, s, rows, columns))
    assert found.mlv_bytes == pytest.approx(60 * memory_per_unit_matrix(r, s, rows, columns), **EVEN)
    assert found.sent_per_s == pytest.approx(bandwidth_matrix(700, 200, rows, columns))


def test_a_model_that_stores_by_number_stores_each_tuple_once():
    found = estimate(Split(3), work((700, 200), (60, 30)), 3)
    assert found.memory_bytes == pytest.approx(60 * memory_biclique(700 * 60, 200 * 30))
    assert found.mlv_bytes == pytest.approx(found.memory_bytes / 3)
    assert found.sent_per_s == pytest.approx(bandwidth_split(700, 200, 3))
    searched = 3 * 10 * np.log2(200 * 30 / 3 / 10)  # each of 3 cores stores a third of S in ten subindexes
    assert found.comparisons[0] == pytest.approx(searched)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_room_grows_by_every_unit_of_a_biclique_and_by_ever_less_of_a_matrix(share):
    squares = [(k, k) for k in range(1, 7)]
    for shape in squares:
        full = capacity_matrix(*shape, 100.0, share)
        assert memory_per_unit_matrix(share * full, (1 - share) * full, *shape) == pytest.approx(100)
    ratios = []
    for before, after in pairwise(squares):
        biclique = capacity_biclique(after[0] ** 2, 1.0) - capacity_biclique(before[0] ** 2, 1.0)
        matrix = capacity_matrix(*after, 1.0, share) - capacity_matrix(*before, 1.0, share)
        ratios.append(biclique / matrix)
        if share == 0.5:
            assert ratios[-1] == pytest.approx(before[0] + after[0])  # about 2 sqrt k
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_new_row_has_room_for_what_the_gain_ratio_says(columns):
    """A row more leaves the copies of S at each unit as they are, and they fill the rest of its memory."""
    left, right = 700 * 60, 200 * 30
    stored = 60 * right
    for rows in (1, 4):
        found = estimate(Matrix(rows, columns), work((700, 200), (60, 30)), rows * columns)
        copies = found.mlv_bytes - 60 * left / rows
        ratio = scaling_gain_ratio_matrix(stored, columns, found.mlv_bytes)
        assert ratio == pytest.approx(1 - copies / found.mlv_bytes, **EVEN)
    assert scaling_gain_ratio_matrix(stored, columns, 4 * stored) > scaling_gain_ratio_matrix(
        stored, columns, 2 * stored
    )


@pytest.mark.parametrize("find", [processing_latency_split, visiting_latency_split])
def test_latencies_of_a_tree_grow_with_its_levels(find):
    found = [find(k, 1000, 1.0, 1e-3).distribution_s for k in (1, 2, 5, 64)]
    assert found == [0, 1, 3, 6]
    assert find(64, 1000, 1.0, 1e-3, fan_out=8).distribution_s == 2


def test_the_same_window_on_more_cores_is_compared_sooner_and_reached_later():
    window, cores = 4096, (1, 2, 4, 8)
    tree = [processing_latency_split(k, window / k, 1.0, 1e-3) for k in cores]
    chain = [processing_latency_chain(k, window / k, 1.0, 1e-3, watch_s=0.5, collect_s=2.0) for k in cores]
    for a, b in zip(tree, chain, strict=True):
        assert a.comparison_s == b.comparison_s
    assert [one.comparison_s for one in tree] == pytest.approx([4.096, 2.048, 1.024, 0.512])
    assert [one.distribution_s for one in chain] == [1, 2.5, 5.5, 11.5]
    assert chain[3].total_s == pytest.approx(11.5 + 0.512 + 2)
    # Two tuples meet half-way.
    assert visiting_latency_chain(9, 100, 1.0, 1e-3).total_s == pytest.approx(1 + 4 + 0.05)


def test_ranges_reach_into_a_second_cell():
    left, right = compute_shares(Biclique((4, 8), subgroups=4), is_ranged=True)
    assert left.sends == pytest.approx(1 + (1 + 1 / CELL_BANDS) * 8 / 4, rel=0.01)
    assert right.sends == pytest.approx(1 + (1 + 1 / CELL_BANDS) * 4 / 4, rel=0.01)
    ranged = estimate(Biclique(4, subgroups=4), work(content="range", skew=0.0), 8)
    hashed = estimate(Biclique(4, subgroups=4), work(content="hash", skew=0.0), 8)
    assert ranged.sends > hashed.sends
    assert ranged.memory_bytes == hashed.memory_bytes


def test_one_key_for_all_tuples_is_one_subgroup():
    left, _ = compute_shares(Biclique(4, subgroups=2), has_one_key=True)
    assert left.stored[:4] == pytest.approx([0.5, 0, 0.5, 0], rel=0.01)
    found = estimate(Biclique(4, subgroups=2), work(content="hash", skew=0.2), 8)
    even = estimate(Biclique(4), work(content="hash", skew=0.2), 8)
    assert found.mlv_bytes / even.mlv_bytes == pytest.approx(1 + 0.2, rel=0.01)


@pytest.mark.parametrize("keys", [1_000, 100_000])
def test_subgroups_keep_zipf_keys_even(keys):
    weights = np.arange(1, keys + 1) ** -1.1
    weights /= weights.sum()
    for units in (4, 8, 16):
        d = choose_subgroups(units, work(content="hash"))
        most = [np.bincount(CHANCE.integers(0, d, keys), weights).max() * d for _ in range(50)]
        assert d > 1
        assert np.mean(most) <= MOST_UNEVEN


# Memory, compared with joins that run in this process

BAND = (Dimension(Side.LEFT, 0, Bound(0, -3), Bound(0, 3)),)
SHAPES = {
    "sorted": (IndexSpec(Sorted(), (), (0,)), {"dimensions": BAND}),
    "hash": (IndexSpec(Hash(), (0,)), {"equalities": (Equality(0, 0),)}),
    "scan": (IndexSpec(Scan()), {}),
}


def plan(shape, within_s, period_s):
    """Plan a join of two streams (x, ts) with a window of ``within_s`` in both directions."""
    index, indexable = SHAPES[shape]
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -within_s * 10**6), Bound(TIME, within_s * 10**6))
    sides = [
        SideSpec(alias, ("x", "ts"), keys=(Key("x", Domain.INT),), time=Key("ts", Domain.INT))
        for alias in "ab"
    ]
    carried = tuple(Carried(name, name, "bigint", name, name) for name in ("x", "ts"))
    physical = PhysicalPlan(
        tuple(SidePlan(alias, (), (), carried) for alias in "ab"),
        Condition(tuple(sides), window=window, **indexable),
        (index, index),
        (),
        period_s * 10**6,
    )
    streams = tuple(Stream(alias, (("x", "bigint"), ("ts", "timestamp"))) for alias in "ab")
    return Query(streams, (), ()), Lowered(physical, (), "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("shape", "model", "epoch_s", "within_s", "period_s"),
    [
        ("sorted", Biclique(1), 2, 20, 2),
        ("sorted", Biclique((2, 3)), 10, 20, 2),
        ("hash", Biclique(2, subgroups=2), 5, 30, 3),
        ("hash", Matrix(2, 2), 1, 20, 2),
        ("scan", Matrix(1, 3), 30, 20, 2),
        ("sorted", Biclique(1), 4, 5, 5),
    ],
    ids=str,
)
def test_memory_is_what_units_hold(shape, model, epoch_s, within_s, period_s):
    rates, delay_s = (60, 25), 3
    warm_up = 2 * (within_s + delay_s) // epoch_s + 2
    query, lowered = plan(shape, within_s, period_s)
    physical = lowered.physical
    join = LocalJoin(UnitSpec(physical.condition, physical.indexes, physical.archive_period_us), model)
    held, most, watermark = [], [], None
    for epoch in range(warm_up + 15):
        batches = []
        for rate in rates:
            times = (epoch * epoch_s + np.arange(rate * epoch_s) / rate) * 1e6
            x = CHANCE.integers(0, 10**9, len(times))
            batches.append(pa.RecordBatch.from_pydict({"x": x, "ts": times.astype(np.int64)}))
        for _ in join.epoch(*batches, watermark):
            pass
        watermark = ((epoch + 1) * epoch_s - delay_s) * 10**6
        held.append(sum(unit.mlv_bytes for unit in join.counters))
        most.append(max(unit.mlv_bytes for unit in join.counters))
    known = Statistics(tuples_per_second=rates, watermark_delay_s=delay_s, epoch_s=epoch_s, heaviest_key=0)
    found = estimate(model, build_workload(query, lowered, known), model.n_units)
    assert found.memory_bytes == pytest.approx(np.mean(held[warm_up:]), rel=0.2)
    assert found.mlv_bytes == pytest.approx(np.mean(most[warm_up:]), rel=0.25)


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_of_count_windows(shape):
    query, lowered = plan(shape, 1, 1)
    condition = replace(lowered.physical.condition, window=None)
    physical = replace(lowered.physical, condition=condition, archive_period_us=None, counts=(1000, 400))
    join = LocalJoin(UnitSpec(condition, physical.indexes, None, physical.counts), Split(2))
    held = []
    for epoch in range(30):
        rows = [
            pa.RecordBatch.from_pydict({"x": CHANCE.integers(0, 10**9, n), "ts": np.arange(n) + 1000 * epoch})
            for n in (120, 60)
        ]
        for _ in join.epoch(*rows):
            pass
        held.append(sum(unit.mlv_bytes for unit in join.counters))
    known = Statistics(tuples_per_second=(120, 60), epoch_s=1)
    counted = replace(query, counts=physical.counts)
    found = estimate(Split(2), build_workload(counted, replace(lowered, physical=physical), known), 2)
    assert found.memory_bytes == pytest.approx(np.mean(held[12:]), rel=0.2)


def test_full_history_grows():
    found = estimate(Biclique(1), work(rates=(10, 20), spans=(None, 60), nbytes=50), 2)
    assert (found.growth_bytes, found.memory_bytes) == (10 * 3600 * 50, 20 * 60 * 50)
    assert (found.mlv_bytes, found.mlv_growth_bytes) == (0, 10 * 3600 * 50)
    assert compute_lifetimes(Dimension(Side.LEFT, TIME, None, Bound(TIME, 5))) == (None, 5)


# The choice

CHOICES = {
    "two cores": (work(), 2, build_default_model(2)),
    "one partition": (work(), 1, build_default_model(1)),
    "nothing indexable, two cores": (work(index="scan"), 2, build_default_model(2)),
    "an equality, two cores": (work(index="hash", content="hash"), 2, build_default_model(2)),
    "an equality: no key waits for one unit": (work(index="hash", content="hash"), 4, build_default_model(4)),
    "an equality: subgroups": (work(index="hash", content="hash"), 8, Biclique(4, subgroups=2)),
    "an equality, even keys": (work(index="hash", content="hash", skew=0.01), 8, Biclique(4, subgroups=4)),
    "an equality, one key": (work(index="hash", content="hash", skew=0.5), 8, build_default_model(8)),
    "an equality, many results": (
        work(index="hash", content="hash", candidates=1000),
        8,
        build_default_model(8),
    ),
    "a band": (work(content="range"), 8, build_default_model(8)),
    "a band whose keys are spread": (work(content="range", skew=0.01), 8, Biclique(4, subgroups=4)),
    "a band, many partitions, a long window": (work(spans=(3600, 3600)), 32, build_default_model(32)),
    "a nested loop on three": (work(index="scan"), 3, Split(3)),
    "a small stream to all": (work(rates=(20_000, 1000)), 8, Matrix(8, 1)),
    "a small stream to all, swapped": (work(rates=(1000, 20_000)), 8, Matrix(1, 8)),
    "history: no replicas": (work(rates=(20_000, 1000), spans=(None, None)), 8, build_default_model(8)),
    "more partitions than units": (work(), 200, build_default_model(200)),
}


@pytest.mark.parametrize("case", CHOICES, ids=str)
def test_the_choice(case):
    given, partitions, wanted = CHOICES[case]
    model, reason = choose(given, partitions)
    assert model == wanted
    assert f"{partitions} shuffle partition" in reason
    assert choose(given, partitions) == (model, reason)


def test_only_models_that_can_run_are_compared():
    assert {found.model.name for found in compare(work(), 4)} == BINARY
    assert all(found.model.n_units == 4 for found in compare(work(), 4))
    model, reason = choose(work(), 4, lambda model: model.name == "matrix")
    assert model == Matrix(2, 2)
    assert "can run" in reason
    assert not any(model.needs_places for model in list_variants("biclique", 8, work()))


@pytest.mark.parametrize(
    ("given", "preserved", "wanted"),
    [
        (work(index="hash", content="hash"), [Side.LEFT], Matrix(8, 1, 8)),
        (work(index="grid", content="range"), [Side.RIGHT], Matrix(1, 8, 8)),
        (work(index="hash", content="hash"), [Side.LEFT, Side.RIGHT], Matrix(8, 1, 8, "hash")),
        (work(), [Side.LEFT], Matrix(8, 1)),
    ],
)
def test_joins_that_answer_tuples_route_by_content_if_it_costs_less(given, preserved, wanted):
    given = replace(given, needs_partners=True)

    def can_run(model):
        is_routable = model.needs_places in (None, "auto", given.content)
        return is_routable and all(map(model.sees_partners, preserved))

    assert choose(given, 8, can_run)[0] == wanted


def test_a_second_exchange_costs_and_decides():
    """Its rows leave the unit that stores the preserved tuple, so a heavy key makes one unit slow."""
    given = replace(work(index="hash", content="hash", candidates=20, skew=0.4), needs_partners=True)
    second = replace(given, second=SecondExchange((Side.LEFT,), 100))
    scan = replace(second, index=INDEXES["scan"])
    unknown = replace(second, candidates=None)
    # Each left tuple is a row, and so is each candidate pair. A scan makes a pair of each stored tuple.
    found = [estimate(Matrix(2, 1), each, 2) for each in (given, unknown, second, scan)]
    assert [each.second_bytes_per_s for each in found] == pytest.approx(
        [0, 1000 * 100, (1000 + 2000 * 20) * 100, (1000 + 2000 * 640_000) * 100]
    )
    assert found[0].cost < estimate(Matrix(2, 1), second, 2).cost

    def can_run(model):
        return model.sees_partners(Side.LEFT)

    assert choose(given, 2, can_run)[0] == Matrix(2, 1, 2)
    assert choose(second, 2, can_run)[0] == Matrix(2, 1)


def test_the_usual_model_is_what_it_was():
    for partitions in range(1, 64):
        per_side = max(1, min(partitions // 2, 16))
        assert build_default_model(partitions) == Biclique(per_side)
        assert choose_n_units(partitions) >= 2


# Statistics


def test_figures_are_by_alias_by_side_or_for_both():
    known = Statistics(tuples_per_second={"A": 5}, bytes_per_tuple=[80, 64])
    assert [known.rate(side, alias) for side, alias in zip(Side, "ab", strict=True)] == [5, 1000]
    assert [known.nbytes(side, alias) for side, alias in zip(Side, "ab", strict=True)] == [80, 64]
    assert Statistics(tuples_per_second=7).rate(Side.RIGHT, "b") == 7


@pytest.mark.parametrize(
    "given",
    [
        {"tuples_per_second": -1},
        {"tuples_per_second": (1, 2, 3)},
        {"results_per_second": 5},
        {"results_per_second": {"a, b": -1}},
        {"bytes_per_tuple": {"a": "wide"}},
        {"watermark_delay_s": float("nan")},
        {"heaviest_key": 1.5},
        {"origin": "guessed"},
    ],
    ids=str,
)
def test_figures_that_are_none_are_refused(given):
    with pytest.raises(QueryError, match="STATISTICS"):
        Statistics(**given)


def report(unit, side, stored, live):
    counters = dict.fromkeys(("left", "right"), 0) | {("left", "right")[side]: stored}
    return counters | {
        "unit": unit,
        "stored": stored,
        "expired": stored - live,
        "mlv_bytes": (50, 80)[side] * live,
    }


def run_of(n_epochs, first=0):
    """Yield epochs of 10 s with 300 left tuples of 50 bytes and 100 right tuples of 80 bytes.

    The watermark is 4 s behind.
    """
    for number in range(n_epochs):
        live = (300, 100) if number == 0 else (0, 0)
        units = [report(side, side, (300, 100)[side], live[side]) for side in range(2)]
        for unit in units:
            unit["mlv_bytes"] = ((50 * 300), (80 * 100))[unit["unit"]]
        total = {name: sum(unit[name] for unit in units) for name in ("left", "right", "stored", "expired")}
        end = 10 * (number + 1)
        times = {"min": f"2026-01-01T00:{(end - 10) // 60:02}:{(end - 10) % 60:02}.000Z"}
        times["max"] = f"2026-01-01T00:{end // 60:02}:{end % 60:02}.000Z"
        behind = end - 14
        times["watermark"] = (
            "1970-01-01T00:00:00.000Z"
            if number == 0
            else f"2026-01-01T00:{behind // 60:02}:{behind % 60:02}.000Z"
        )
        at = f"2026-01-02T00:00:{number:02}.000Z"
        yield (
            {"epoch": first + number, "join": "j", **total, "candidates": 800, "units": units},
            {"batchId": first + number, "timestamp": at, "batchDuration": 1000, "eventTime": times},
        )


def test_statistics_are_read_off_counters_and_progress():
    epochs, progress = zip(*run_of(6), strict=True)
    known = measure_statistics(epochs, progress)
    assert known.origin == "measured"
    assert known.tuples_per_second == pytest.approx((30, 10))
    assert known.bytes_per_tuple == pytest.approx((50, 80))
    assert (known.watermark_delay_s, known.epoch_s) == (4, 10)
    assert known.candidates_per_tuple == pytest.approx(2)
    # If earlier epochs are not in the report, sizes are unknown, because those epochs stored tuples too.
    epochs, progress = zip(*run_of(6, first=3), strict=True)
    assert measure_statistics(epochs, progress).bytes_per_tuple is None
    # Without event time, rates follow the wall clock.
    for one in progress:
        del one["eventTime"]
    assert measure_statistics(epochs, progress).tuples_per_second == pytest.approx((300, 100))
    with pytest.raises(QueryError, match="NOTHING_MEASURED"):
        measure_statistics([], [])


def test_hashes_are_even_together():
    model = Biclique((6, 4), (3, 2))
    for side in Side:
        stored = compute_shares(model)[side].stored
        assert stored[stored > 0] == pytest.approx(1 / model.per_side[side], rel=0.01)


@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("workers", [2, 16])
def test_the_best_block_is_where_the_target_function_is_least(weight, workers):
    best = find_best_block(5000, workers, 0.01, weight)
    least = weigh_block(best, 5000, workers, 0.01, weight)
    assert all(
        weigh_block(best * factor, 5000, workers, 0.01, weight) > least for factor in (0.5, 0.99, 1.01, 2)
    )
    # A chain counts both terms in seconds, which is J with equal weights and its own constants.
    cost = BlockCost(moved=5000, probes=5000, look_share=1e-3, nbytes=40)
    imbalance_s = cost.imbalance_s(1.0)
    same = find_best_block(5000, workers, cost.serialisation_s(1.0) * workers / 5000**2 / imbalance_s)
    assert cost.find_best() == pytest.approx(same, rel=0.01)
