"""A thread looks after a store while a query writes into it."""

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.stores import HELD, fill, read_ids
from thetastream.core.errors import QueryError
from thetastream.results.snapshots import EACH_EPOCH
from thetastream.spark.sinks import upkeep
from thetastream.spark.sinks.upkeep import EVERY, FEWEST, StoreKeeper, check_upkeep
from thetastream.stores import ParquetStore


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    return store


def keep_until(store: ParquetStore, is_done: Any, keep: str | None = None) -> Any:
    """Let a keeper run beside a query until something holds, and end the query."""
    query: Any = SimpleNamespace(isActive=True)
    StoreKeeper(store, query, 0.01, keep).start()
    deadline = time.monotonic() + 60
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.01)
    query.isActive = False
    assert is_done()
    return query


def test_small_files_are_merged_while_the_query_runs(store: ParquetStore) -> None:
    fill(store, range(FEWEST - 1), EACH_EPOCH)
    files = store.files()
    StoreKeeper(store, cast(Any, SimpleNamespace(isActive=True)), 600, None).look_after()
    assert store.files() == files
    before = read_ids(store)
    fill(store, range(FEWEST - 1, 2 * FEWEST), EACH_EPOCH)
    keep_until(store, lambda: len(store.files()) <= 2)
    assert read_ids(store)[: len(before)] == before


def test_old_results_are_forgotten_while_the_query_runs(store: ParquetStore) -> None:
    fill(store, range(12), EACH_EPOCH)
    keep_until(store, lambda: len(store.snapshots()) == 5, keep="4 minutes")
    assert min(read_ids(store)) == 7


def test_an_error_is_logged_and_the_next_turn_comes(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, range(12), EACH_EPOCH)
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        raise OSError("the disk is full\nand more")

    monkeypatch.setattr(ParquetStore, "upkeep", fail)
    monkeypatch.setattr(upkeep.LOG, "propagate", True)
    keep_until(store, lambda: len(calls) > 1, keep="4 minutes")
    assert f"{store.name} was not looked after: the disk is full" in caplog.messages


@pytest.mark.parametrize(
    ("keep", "every", "expected"),
    [
        (
            None,
            "often",
            r"BAD_VALUE\] upkeep must be a positive span of time, as in",
        ),
        (None, 60, 'a number has no unit, so write "60 seconds"'),
        (None, True, "not True"),
        (None, timedelta(0), "BAD_VALUE"),
        ("soon", EVERY, r"INVALID_DURATION\] keep \('soon'\)"),
        ("30 days", False, "keep='30 days' needs upkeep"),
    ],
)
def test_what_is_no_upkeep(keep: Any, every: Any, expected: str) -> None:
    with pytest.raises(QueryError, match=expected):
        check_upkeep(keep, every)
