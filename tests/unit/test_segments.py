"""The cache of a durable store may lose any file at any time, because the state store has all segments."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta, describe
from thetastream.errors import StateError
from thetastream.index import IndexSpec, Scan, Sorted
from thetastream.spark.state import durable_store as segments
from thetastream.spark.state.durable_store import DurableStore, load, sweep


class Parts(dict):
    """The methods of Spark's MapState that a store uses."""

    def getValue(self, key):
        return self.get(key)

    def updateValue(self, key, value):
        self[key] = value

    def removeKey(self, key):
        self.pop(key, None)


KEY, TIME = Key("x", Domain.INT), Key("t", Domain.INT)
CONDITION = Condition(
    sides=(SideSpec("a", ("x", "t"), (), (KEY,), TIME), SideSpec("b", ("x", "t"), (), (KEY,), TIME)),
    dimensions=(Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, 1)),),
)
PLANS = {side: IndexPlan(CONDITION, side, IndexSpec(Sorted(), dimensions=(0,))) for side in Side}


def segment() -> tuple[SegmentMeta, Run]:
    batch = pa.RecordBatch.from_pydict({"x": [5, 3, 9, 1], "t": [10, 20, 30, 40]})
    run = build(PLANS[Side.LEFT], batch)
    return describe(Side.LEFT, 0, run), run


def rebuild(parts: Parts, root: Path, meta: SegmentMeta) -> Run:
    """Read a segment as a worker does that does not have it in memory."""
    return DurableStore(parts, PLANS, root).get(meta)


def assert_same(found: Run, expected: Run) -> None:
    assert found.payload.equals(expected.payload)
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.parametrize("name", ["payload.arrow", "rows.npy", "edges.npy", "offsets.npy"])
@pytest.mark.parametrize("left", [None, 0, 7, 0.5])
def test_torn_cache_is_rebuilt_and_repaired(tmp_path: Path, name: str, left: float | None) -> None:
    parts = Parts()
    meta, run = segment()
    DurableStore(parts, PLANS, tmp_path).put(meta, run)
    torn = tmp_path / meta.id / name
    if left is None:
        torn.unlink()
    else:
        whole = torn.read_bytes()
        torn.write_bytes(whole[: left if isinstance(left, int) else int(len(whole) * left)])
    assert_same(rebuild(parts, tmp_path, meta), run)
    assert_same(load(tmp_path / meta.id, PLANS[Side.LEFT]), run)


def test_a_run_arranged_for_another_index_is_rebuilt(tmp_path: Path) -> None:
    parts = Parts()
    meta, run = segment()
    DurableStore(parts, PLANS, tmp_path).put(meta, run)
    scanned = {side: IndexPlan(CONDITION, side, IndexSpec(Scan())) for side in Side}
    found = DurableStore(parts, scanned, tmp_path).get(meta)
    assert_same(found, build(scanned[Side.LEFT], run.payload))
    assert_same(load(tmp_path / meta.id, scanned[Side.LEFT]), found)


def test_attempts_of_one_epoch_do_not_depend_on_each_other(tmp_path: Path) -> None:
    """After an attempt drops a segment and fails, its state is rolled back, but the mapped file is
    deleted."""
    parts = Parts()
    meta, run = segment()
    DurableStore(parts, PLANS, tmp_path).put(meta, run)
    reader = DurableStore(parts, PLANS, tmp_path)
    mapped = reader.get(meta)
    failed = Parts(parts)
    DurableStore(failed, PLANS, tmp_path).drop(meta)
    assert not failed
    assert not (tmp_path / meta.id).exists()
    assert_same(mapped, run)
    assert_same(rebuild(parts, tmp_path, meta), run)


def test_full_disk_costs_only_the_cache(tmp_path: Path) -> None:
    parts = Parts()
    meta, run = segment()
    root = tmp_path / "file"
    root.write_text("not a folder")
    DurableStore(parts, PLANS, root).put(meta, run)
    assert_same(rebuild(parts, root, meta), run)


def test_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    meta, run = segment()

    def refusal(parts: Parts) -> str:
        with pytest.raises(StateError) as refused:
            rebuild(parts, tmp_path / "nothing", meta)
        return refused.value.condition

    parts = Parts()
    DurableStore(parts, PLANS, tmp_path).put(meta, run)
    (data,) = parts[meta.id, 0]
    assert refusal(Parts()) == "SEGMENT_MISSING"
    assert refusal(Parts({(meta.id, -1): parts[meta.id, -1]})) == "SEGMENT_MISSING"
    for damaged in (b"", data[:100], b"x" * 100):
        assert refusal(Parts(parts | {(meta.id, 0): (damaged,)})) == "SEGMENT_DAMAGED"
    for damaged in (b"", b"{}", b"[1]", b'{"parts": "x"}'):
        assert refusal(Parts(parts | {(meta.id, -1): (damaged,)})) == "SEGMENT_DAMAGED"


def test_orphans_are_swept(tmp_path: Path) -> None:
    live, orphan = segment(), segment()
    parts = Parts()
    for meta, run in (live, orphan):
        DurableStore(parts, PLANS, tmp_path).put(meta, run)
    (tmp_path / ".half.1234").mkdir()
    for path in [*tmp_path.glob("*")]:
        os.utime(path, (0, 0))
    load(tmp_path / live[0].id, PLANS[Side.LEFT])
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {live[0].id, ".swept"}
    # Another sweep does not follow at once.
    os.utime(tmp_path / live[0].id, (0, 0))
    sweep(tmp_path)
    assert (tmp_path / live[0].id).exists()
    os.utime(tmp_path / ".swept", (0, 0))
    sweep(tmp_path)
    assert not (tmp_path / live[0].id).exists()
    assert_same(rebuild(parts, tmp_path, live[0]), live[1])
    assert segments.STALE_S > segments.SWEEP_EVERY_S
