"""A shedder by lag in a closed loop with a clock of its own: what it keeps, and how long epochs become.

A unit of tuples takes a second of work, and ``overload`` units arrive in a second. An epoch reads what has
arrived since the epoch before, or at most ``most`` units if the source bounds epochs.
"""

from typing import NamedTuple

import pytest

from thetastream.core.shed import Shed

SHED = Shed("2 s", "20 s", base=0.1, load="lag")
FLOOR_S, MINUTES = 0.33, 10


class Outcome(NamedTuple):
    kept: float
    """Share of the arrivals that is kept, after the first minute."""
    longest_s: float
    largest_lag_s: float


def run(shed: Shed | None, overload: float, most: float = float("inf")) -> Outcome:
    """Run ten minutes of arrivals at ``overload`` times what the join can do, without pauses."""
    began_s, read_s, lag_s = 1.0, 0.0, None
    arrived = kept = longest_s = largest_lag_s = 0.0
    while began_s < 60 * MINUTES:
        until_s = min(began_s, read_s + most / overload)
        n = (until_s - read_s) * overload
        factor = 0.0 if shed is None or lag_s is None else shed.compute_factor(1e6 * lag_s)
        duration_s = max(FLOOR_S, n * (1 - factor))
        lag_s = began_s - (read_s + until_s) / 2
        if began_s > 60:
            arrived, kept = arrived + n, kept + n * (1 - factor)
            longest_s, largest_lag_s = max(longest_s, duration_s), max(largest_lag_s, lag_s)
        began_s, read_s = began_s + duration_s, until_s
    return Outcome(kept / arrived if arrived else 1.0, longest_s, largest_lag_s)


@pytest.mark.parametrize("overload", [1.2, 2, 3, 5])
def test_with_bounded_epochs_the_lag_settles_where_the_curve_drops_the_excess(overload: float) -> None:
    found = run(SHED, overload, most=2.0)
    assert found.kept == pytest.approx(1 / overload, rel=0.02)
    assert found.longest_s <= 2.0
    # factor(lag) = 1 - 1 / overload
    settled_s = 2 + 18 * (1 - 1 / overload - 0.1) / 0.9
    assert found.largest_lag_s < 1.1 * max(settled_s, 2.5)


def test_without_a_shedder_the_lag_grows_for_ever() -> None:
    assert run(None, 2, most=2.0).largest_lag_s > 200
    assert run(None, 2).longest_s > 200


def test_without_bounded_epochs_twice_the_capacity_oscillates_below_the_capacity_of_the_shedder() -> None:
    """An epoch of unbounded length is dropped by the lag of the epoch before, which is too late."""
    found = run(SHED, 2)
    assert found.kept == pytest.approx(1 / 2, rel=0.05)
    assert found.longest_s < 2 * 20
    assert run(SHED, 5).longest_s > 2 * 20
