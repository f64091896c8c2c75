"""Policies: when two-phase scaling acts, by how many units, and which settings are refused."""

import pytest

from thetastream.core.errors import QueryError
from thetastream.runtime.control.policies import REGISTRY, GroupLoad, Load, TwoPhaseScaling

GB = 1e9


def replay(policy, shares, n_units=8, capacity=1.5 * GB, step_s=60):
    """Feed one group that uses these shares of its capacity, check by check; apply what is decided."""
    decider, sizes = policy.begin(), []
    decider.decide(Load(-step_s, step_s, (GroupLoad(n_units, 0),)))
    for number, share in enumerate(shares):
        group = GroupLoad(n_units, share * n_units * capacity)
        decided = decider.decide(Load(number * step_s, step_s, (group,)))
        n_units = decided[0] if decided else n_units
        sizes.append(n_units)
    return sizes


def test_units_are_added_after_three_equal_decisions_in_a_row():
    # Delta = (0.9 / 0.6 - 1) 8 = 4
    assert replay(TwoPhaseScaling(), [0.9, 0.9, 0.9]) == [8, 8, 12]


def test_a_part_of_a_unit_is_added_as_a_whole_and_removed_as_nothing():
    # Delta = (0.85 / 0.6 - 1) 8 = 3.33 and (0.25 / 0.6 - 1) 8 = -4.67
    assert replay(TwoPhaseScaling(agree=1), [0.85]) == [12]
    assert replay(TwoPhaseScaling(agree=1), [0.25]) == [4]


def test_a_decision_that_differs_begins_the_count_anew():
    assert replay(TwoPhaseScaling(), [0.9, 0.9, 0.5, 0.9, 0.9, 0.2, 0.9, 0.9]) == [8] * 8


def test_after_a_change_the_count_begins_anew():
    assert replay(TwoPhaseScaling(agree=2), [0.9, 0.9, 0.9, 0.5]) == [8, 12, 12, 12]


def test_the_last_unit_stays():
    assert replay(TwoPhaseScaling(agree=1), [0.0, 0.0], n_units=2) == [1, 1]


def test_thresholds_themselves_change_nothing():
    policy = TwoPhaseScaling(high=0.75, low=0.25, target=0.5, agree=1)
    assert replay(policy, [0.75, 0.25]) == [8, 8]


def test_epochs_between_two_checks_count_only_as_work():
    policy = TwoPhaseScaling(capacity=0.5, every="1 minute", agree=1)
    decider = policy.begin()
    # In the first minute, the two units work 54 of the 60 seconds they may.
    works = [0.0, *[9.0] * 6]
    decided = [
        decider.decide(Load(10 * n, 10 if n else 0, (GroupLoad(2, 0, busy_s),)))
        for n, busy_s in enumerate(works)
    ]
    # tau = 54 / (2 * 0.5 * 60) = 0.9
    assert decided == [None, None, None, None, None, None, (3,)]


def test_groups_are_scaled_independently():
    decider = TwoPhaseScaling(capacity="1 GB", agree=1).begin()
    groups = GroupLoad(2, 1.8 * GB), GroupLoad(4, 2 * GB), GroupLoad(4, 0.8 * GB)
    assert [decider.decide(Load(60 * n, 60, groups)) for n in range(2)] == [None, (3, 4, 2)]


def test_a_group_that_only_waits_for_old_tuples_to_expire_is_not_reduced_again():
    """The bytes of units that leave count, so tau is at its target at once and stays there."""
    policy, total = TwoPhaseScaling(capacity="1 GB"), 2.4 * GB
    decider, n_units, sizes = policy.begin(), 10, []
    for minute in range(10):
        decided = decider.decide(Load(60 * minute, 60, (GroupLoad(n_units, total),)))
        n_units = decided[0] if decided else n_units
        sizes.append(n_units)
    assert sizes == [10, 10, 10, *[4] * 7]


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"high": 0.5}, "low < target < high must hold, and they are 0.3, 0.6, 0.5"),
        ({"low": 0.7}, "low < target < high must hold"),
        ({"low": -0.1}, "low must be a number of at least 0, not -0.1"),
        ({"low": [0.3] * 13}, "low must be a number of at least 0, not a list"),
        ({"high": float("nan")}, "high must be a number of at least 0, not nan"),
        ({"target": True}, "target must be a number of at least 0, not True"),
        ({"capacity": "much"}, "capacity must be a size"),
        ({"capacity": 0}, "capacity must be a size"),
        ({"capacity": 1.5}, "capacity must be a size"),
        ({"every": "soon"}, "every"),
        ({"every": "0 seconds"}, "every"),
        ({"agree": 0}, "agree must be an integer of at least 1, not 0"),
        ({"agree": 1.5}, "agree must be an integer of at least 1, not 1.5"),
    ],
    ids=repr,
)
def test_settings_out_of_range_are_refused(settings, rule):
    with pytest.raises(QueryError, match=rf"\[POLICY\] {rule}"):
        TwoPhaseScaling(**settings)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_registered_policy_needs_no_settings_and_leaves_a_group_in_the_middle_alone(name):
    decider = REGISTRY[name]().begin()
    groups = (GroupLoad(4, 4 * 0.75 * GB, 0.5),)
    assert [decider.decide(Load(60 * n, 60, groups)) for n in range(9)] == [None] * 9
