"""The cost of a predicate is measured on sample rows, by the clock that is given."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from thetastream.conditions import predicate
from thetastream.core.errors import PredicateError, QueryError
from thetastream.index.base import CANDIDATE_S
from thetastream.joins.measured_predicate import ENOUGH_S, MOST, measure_predicate

ROWS = pa.table({"x": [1, 2, 3], "at": pa.array([datetime(2026, 1, 5, tzinfo=UTC)] * 3)})


class Clock:
    """A clock that a predicate moves by some seconds for each candidate."""

    def __init__(self, seconds: float, per_call: float = 0.0) -> None:
        self.now, self.calls = 0.0, []
        self._seconds, self._per_call = seconds, per_call

    def compare(self, n: int) -> np.ndarray:
        self.calls.append(n)
        self.now += self._per_call + n * self._seconds
        return np.zeros(n, dtype=bool)


@pytest.mark.parametrize("form", ["plain", "numpy", "dictionary"])
@pytest.mark.parametrize("seconds", [1e-8, 1e-6, 2e-5, 1e-3, 0.1])
def test_the_seconds_of_a_candidate_are_measured(form: str, seconds: float) -> None:
    clock = Clock(seconds, per_call=2e-5)

    @predicate(form, a=["x"], B=["x", "at"])
    def near(a, B):
        assert len(a.x) == len(B.at)
        return clock.compare(len(a.x))

    found = measure_predicate(near, {"A": ROWS, "b": ROWS}, lambda: clock.now)
    assert found == pytest.approx(CANDIDATE_S + seconds, rel=0.05)
    # Each call is twice as large as the one before, until one is long enough.
    assert clock.calls[-1] * seconds >= ENOUGH_S / 2 or clock.calls[-1] == MOST
    assert sum(clock.calls) <= 5 * clock.calls[-1]


def test_instants_are_given_as_in_a_join() -> None:
    seen = set()

    @predicate(a=["at"], b=["at"])
    def plain(a, b):
        seen.add(a.at.type)
        return np.zeros(len(a.at), dtype=bool)

    @predicate("numpy", a=["at"], b=["at"])
    def arrays(a, b):
        seen.add(a.at.dtype)
        return a.at == b.at

    for asked in (plain, arrays):
        measure_predicate(asked, {"a": ROWS, "b": ROWS})
    assert seen == {pa.int64(), np.dtype("datetime64[us]")}


def test_samples_and_answers_are_checked() -> None:
    @predicate(a=["x"], b=["y"])
    def wrong(a, b):
        return a.x

    for samples, message in (
        ({"a": ROWS}, "BAD_SAMPLE.*for 'b'"),
        ({"a": ROWS.slice(0, 0), "b": ROWS}, "BAD_SAMPLE.*for 'a'"),
        ({"a": ROWS, "b": ROWS}, "BAD_SAMPLE.*reads b.y.*has x, at"),
        ({"a": 3, "b": ROWS}, "BAD_SAMPLE"),
    ):
        with pytest.raises(QueryError, match=message):
            measure_predicate(wrong, samples)
    with pytest.raises(PredicateError, match="PREDICATE_RESULT"):
        measure_predicate(wrong, {"a": ROWS, "b": pa.table({"y": [1]})})
