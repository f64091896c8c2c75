"""A question by the value of a key reads only the files that have it."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.stores import commit_rows, read_ids
from thetastream.results import recent
from thetastream.results.description import Description
from thetastream.results.recent import Recent
from thetastream.stores import ParquetStore, parquet

EPOCHS, ROWS = 8, 30


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParquetStore:
    """A store whose files all have the same least and greatest value of each key."""
    monkeypatch.setattr(parquet, "KEY_VALUES", Recent())
    store = ParquetStore(str(tmp_path / "store"))
    for epoch in range(EPOCHS):
        numbers = [0, *range(1 + epoch, EPOCHS * ROWS, EPOCHS), EPOCHS * ROWS]
        columns = {
            "id": numbers,
            "a": [{"name": f"n{number:03}"} for number in numbers],
            "day": [date.fromordinal(1 + number) for number in numbers],
            "x": [None if number % 3 else float(number) for number in numbers],
        }
        rows = pa.RecordBatch.from_pydict(columns)
        held = Description(rows.schema, None, ("id", "a.name", "day", "x"))
        store.describe(held)
        commit_rows(store, epoch, held, rows, clock_us=epoch)
    return store


def count_files(store: ParquetStore, monkeypatch: pytest.MonkeyPatch, key: dict[str, Any]) -> int:
    """Count the files that a question opens for their rows."""
    opened: list[int] = []
    split = parquet.split_recent
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "split_recent", lambda staged: opened.append(len(staged)) or split(staged))
        store.read(key=key)
    (n,) = opened
    return n


@pytest.mark.parametrize("is_compact", [False, True])
def test_only_files_with_the_value_are_read(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, is_compact: bool
) -> None:
    if is_compact:
        assert store.compact() == EPOCHS
    asked: list[tuple[dict[str, Any], list[int], int]] = [
        ({"id": 5}, [5], 1),
        ({"a.name": "n005"}, [5], 1),
        ({"day": date.fromordinal(6)}, [5], 1),
        ({"id": 5, "a.name": "n005"}, [5], 1),
        ({"id": 5, "a.name": "n006"}, [], 0),
        ({"id": 0}, [0] * EPOCHS, EPOCHS),
        ({"a.name": "nobody"}, [], 0),
        ({"x": 6.0}, [6], EPOCHS),  # Values of floating point are not looked up.
        ({"id": (5, 6)}, [5, 6], EPOCHS),
    ]
    for key, ids, n_files in asked:
        assert read_ids(store, key=key) == ids
        assert count_files(store, monkeypatch, key) == n_files, key


def test_values_that_find_no_room_are_not_looked_up(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "LOOKUP_CAPACITY", 3 * 8 * (ROWS + 2))
    assert read_ids(store, key={"id": 5}) == [5]
    # The three newest files are known not to have it.
    assert count_files(store, monkeypatch, {"id": 5}) == EPOCHS - 3
    monkeypatch.setattr(recent, "LARGEST", 8 * ROWS)
    assert count_files(store, monkeypatch, {"id": 5}) == EPOCHS
