"""The order of joins in a pipeline."""

import pytest

from thetastream.plan.join_order import choose_join_order, estimate_sizes
from thetastream.plan.measured_statistics import find_inner_streams, measure_statistics
from thetastream.plan.query import Query, Stream
from thetastream.plan.statistics import Statistics


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
        "eventTime": {"min": f"2024-01-01T00:00:0{number}Z", "max": f"2024-01-01T00:00:0{number + 4}Z"},
    }
    for number in range(2)
]


def test_the_rates_of_a_join_hop_by_hop_are_measured():
    streams = {"a": {"timely": 20}, "b": {"timely": 5}, "c": {"timely": 0}}
    found = measure_statistics([{"left": 20, "right": 5, "stored": 25, "streams": streams}] * 2, PROGRESS)
    assert found.tuples_per_second == {"a": 8, "b": 2, "c": 0}
    assert found.origin == "measured"


@pytest.mark.parametrize(
    ("joins", "inner"),
    [
        ([("b", "c"), ("b_c", "a"), ("d", "b_c_a")], {"b_c", "b_c_a"}),
        ([("a", "b"), ("c", "d")], set()),
        ([("a", "b"), ("a_b_", "a_b")], {"a_b_"}),  # the user has a stream with the name a_b
    ],
)
def test_results_of_steps_are_no_streams_of_the_user(joins, inner):
    assert find_inner_streams(joins) == inner
