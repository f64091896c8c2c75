"""The order of joins in a pipeline."""

import itertools
import json
from types import SimpleNamespace

import pytest

from thetastream.joins.compose.tree import (
    MOST_STREAMS,
    StreamWindow,
    build_left_deep,
    choose_join_tree,
    estimate_results,
    solve_ties,
)
from thetastream.joins.measured_statistics import Meter, are_one_pipeline, measure_statistics, read_meter
from thetastream.lowering.query import Query, Stream
from thetastream.lowering.selectivity import choose_join_order, estimate_sizes
from thetastream.lowering.statistics import Statistics


@pytest.mark.parametrize(
    ("sizes", "ties", "order"),
    [
        ({}, {"ac": 0.3, "cd": 0.3, "bd": 0.3}, "acdb"),  # no cross join while something ties
        ({}, {"ab": 0.3, "bc": 0.1, "cd": 0.3}, "bcad"),  # the equality first
        ({"a": 600.0}, {"ab": 0.3, "bc": 0.3, "cd": 0.3}, "bcda"),  # the long window last
        ({"a": 600.0}, {"a": 0.1, "ab": 0.01, "bc": 0.3, "cd": 0.3}, "abcd"),  # a filter shortens it
        ({}, {}, "abcd"),
        ({}, {"abcd": 0.1, "cd": 0.3}, "cdab"),
    ],
)
def test_pipelines_begin_with_the_smallest_results(sizes, ties, order):
    found = choose_join_order(
        {alias: sizes.get(alias, 60.0) for alias in "abcd"}, [(frozenset(t), n) for t, n in ties.items()]
    )
    assert "".join(found) == order


def query_of(**fields):
    return Query(tuple(Stream(alias, ()) for alias in "abc"), (), (), (), **fields)


def test_sizes_follow_rates_windows_and_counts():
    minute = (60_000_000,) * 3
    rates = Statistics(tuples_per_second={"A": 10, "b": 2, "c": 1})
    assert estimate_sizes(query_of(within_us=minute), rates) == {"a": 610, "b": 122, "c": 61}
    assert estimate_sizes(query_of(), rates) == {"a": 10, "b": 2, "c": 1}
    assert estimate_sizes(query_of(counts=(5, 7, 9)), rates) == {"a": 5, "b": 7, "c": 9}
    assert len(set(estimate_sizes(query_of(within_us=minute)).values())) == 1
    ties = [(frozenset("ab"), 0.3), (frozenset("bc"), 0.3), (frozenset("ac"), 0.3)]
    assert choose_join_order(estimate_sizes(query_of(within_us=minute), rates), ties) == ["b", "c", "a"]


PROGRESS = [
    {
        "batchId": number,
        "timestamp": f"2026-01-05T00:00:0{number}Z",
        "eventTime": {"min": f"2024-01-01T00:00:0{number}Z", "max": f"2024-01-01T00:00:0{number + 4}Z"},
    }
    for number in range(2)
]


def test_the_rates_of_a_join_hop_by_hop_are_measured():
    streams = {"a": {"timely": 20}, "b": {"timely": 5}, "c": {"timely": 0}}
    work = {"candidates": 500, "predicate_us": 10_000}
    epoch = {"join": "j", "left": 20, "right": 5, "stored": 25, "streams": streams, **work}
    found = measure_statistics([epoch] * 2, PROGRESS)
    assert found.tuples_per_second == {"a": 8, "b": 2, "c": 0}
    assert found.origin == "measured"
    assert found.candidates_per_tuple == 20
    assert found.seconds_per_candidate == pytest.approx(20e-9 + 20e-6)
    # The candidates of all hops say nothing about a join of two of the streams.
    assert found.of(["A", "b"]).candidates_per_tuple is None
    assert found.of(["a", "b", "C"]) == found
    assert measure_statistics([{**epoch, "predicate_us": 0}], PROGRESS).seconds_per_candidate is None
    # Nodes that store copies compare them too.
    assert measure_statistics([{**epoch, "stored": 26}], PROGRESS).candidates_per_tuple is None
    # Predicates of several joins differ.
    two = measure_rates([epoch, {**epoch, "join": "k"}])
    assert two.candidates_per_tuple is two.seconds_per_candidate is None


def measure_rates(epochs):
    meter = read_meter(epochs, PROGRESS)
    return meter.measure_rates(list(meter.joins.values()))


def make_epoch(join, matched=0, **timely):
    """An epoch of a join. The name of an input that is a result has the aliases of its streams."""
    parts = {alias: alias.split("_") for alias in timely if "_" in alias}
    streams = {alias: {"timely": n} for alias, n in timely.items()}
    return {"join": join, "matched": matched, "streams": streams, "plan": {"parts": parts} if parts else None}


@pytest.mark.parametrize(
    ("joins", "is_one"),
    [
        ([("b", "c"), ("b_c", "a"), ("d", "b_c_a")], True),
        ([("a", "b"), ("c", "d"), ("a_b", "c_d")], True),
        ([("a", "b"), ("c", "d")], False),
        ([("a", "b"), ("a", "b")], False),
        ([("a", "b", "c"), ("d", "e")], False),
    ],
)
def test_the_joins_of_a_pipeline_are_told_by_the_streams_behind_their_inputs(joins, is_one):
    epochs = [make_epoch(n, **dict.fromkeys(aliases, 1)) for n, aliases in enumerate(joins)]
    assert are_one_pipeline(list(read_meter(epochs, ()).joins.values())) is is_one


def chain(*shares):
    return [(frozenset(pair), share) for pair, share in zip(["ab", "bc", "cd", "de"], shares, strict=False)]


@pytest.mark.parametrize(
    ("ties", "n", "tree"),
    [
        (chain(1e-4, 0.1, 1e-4), 4, (("a", "b"), ("c", "d"))),
        (chain(1e-4, 1e-4, 1e-4), 4, build_left_deep("abcd")),  # few results anywhere
        (chain(0.1, 1e-4, 1e-4), 4, build_left_deep("bcda")),  # (b c) d stays small
        (chain(1e-4, 0.9, 1e-4, 1e-4), 5, ((("c", "d"), "e"), ("a", "b"))),
        (chain(1e-4, 0.1), 3, build_left_deep("abc")),
        (chain(0.1, 1e-4), 3, build_left_deep("bca")),
    ],
)
def test_a_bushy_tree_is_clearly_cheaper_than_the_cheapest_left_deep_tree(ties, n, tree):
    aliases = "abcde"[:n]
    assert choose_join_tree(aliases, dict.fromkeys(aliases, StreamWindow(100, 10)), ties) == tree


def test_equal_trees_keep_the_given_order():
    for order in itertools.permutations("abcd"):
        tree = choose_join_tree(order, dict.fromkeys("abcd", StreamWindow(1, 1)), [])
        assert tree == build_left_deep(order)


def test_trees_of_many_streams_are_not_compared():
    aliases = "abcdefghijk"
    assert len(aliases) == MOST_STREAMS + 1
    assert choose_join_tree(aliases, dict.fromkeys(aliases, StreamWindow(1, 1)), []) is None


def test_rates_of_results_follow_windows():
    """The results of integer times in windows are counted."""
    flows, times = [StreamWindow(1, 3), StreamWindow(1, 5), StreamWindow(1, 2)], range(40)
    found = sum(
        max(together) == 20 and all(20 - t < flow.window_s for t, flow in zip(together, flows, strict=True))
        for together in itertools.product(times, repeat=3)
    )
    # Times that are equal are counted for one of them only, so whole numbers have fewer results.
    assert found <= estimate_results(flows) == 3 * 5 + 3 * 2 + 5 * 2


def test_selectivities_follow_from_rates_of_results():
    flows = dict.fromkeys("abcd", StreamWindow(10, 1))
    ties = [(frozenset("a"), 0.5), *chain(1, 1, 1)]
    rates = {"ab": 20.0, "cd": 2.0, "abcd": 4.0}
    solved = dict(solve_ties(ties, flows, {frozenset(name): rate for name, rate in rates.items()}))
    assert solved[frozenset("ab")] == pytest.approx(0.2)
    assert solved[frozenset("cd")] == pytest.approx(0.01)
    assert solved[frozenset("bc")] == pytest.approx(4 / (4e4 * 0.5 * 0.2 * 0.01))
    assert solve_ties(ties, flows, {frozenset("ab"): 20.0, frozenset("abcd"): 4.0}) is None


def test_the_rates_of_the_results_of_a_pipeline_are_measured():
    epochs = [make_epoch(0, 7, a=20, b=5), make_epoch(1, 9, c=10, d=5), make_epoch(2, 3, a_b=6, c_d=8)] * 2
    found = measure_rates(epochs)
    assert found.tuples_per_second == {"a": 8, "b": 2, "c": 4, "d": 2}
    assert found.results_per_second == {"a, b": 2.4, "a, b, c, d": 1.2, "c, d": 3.2}
    assert found.results_of("abcd") == {frozenset("ab"): 2.4, frozenset("cd"): 3.2, frozenset("abcd"): 1.2}


def test_aliases_of_results_ignore_case():
    """One letter of an alias may be two in the other case."""
    for name in ("a,ma\u00df", "MASS, A", "a , mass"):
        assert Statistics(results_per_second={name: 1}).results_of(["a", "Ma\u00df"]) == {
            frozenset({"a", "Ma\u00df"}): 1
        }
    last = Statistics(results_per_second={"a,b": 1, "b, a": 2})
    assert last.results_of(["a", "b"]) == {frozenset("ab"): 2}


def test_statistics_are_those_of_the_join():
    """A left join with a residual, and a join beside a lookup or upserts, counted as several joins."""
    words = [{"the condition": "a.x = b.x"}, {"the condition": "a.x = b.x", "the units": "second"}, {}]
    join, second, lookup = entries = [{"join": str(n), "plan": {"words": one}} for n, one in enumerate(words)]
    assert list(read_meter(entries, ()).joins) == [join["join"]]
    assert list(read_meter([lookup], ()).joins) == [lookup["join"]]
    old = {"join": "old", "plan": None}
    assert list(read_meter([old, second], ()).joins) == ["old", second["join"]]


def test_a_meter_adds_each_epoch_once():
    """Spark keeps the last 20 reports of a job. `--statistics` measured those only."""
    reports = [
        {"batchId": n, "timestamp": f"2026-01-05T00:00:{n:02}Z", "batchDuration": 1000, "observedMetrics": {}}
        for n in range(30)
    ]
    for report in reports:
        unit = {"unit": 0, "left": 3, "right": 1, **dict.fromkeys(("matched", "candidates"), 0)}
        report["observedMetrics"] = {"thetastream_ab_1": {"units": [json.dumps(unit)], "plan": None}}
        report["runId"] = "r"
    meter = Meter()
    for seen in range(1, 31):
        meter.look(SimpleNamespace(recentProgress=reports[max(0, seen - 20) : seen]))
    assert meter.measure().tuples_per_second == (3, 1)
    assert list(meter.joins["ab"].counted) == [90, 30]
