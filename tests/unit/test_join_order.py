"""The order of joins in a pipeline."""

import pytest

from thetastream.plan.join_order import choose_join_order


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
