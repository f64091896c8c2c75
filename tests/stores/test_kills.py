"""Killed writers: a store has what it would have if nobody had killed them."""

import multiprocessing
import signal
import time
from pathlib import Path
from random import Random

import pytest

from tests.support import store_writer
from tests.support.stores import KINDS, read_ids
from thetastream.results.ledger import EpochTotals, Ledger
from thetastream.results.store import Store


def kill_often(store: Store, folder: Path, kills: int, seed: int) -> None:
    """Kill a writer at random moments, and compare what the store holds with a run that nobody kills."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.store_writer"])
    random, checkpoint = Random(seed), folder / "commits"
    store.describe(store_writer.HELD)
    n_killed = epochs = 0
    while n_killed < kills:
        # Each process has more to do than it has time.
        epochs += 200
        process = context.Process(target=store_writer.write, args=(store, str(checkpoint), epochs))
        before = checkpoint.read_text() if checkpoint.exists() else ""
        process.start()
        while not checkpoint.exists() or checkpoint.read_text() == before:
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.02))
        process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
        epochs = int(checkpoint.read_text()) + 1
    last = epochs + 5
    process = context.Process(target=store_writer.write, args=(store, str(checkpoint), last))
    process.start()
    process.join()
    assert process.exitcode == 0
    tasks = range(store_writer.TASKS)
    expected = [one for epoch in range(last) for task in tasks for one in store_writer.list_ids(epoch, task)]
    assert read_ids(store) == expected
    plain, ledger = [], Ledger()
    for epoch in range(last):
        totals = EpochTotals(epoch, store_writer.TASKS * store_writer.ROWS, 3 * epoch, 3 * epoch)
        ledger, snapshot = ledger.commit("q", totals, store_writer.RULE)
        plain += [] if snapshot is None else [snapshot]
    assert store.snapshots() == plain
    store.sweep()
    assert store.sweep() == 0
    assert read_ids(store) == expected


@pytest.mark.parametrize("empty", ["parquet"], indirect=True)
def test_a_killed_writer_adds_nothing_and_loses_nothing(empty: Store, tmp_path: Path) -> None:
    kill_often(empty, tmp_path, kills=4, seed=1)


@pytest.mark.databases
@pytest.mark.parametrize("empty", ["cassandra", "hbase"], indirect=True)
def test_a_killed_client_of_a_database_adds_nothing_and_loses_nothing(empty: Store, tmp_path: Path) -> None:
    kill_often(empty, tmp_path, kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_a_hundred_kills_change_nothing(empty: Store, tmp_path: Path) -> None:
    kill_often(empty, tmp_path, kills=100, seed=2)
