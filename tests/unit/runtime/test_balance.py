"""Capacities that are measured make the work of units even in time."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thetastream.core.errors import QueryError
from thetastream.models import Biclique
from thetastream.models.capacities import share_turns
from thetastream.runtime.control.balance import WEAKEST, measure_capacities


def work(model: Biclique, speeds: list[float], probe_us: float) -> list[dict[str, Any]]:
    """Return the counters of units that hold their shares of 10,000 tuples of each side.

    A unit works 1 us for each tuple that it holds, and ``probe_us`` for each tuple of the other stream.
    """
    units = []
    for members in model.groups:
        turns = share_turns(tuple((model.capacities or (1,) * model.n_units)[unit] for unit in members))
        for number, unit in enumerate(members):
            held = int(10_000 * (turns == number).sum() / len(turns))
            busy_us = (held + probe_us) / speeds[unit]
            units.append({"unit": 10 + unit, "held": held, "busy_ms": round(busy_us)})
    return units


@given(st.lists(st.floats(0.3, 3), min_size=5, max_size=5), st.floats(0, 500))
@example([2.0, 3.0, 0.3125, 1.0, 1.0], 389.0)  # The third unit has the smallest share that is possible.
def test_units_of_any_strength_work_equally_long_after_a_few_changes(
    speeds: list[float], probe_us: float
) -> None:
    model = Biclique((3, 2))
    for _ in range(8):
        found = measure_capacities(model, range(10, 15), [{"units": work(model, speeds, probe_us)}], 1.1)
        if found is None:
            break
        model = model.with_sizes(capacities=found)
    # Work is even in both groups, except for units that can have no smaller share, and nothing more is asked.
    assert found is None
    units, capacities = work(model, speeds, probe_us), model.capacities or (1,) * 5
    for members in model.groups:
        times = [units[unit]["busy_ms"] for unit in members]
        smallest = 1.02 * WEAKEST * max(capacities[unit] for unit in members)
        least = min(capacities[unit] for unit in members)
        assert max(times) <= 1.1 * sum(times) / len(times) + 1 or least <= smallest


def test_units_of_one_strength_stay_as_they_are() -> None:
    assert (
        measure_capacities(Biclique(2), range(10, 14), [{"units": work(Biclique(2), [1] * 4, 9)}], 1.01)
        is None
    )


def test_a_weak_unit_keeps_a_share() -> None:
    units = [{"unit": 0, "held": 100, "busy_ms": 1}, {"unit": 1, "held": 100, "busy_ms": 1000}]
    units += [{"unit": 2, "held": 1, "busy_ms": 1}, {"unit": 7, "held": 5, "busy_ms": 0}]
    found = measure_capacities(Biclique((2, 1)), range(3), [{"units": units}, {"units": units}], 1.2)
    assert found is not None
    assert found[1] / found[0] == pytest.approx(WEAKEST, rel=0.01)


@pytest.mark.parametrize("epochs", [[], [{"units": [{"unit": 0, "held": 3, "busy_ms": 2}]}]])
def test_units_must_have_worked(epochs: list[Any]) -> None:
    with pytest.raises(QueryError, match=r"NOTHING_MEASURED.*unit [01] has not worked"):
        measure_capacities(Biclique(1), (0, 1), epochs, 1.2)
