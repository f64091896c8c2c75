"""Results are read by time and by key, and values are compared as in Spark."""

import json
import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.stores import KINDS, SCHEMA, START, commit_rows, read_ids, stage
from thetastream.core.errors import QueryError
from thetastream.results.description import Description
from thetastream.results.store import Store
from thetastream.service.statement_worker import JSON, encode_table


def test_results_are_read_by_time_and_by_key(store: Store) -> None:
    for epoch in range(6):
        store.commit("q", epoch, stage(store, epoch, 2 * epoch, 2 * epoch + 1))
    everything = list(range(12))
    assert read_ids(store) == everything
    assert read_ids(store, since="2026-01-05 09:07") == everything[7:]
    assert read_ids(store, until=START.replace(minute=7)) == everything[:7]
    assert read_ids(store, since="2026-01-05T10:03+01:00", until="2026-01-05 09:05") == [3, 4]
    assert read_ids(store, key={"a.symbol": "s1"}) == [1, 4, 7, 10]
    assert read_ids(store, key={"id": (3, 8), "a.symbol": "s1"}) == [4, 7]
    assert read_ids(store, key={"id": (None, 2)}, since="2026-01-05 09:01") == [1, 2]
    assert store.read(key={"id": 4}).schema.equals(SCHEMA)


@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        ({"key": {"ts": 1}}, "STORE_KEY"),
        ({"since": "soon"}, "BAD_VALUE"),
        ({"since": "0001-01-01T00:00:00+23:59"}, "BAD_VALUE"),
        ({"until": "9999-12-31T23:59:59-23:59"}, "BAD_VALUE"),
        ({"key": {"id": "x"}}, "BAD_VALUE"),
        ({"key": {"id": None}}, "BAD_VALUE"),
        ({"key": {"id": 1.5}}, "BAD_VALUE"),
        ({"key": {"id": 1 << 70}}, "BAD_VALUE"),
        ({"key": {"a.symbol": "\ud800"}}, "BAD_VALUE"),
        ({"key": ["id"]}, "BAD_VALUE"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(
    store: Store, asked: dict[str, object], condition: str
) -> None:
    with pytest.raises(QueryError) as error:
        store.read(**asked)  # type: ignore[arg-type]
    assert error.value.condition == condition


@pytest.mark.parametrize("per_epoch", [1, 8])
@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_keys_are_compared_as_in_spark(empty: Store, per_epoch: int) -> None:
    """NaN is equal to itself and greater than all numbers, -0.0 is 0.0, and NULL lies in no range."""
    nan, inf = float("nan"), float("inf")
    columns = {
        "id": pa.array(range(8), pa.int64()),
        "x": pa.array([1.0, nan, -0.0, 0.0, None, inf, -inf, 7.5]),
        "n": pa.array([2**53 + 1, 2**63 - 1, -(2**63), None, 2**53, 0, 1, 2], pa.int64()),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    held = Description(rows.schema, None, ("x", "n"))
    empty.describe(held)
    for epoch in range(8 // per_epoch):
        commit_rows(empty, epoch, held, rows.slice(epoch * per_epoch, per_epoch))
    asked = {(5.0, None): [1, 5, 7], (None, 0.0): [2, 3, 6], (nan, None): [1], (2.0, nan): [1, 5, 7]}
    for key, wanted in {**asked, (None, nan): [0, 1, 2, 3, 5, 6, 7], nan: [1], 0.0: [2, 3]}.items():
        assert read_ids(empty, key={"x": key}) == wanted, key
    for key, wanted in {2**53 + 1: [0], (2**53, None): [0, 1, 4], (None, 0): [2, 5]}.items():
        assert read_ids(empty, key={"n": key}) == wanted, key


@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_a_field_of_any_type_is_a_key(empty: Store) -> None:
    """The first value of each field is less than the second one. The third row has no struct."""
    moment = START.replace(year=1969, microsecond=1)
    pairs: dict[str, tuple[pa.DataType, object, object]] = {
        "raw": (pa.binary(), b"a\x00", b"a\xff"),
        "price": (pa.decimal128(10, 2), Decimal("-1.50"), Decimal("1.50")),
        "day": (pa.date32(), date(1, 1, 1), date(1970, 1, 1)),
        "at": (pa.timestamp("us", "UTC"), moment, moment.replace(microsecond=2)),
        "local": (pa.timestamp("us"), moment.replace(tzinfo=None), START.replace(tzinfo=None)),
        "x": (pa.float64(), -0.0, math.nan),
        "n": (pa.int64(), 2**53, 2**53 + 1),
        "ok": (pa.bool_(), False, True),
        "s": (pa.string(), "it's\n\\.\n", 'say "x"'),
    }
    kind = pa.struct([(name, one[0]) for name, one in pairs.items()])
    inner = [{name: one[1 + row] for name, one in pairs.items()} for row in range(2)]
    columns = {"id": pa.array([1, 2, 3]), "a": pa.array([*inner, None], kind)}
    rows = pa.RecordBatch.from_pydict(columns)
    held = Description(rows.schema, None, tuple(f"a.{name}" for name in pairs))
    empty.describe(held)
    commit_rows(empty, 0, held, rows)
    assert repr(empty.read().sort_by("id").to_pylist()) == repr(rows.to_pylist())
    for name, (_, low, high) in pairs.items():
        asked = {low: [1], high: [2], (low, None): [1, 2], (None, low): [1], (high, None): [2]}
        for key, wanted in asked.items():
            assert read_ids(empty, key={f"a.{name}": key}) == wanted, (name, key)


@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_a_key_may_be_given_as_json_writes_it(empty: Store) -> None:
    columns = {
        "id": pa.array([1, 2, 3]),
        "day": pa.array([date(2026, 1, 5), date(2026, 1, 6), None]),
        "price": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "x": pa.array([math.nan, -math.inf, 7.5]),
        "at": pa.array([START, START.replace(hour=10), None], pa.timestamp("us", "UTC")),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    held = Description(rows.schema, None, tuple(columns))
    empty.describe(held)
    commit_rows(empty, 0, held, rows)
    (first, second, _) = json.loads(encode_table(pa.Table.from_batches([rows]), JSON))
    for name in columns:
        assert read_ids(empty, key={name: first[name]}) == [1], name
        assert read_ids(empty, key={name: second[name]}) == [2], name
    for name, text in {"day": "soon", "price": "much", "raw": "?", "x": "x"}.items():
        with pytest.raises(QueryError, match=f"BAD_VALUE.*{name}"):
            empty.read(key={name: text})
