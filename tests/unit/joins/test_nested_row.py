"""How long tuples wait for the rows of the joins before theirs."""

from datetime import timedelta
from typing import Any

import pytest

from thetastream.core.how import HOWS
from thetastream.joins.compose.nested import NestedRow
from thetastream.lowering.query import Stream

NO_FRAME: Any = None


@pytest.mark.parametrize(
    ("how", "late_us"), [("inner", 0), ("left", 5), ("right", 7), ("full", 7), ("semi", 5), ("anti", 5)]
)
def test_tuples_wait_longer_for_rows_that_leave_when_they_are_decided(how: str, late_us: int) -> None:
    row = NestedRow(Stream("a", ()), NO_FRAME, 5)
    row.add(Stream("b", ()), 7, HOWS[how])
    assert row.find_windows("c", 3)["c"] == timedelta(microseconds=3 + late_us)
    row.add(Stream("c", ()), 3, HOWS["inner"])
    assert row.find_windows("d", 0)["d"] == timedelta(microseconds=late_us)
