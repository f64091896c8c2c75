"""The order of results: punctuation intervals, inner precision, and punctuations that carry their stream."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.controlled import SCHEMA, UNIT
from tests.support.local_run import LocalRun
from thetastream.core.errors import QueryError
from thetastream.engine.order import (
    ARRIVAL_LEFT,
    ARRIVAL_RIGHT,
    Order,
    PunctuatedSpec,
    read_order,
    sort_results,
)
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Split

ARRIVALS = pa.schema([(ARRIVAL_LEFT, pa.int64()), (ARRIVAL_RIGHT, pa.int64())])


def sort(left: list[int | None], right: list[int | None], order: Order) -> list[tuple[int | None, ...]]:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(left, pa.int64()), pa.array(right, pa.int64())], schema=ARRIVALS
    )
    table = pa.concat_tables(sort_results([batch], order, (0, 1)))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("inner", [1, 4, 50])
def test_results_of_an_arrival_come_in_steps_of_stored_arrivals(inner: int) -> None:
    chance = np.random.default_rng(inner)
    later, earlier = chance.integers(100, 108, 200), chance.integers(0, 100, 200)
    is_left = chance.random(200) < 0.5
    left, right = np.where(is_left, later, earlier), np.where(is_left, earlier, later)
    found = sort(left.tolist(), right.tolist(), Order(inner=inner))
    steps = [(max(pair), min(pair) // inner) for pair in found]
    assert steps == sorted(steps)
    assert sorted(found) == sorted(zip(left.tolist(), right.tolist(), strict=True))
    # Inside a step, results keep the order in which the units found them.
    assert (inner == 1) == (
        [(max(pair), min(pair)) for pair in found] == sorted((max(p), min(p)) for p in found)
    )


def test_punctuations_of_both_streams_follow_the_results_of_their_arrival() -> None:
    left, right = [5, 7, None, 3, None], [9, 2, 7, 9, 9]
    assert sort(left, right, Order(inner=2)) == [(7, 2), (None, 7), (3, 9), (5, 9), (None, 9)]
    assert sort([4, 4, 4], [1, None, 3], Order()) == [(4, 1), (4, 3), (4, None)]


def test_a_punctuation_carries_the_stream_of_its_arrival() -> None:
    order = Order(interval=2, is_punctuated=True)
    results = pa.schema([*SCHEMA, ARRIVALS.field(0), *SCHEMA, ARRIVALS.field(1)])
    unit = TwoStreamSpec(
        UNIT.__class__(UNIT.condition, UNIT.indexes, UNIT.archive_period_us, None, True), Split(2)
    )
    run = LocalRun(PunctuatedSpec(unit, order, results))
    punctuations: list[tuple[int | None, int | None]] = []
    for times in (([1, 4, 9], [2, 3]), ([12], [11, 13])):
        batches = [
            pa.RecordBatch.from_pylist(
                [{field.name: 10**6 * (side + 1) for field in SCHEMA} | {"t": time} for time in mine],
                schema=SCHEMA,
            )
            for side, mine in enumerate(times)
        ]
        for columns in run.epoch(batches, None):
            both = columns[results.get_field_index(ARRIVAL_LEFT)], columns[-1]
            rows = zip(*(column.to_pylist() for column in both), strict=True)
            punctuations += [row for row in rows if None in row]
    # The order of arrival is left, right, right, left, left; right, left, right.
    assert punctuations == [(None, 1), (3, None), (None, 5), (None, 7)]


@pytest.mark.parametrize(("asked", "inner"), [("strict", 1), ("outer", None), ("inner 64", 64), (7, None)])
def test_orders_that_are_read(asked: str | int, inner: int | None) -> None:
    order = read_order(asked, True)
    assert order is not None
    assert (order.inner, order.interval, order.is_punctuated) == (inner, 7 if asked == 7 else 1, True)


@pytest.mark.parametrize("asked", ["inner", "inner 0", "inner x", "inner -1", 0, True, 2**63])
def test_orders_that_are_refused(asked: object) -> None:
    with pytest.raises(QueryError, match=r"BAD_ORDER.*inner n"):
        read_order(asked, False)  # type: ignore[arg-type]
