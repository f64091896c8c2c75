"""Equal tuples of opposite sign cancel each other, and no others do."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core import equal_rows
from thetastream.core.cancellation import cancel, find_counterparts, find_net
from thetastream.core.columns import SIGN
from thetastream.core.equal_rows import compare_rows

NAN = float("nan")


def net(values: list[Any], type_: pa.DataType, signs: list[int]) -> list[int]:
    found = find_net([pa.array(values, type_)], np.array(signs, dtype=np.int8))
    return list(range(len(values))) if found is None else found.tolist()


@pytest.mark.parametrize(
    ("type_", "first", "equal", "other"),
    [
        (pa.int64(), 5, 5, 6),
        (pa.int64(), None, None, 0),
        (pa.float64(), NAN, NAN, 0.0),
        (pa.float64(), 0.0, -0.0, None),
        (pa.float32(), -0.0, 0.0, NAN),
        (pa.string(), "", "", None),
        (pa.binary(), b"ab", b"ab", b"a"),
        (pa.decimal128(20, 2), Decimal("1.50"), Decimal("1.5"), Decimal("1.51")),
        (pa.bool_(), False, False, None),
        (pa.uint64(), 2**64 - 1, 2**64 - 1, None),
        (pa.int8(), -1, -1, 1),
        (pa.date32(), date(1969, 12, 31), date(1969, 12, 31), None),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), None),
        (pa.month_day_nano_interval(), (1, 0, 0), (1, 0, 0), (0, 30, 0)),
        (pa.duration("us"), timedelta(1), timedelta(days=1), timedelta(0)),
        (pa.list_(pa.int64()), [1, 2], [1, 2], [12]),
        (pa.list_(pa.int64()), [], [], None),
        (pa.list_(pa.float64()), [0.0, NAN], [-0.0, NAN], [NAN, 0.0]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 1)], [("a", None)]),
        (pa.struct([("x", pa.int64())]), {"x": None}, {"x": None}, None),
        (pa.struct([("x", pa.list_(pa.string()))]), {"x": ["a"]}, {"x": ["a"]}, {"x": ["b"]}),
    ],
)
def test_equal_values_cancel_and_others_stay(type_: pa.DataType, first: Any, equal: Any, other: Any) -> None:
    assert net([other, first, equal], type_, [1, 1, -1]) == [0]
    assert net([first, other], type_, [1, -1]) == [0, 1]
    # A slice has an offset, which nested arrays must count.
    whole = pa.array([other, other, first, equal], type_).slice(1)
    found = find_net([whole], np.array([1, 1, -1], dtype=np.int8))
    assert found is not None
    assert found.tolist() == [0]
    mine = pa.array([other, first, first, other], type_).slice(1)
    theirs = pa.array([equal, other, other], type_)
    assert compare_rows([mine], [theirs]).tolist() == [True, False, True]


def test_columns_of_null_are_equal() -> None:
    nothing = pa.nulls(4)
    left = find_net([nothing, pa.array([1, 2, 1, 1])], np.array([1, 1, -1, 1], dtype=np.int8))
    assert left is not None
    assert left.tolist() == [1, 3]
    assert compare_rows([nothing], [nothing]).all()


def test_no_column_alone_decides() -> None:
    columns = [pa.array([1, 1, 2, 2]), pa.array(["a", "b", "a", "b"])]
    assert find_net(columns, np.array([1, -1, -1, 1], dtype=np.int8)) is None
    left = find_net(columns, np.array([1, -1, -1, 1], dtype=np.int8)[[0, 1, 2, 3]])
    assert left is None


def test_as_many_inserts_cancel_as_there_are_deletes() -> None:
    assert net([7, 7, 7, 7, 7], pa.int64(), [1, -1, 1, -1, 1]) == [4]
    assert net([7, 7, 7], pa.int64(), [-1, 1, -1]) == [2]


@pytest.mark.parametrize("are_hashes_equal", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_random_rows_sum_up_as_before(
    seed: int, are_hashes_equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if are_hashes_equal:
        monkeypatch.setattr(equal_rows, "mix", lambda values: values % np.uint64(4))
    chance = random.Random(seed)
    rows = [
        (
            chance.randrange(3),
            chance.choice(["a", None]),
            chance.choice([0.0, -0.0, NAN]),
            chance.choice([-1, 1]),
        )
        for _ in range(200)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_pydict(
        {
            "x": columns[0],
            "y": pa.array(columns[1], pa.string()),
            "z": columns[2],
            SIGN: pa.array(columns[3], pa.int8()),
        }
    )
    left = cancel(batch)

    def add_up(found: pa.RecordBatch) -> Counter[Any]:
        total: Counter[Any] = Counter()
        for row in found.to_pylist():
            total[row["x"], row["y"], repr(abs(row["z"]))] += row[SIGN]
        return Counter({row: n for row, n in total.items() if n})

    assert add_up(left) == add_up(batch)
    assert left.num_rows == sum(map(abs, add_up(left).values()))


def test_counterparts_are_inserts_that_may_be_equal() -> None:
    tuples = pa.RecordBatch.from_pydict(
        {"x": [1, 2, 1, None], "y": [0.5, 0.5, 0.7, 0.5], SIGN: pa.array([1, 1, 1, -1], pa.int8())}
    )
    deletes = pa.RecordBatch.from_pydict(
        {"x": [1, None], "y": [0.5, 0.5], SIGN: pa.array([-1, -1], pa.int8())}
    )
    assert find_counterparts(tuples, deletes).tolist() == [0, 2]
