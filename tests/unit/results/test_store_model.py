"""Whatever happens to a store, its answers are those of a list: random commits, replays, attempts that fail,
merges, forgetting, sweeping and new readers."""

import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from tests.support.stores import HELD, make_rows
from thetastream.results import history, version_log
from thetastream.results.ledger import EpochTotals, Ledger
from thetastream.results.snapshots import Snapshot, Snapshots
from thetastream.results.staged import Origin
from thetastream.stores import DeltaStore, ParquetStore

RULES = [Snapshots(size=1), Snapshots(size=5), Snapshots(every="3 minutes", size=4, delays=1)]
EPOCH = st.tuples(st.just("epoch"), st.lists(st.integers(0, 59), max_size=4))
STEP = st.one_of(
    EPOCH,
    EPOCH,
    EPOCH,
    st.tuples(st.just("replay"), st.none()),
    st.tuples(st.just("fail"), st.lists(st.integers(0, 59), min_size=1, max_size=2)),
    st.tuples(st.just("compact"), st.sampled_from([4000, 10_000, 1 << 27])),
    st.tuples(st.just("forget"), st.integers(0, 3)),
    st.tuples(st.just("sweep"), st.sampled_from([0, 3600])),
    st.tuples(st.just("new reader"), st.none()),
)


class Model:
    """What a store should hold, as lists."""

    def __init__(self, rule: Snapshots) -> None:
        self.rule, self.ledger = rule, Ledger()
        self.epochs: list[list[int]] = []
        self.snapshots: list[Snapshot] = []
        self.first_epoch = 0

    def commit(self, ids: list[int]) -> None:
        times = [start_us(one) for one in ids]
        totals = EpochTotals(len(self.epochs), len(ids), min(times, default=None), max(times, default=None))
        self.ledger, snapshot = self.ledger.commit("q", totals, self.rule)
        self.epochs.append(ids)
        self.snapshots += [] if snapshot is None else [snapshot]

    def rows(self, until: Snapshot | None = None) -> list[int]:
        end = len(self.epochs) if until is None else until.epochs[1] + 1
        return sorted(one for ids in self.epochs[self.first_epoch : end] for one in ids)


def start_us(number: int) -> int:
    return int(make_rows(number)["result_time"].cast("int64")[0].as_py())


def write(store: ParquetStore, epoch: int, ids: list[int]) -> list[Any]:
    staged = []
    for task, part in enumerate((ids[::2], ids[1::2])):
        opened = store.open_stage(Origin("q", epoch, str(task)), HELD)
        for one in part:
            opened.add(make_rows(one))
        closed = opened.close()
        staged += [] if closed is None else [closed]
    return staged


def check(store: ParquetStore, model: Model) -> None:
    assert sorted(store.read()["id"].to_pylist()) == model.rows()
    assert store.snapshots() == model.snapshots
    for snapshot in model.snapshots[-2:]:
        assert sorted(store.read(snapshot)["id"].to_pylist()) == model.rows(snapshot)
        alone = [one for ids in model.epochs[snapshot.epochs[0] : snapshot.epochs[1] + 1] for one in ids]
        assert sorted(store.read_snapshot(snapshot)["id"].to_pylist()) == sorted(alone)
    by_key = [one for one in model.rows() if one % 3 == 1]
    assert sorted(store.read(key={"a.symbol": "s1"})["id"].to_pylist()) == by_key


def run(store: ParquetStore, rule: Snapshots, steps: list[tuple[str, Any]]) -> None:
    model = Model(rule)
    store.describe(HELD)
    for kind, value in steps:
        if kind == "epoch":
            epoch = len(model.epochs)
            assert store.commit("q", epoch, write(store, epoch, value), rule)
            model.commit(value)
        elif kind == "replay" and model.epochs:
            epoch = len(model.epochs) - 1
            assert not store.commit("q", epoch, write(store, epoch, model.epochs[-1]), rule)
        elif kind == "fail":
            write(store, len(model.epochs), value)
        elif kind == "compact":
            store.compact(value)
        elif kind == "forget" and model.snapshots:
            kept = model.snapshots[min(value, len(model.snapshots) - 1)]
            forgotten = store.forget(kept)
            assert forgotten == model.snapshots.index(kept)
            model.snapshots = model.snapshots[forgotten:]
            model.first_epoch = model.snapshots[0].epochs[0]
        elif kind == "sweep":
            store.sweep(value)
        elif kind == "new reader":
            history._KNOWN.clear()
            version_log._NEWEST.clear()
        check(store, model)
    if isinstance(store, DeltaStore):
        table = store.open_table().to_pyarrow_table() if store.files() else make_rows()
        assert Counter(table["id"].to_pylist()) == Counter(model.rows())


@draw_cases(40)
@given(st.sampled_from(RULES), st.lists(STEP, max_size=14))
def test_a_store_answers_as_a_list_does(rule: Snapshots, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(ParquetStore(folder), rule, steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ParquetStore, DeltaStore])
def test_a_store_answers_as_a_list_does_for_long(kind: type[ParquetStore]) -> None:
    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(RULES), st.lists(STEP, max_size=30))
    def search(rule: Snapshots, steps: list[tuple[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(kind(folder), rule, steps)

    search()
