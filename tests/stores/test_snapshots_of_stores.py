"""Snapshots of a store: which rows they have, and how they are found."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.service import connect
from tests.support.stores import HELD, SCHEMA, commit_rows, make_rows, read_ids, stage
from thetastream.core.errors import QueryError
from thetastream.results.description import Description
from thetastream.results.snapshots import EACH_EPOCH, Snapshot, Snapshots
from thetastream.results.store import Store
from thetastream.stores import ParquetStore

MINUTE = 60_000_000
"""A minute in microseconds."""


def test_snapshots_are_read_by_number_and_by_time(store: Store) -> None:
    rule = Snapshots(every="2 minutes", size=5)
    for epoch, numbers in enumerate([(0,), (1,), (2,), (3, 3, 3, 3, 3), (3,), (7,), (7,)]):
        store.commit("q", epoch, stage(store, epoch, *numbers), rule)
    listed = [(one.number, one.at.minute, one.epochs, one.rows, one.reason) for one in store.snapshots()]
    assert listed == [(1, 2, (0, 2), 3, "every"), (2, 3, (3, 3), 5, "size"), (3, 6, (4, 5), 2, "every")]
    assert store.snapshots(after=2) == store.snapshots()[2:]
    assert [read_ids(store, snapshot=n) for n in (1, 2, 3)] == [
        [0, 1, 2],
        [0, 1, 2, *[3] * 5],
        [0, 1, 2, *[3] * 6, 7],
    ]
    assert read_ids(store) == [*read_ids(store, snapshot=3), 7]
    assert read_ids(store, snapshot="2026-01-05 09:05") == read_ids(store, snapshot=store.snapshots()[1])
    assert [sorted(store.read_snapshot(n)["id"].to_pylist()) for n in (1, 3)] == [[0, 1, 2], [3, 7]]
    assert read_ids(store, snapshot=3, since="2026-01-05 09:03", key={"id": 3}) == [3] * 6
    for unknown in (0, 4, "2026-01-05 09:01"):
        with pytest.raises(QueryError, match="UNKNOWN_SNAPSHOT"):
            store.read(snapshot=unknown)


def test_snapshots_are_found_by_their_time_in_any_century(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    for epoch, year in enumerate((1, 1969, 2026, 2300, 9999)):
        time = datetime(year, 12, 31, 23, 59, 59, 999_999, UTC)
        row = {"id": epoch, "result_time": time}
        commit_rows(store, epoch, HELD, pa.RecordBatch.from_pylist([row], schema=SCHEMA))
        snapshot = store.snapshots()[-1]
        assert snapshot.at == time
        assert store.read(snapshot=time).num_rows == epoch + 1


def test_a_time_that_python_does_not_have_hides_no_snapshot(tmp_path: Path) -> None:
    """Milliseconds that were taken for seconds give a year such as 57983."""
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    times_us = [5, 1_767_603_000_000 * 1_000_000, -(2**62)]
    for epoch, at_us in enumerate(times_us):
        row = {"id": epoch, "result_time": at_us}
        commit_rows(store, epoch, HELD, pa.RecordBatch.from_pylist([row], schema=SCHEMA))
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    found = store.snapshots()
    assert [(one.at_us, one.at) for one in found[1:]] == [(times_us[1], last)] * 2
    assert found[0].at == datetime(1970, 1, 1, 0, 0, 0, 5, UTC)
    first = Snapshot(1, -(2**62), None, None, (0, 0), 0, "every", "q")
    assert first.at == datetime.min.replace(tzinfo=UTC)
    with connect(store) as client:
        (*_, answer) = client.get("/stores/pairs/snapshots").json()
        assert answer["at"] == "9999-12-31T23:59:59.999999+00:00"


def test_snapshots_follow_the_time_of_results_and_no_clock(tmp_path: Path) -> None:
    found = []
    for name, clocks in (("live", range(8)), ("lagging", range(10**15, 10**15 + 8))):
        store = ParquetStore(str(tmp_path / name))
        store.describe(HELD)
        for epoch, clock_us in enumerate(clocks):
            store.commit("q", epoch, stage(store, epoch, epoch), Snapshots(every="3 minutes"), clock_us)
        found.append(store.snapshots())
    assert found[0] == found[1]
    assert [(one.at.minute, one.rows) for one in found[0]] == [(3, 4), (6, 3)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (EACH_EPOCH, [(n, 1) for n in (0, 1, *[9 * MINUTE] * 3, 10 * MINUTE)]),
        (Snapshots(size=2), [(1, 2), (9 * MINUTE, 2), (10 * MINUTE, 2)]),
        (Snapshots(every="1 minute"), [(10 * MINUTE, 6)]),
        (Snapshots(every="1 minute", size=3), [(9 * MINUTE, 3), (10 * MINUTE, 3)]),
    ],
)
def test_rows_whose_time_is_null_are_in_a_snapshot(
    tmp_path: Path, rule: Snapshots, expected: list[tuple[int, int]]
) -> None:
    store, held = ParquetStore(str(tmp_path)), Description(SCHEMA, "result_time")
    store.describe(held)
    for epoch, time in enumerate([None, None, 9 * MINUTE, None, 8 * MINUTE, 10 * MINUTE]):
        rows = pa.RecordBatch.from_pylist([{"id": epoch, "result_time": time}], schema=SCHEMA)
        commit_rows(store, epoch, held, rows, rule, clock_us=epoch)
    assert [(one.at_us, one.rows) for one in store.snapshots()] == expected


def test_results_without_a_time_follow_the_clock(tmp_path: Path) -> None:
    store, held = ParquetStore(str(tmp_path)), Description(SCHEMA)
    store.describe(held)
    for epoch in range(8):
        commit_rows(store, epoch, held, make_rows(9), Snapshots(every="3 us"), clock_us=epoch)
    assert [(one.at_us, one.rows) for one in store.snapshots()] == [(3, 4), (6, 3)]
    with pytest.raises(QueryError, match="NO_TIME_COLUMN"):
        store.read(since="2026-01-05")
