"""The cache of a durable store may lose any file at any time, because the state store has all segments."""

import contextlib
import os
import struct
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.file_faults import limit_files
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import StateError
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta, describe
from thetastream.index import IndexSpec, Scan, Sorted
from thetastream.index.measures import REGISTRY as MEASURES
from thetastream.runtime.state import durable_store, segment_cache
from thetastream.runtime.state.durable_store import DurableStore
from thetastream.runtime.state.segment_cache import CheckedFiles, KeptRuns, compute_seal, load, sweep


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


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files, not the runs that this process keeps."""
    monkeypatch.setattr(segment_cache, "KEPT_BYTES", 0)


def write(parts: Parts, root: Path, meta: SegmentMeta, run: Run) -> SegmentMeta:
    """Put a segment and write it, as a worker does in one epoch."""
    store = DurableStore(parts, PLANS, root)
    store.put(meta, run)
    return replace(meta, durable_bytes=store.write(meta))


def segment() -> tuple[SegmentMeta, Run]:
    batch = pa.RecordBatch.from_pydict({"x": [5, 3, 9, 1], "t": [10, 20, 30, 40]})
    run = build(PLANS[Side.LEFT], batch)
    return describe(Side.LEFT, 0, run), run


def write_one(root: Path) -> tuple[Parts, SegmentMeta, Run]:
    """Put and write one segment; return the state store that has it, its metadata and its run."""
    parts = Parts()
    meta, run = segment()
    return parts, write(parts, root, meta, run), run


def rebuild(parts: Parts, root: Path, meta: SegmentMeta) -> Run:
    """Read a segment as a worker does that does not have it in memory."""
    return DurableStore(parts, PLANS, root).get(meta)


def assert_same(found: Run, expected: Run) -> None:
    assert found.payload.equals(expected.payload)
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.parametrize("mapped_bytes", [0, 1 << 18])
@pytest.mark.parametrize("left", [None, 0, 7, 30, 0.5, 0.9])
def test_torn_cache_is_rebuilt_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int, left: float | None
) -> None:
    monkeypatch.setattr(segment_cache, "MAPPED_BYTES", mapped_bytes)
    parts, meta, run = write_one(tmp_path)
    torn = tmp_path / meta.id
    if left is None:
        torn.unlink()
    else:
        whole = torn.read_bytes()
        torn.write_bytes(whole[: left if isinstance(left, int) else int(len(whole) * left)])
        with pytest.raises((OSError, EOFError, ValueError, struct.error)):
            load(torn, PLANS[Side.LEFT])
    assert_same(rebuild(parts, tmp_path, meta), run)
    assert_same(load(tmp_path / meta.id, PLANS[Side.LEFT]), run)


@pytest.mark.parametrize("mapped_bytes", [0, 1 << 18])
def test_a_cached_file_may_end_at_any_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int
) -> None:
    """One of the ends lies between the schema of the payload and its only block."""
    monkeypatch.setattr(segment_cache, "MAPPED_BYTES", mapped_bytes)
    parts, meta, run = write_one(tmp_path)
    torn = tmp_path / meta.id
    whole = torn.read_bytes()
    for end in range(len(whole)):
        torn.unlink()
        torn.write_bytes(whole[:end])
        assert_same(rebuild(parts, tmp_path, meta), run)


@pytest.mark.parametrize("mapped_bytes", [0, 1 << 18])
def test_each_flipped_bit_of_a_cached_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int
) -> None:
    monkeypatch.setattr(segment_cache, "MAPPED_BYTES", mapped_bytes)
    parts, meta, run = write_one(tmp_path)
    path = tmp_path / meta.id
    whole = path.read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        path.unlink()
        path.write_bytes(flipped)
        monkeypatch.setattr(segment_cache, "_CHECKED", CheckedFiles())  # another process reads the file
        with pytest.raises(ValueError, match="seal"):
            load(path, PLANS[Side.LEFT])
    assert_same(rebuild(parts, tmp_path, meta), run)
    assert_same(load(path, PLANS[Side.LEFT]), run)


@pytest.mark.parametrize("nbytes", [8, 64, 512, 4096])
def test_pieces_of_a_cached_file_that_change_places_are_found(nbytes: int) -> None:
    """The seal was a sum of all words, so exchanged pages had the same seal."""
    data = np.random.default_rng(1).bytes(3 * 4096 + 64)
    seal = compute_seal("segment", memoryview(data))
    pieces = [data[at : at + nbytes] for at in range(0, len(data), nbytes)]
    for other in range(1, len(pieces) - 1):
        moved = pieces.copy()
        moved[0], moved[other] = moved[other], moved[0]
        assert compute_seal("segment", memoryview(b"".join(moved))) != seal
    assert compute_seal("other", memoryview(data)) != seal


def test_a_cached_file_with_a_seal_of_an_earlier_version_is_rebuilt(tmp_path: Path) -> None:
    parts, meta, run = write_one(tmp_path)
    path = tmp_path / meta.id
    words = np.frombuffer(path.read_bytes(), np.uint64).copy()
    words[-1] = words[:-1].sum(dtype=np.uint64)
    path.unlink()
    path.write_bytes(words.tobytes())
    with pytest.raises(ValueError, match="seal"):
        CheckedFiles().check(path, memoryview(path.read_bytes()))
    assert_same(rebuild(parts, tmp_path, meta), run)


def test_a_stored_segment_that_ends_at_any_byte_is_whole_or_damaged(tmp_path: Path) -> None:
    parts, meta, run = write_one(tmp_path)
    (whole,) = parts[meta.id, 0]
    n_whole = 0
    for end in range(len(whole) + 1):
        parts[meta.id, 0] = (whole[:end],)
        with contextlib.suppress(StateError):
            assert_same(rebuild(parts, tmp_path / str(end), meta), run)
            n_whole += 1
    assert 0 < n_whole < 10  # the mark at the end of a stream may be missing


def test_a_folder_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    parts, meta, run = write_one(tmp_path)
    (tmp_path / meta.id).unlink()
    (tmp_path / meta.id / "more").mkdir(parents=True)
    assert_same(rebuild(parts, tmp_path, meta), run)
    assert_same(load(tmp_path / meta.id, PLANS[Side.LEFT]), run)


def test_what_is_dropped_in_its_first_epoch_is_never_written(tmp_path: Path) -> None:
    parts = Parts()
    meta, run = segment()
    store = DurableStore(parts, PLANS, tmp_path)
    store.put(meta, run)
    assert store.get(meta) is run
    store.drop(meta)
    assert not parts
    assert not list(tmp_path.iterdir())


def test_a_small_segment_is_one_value_and_a_large_one_has_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, meta, run = write_one(tmp_path)
    assert list(parts) == [(meta.id, 0)]
    monkeypatch.setattr(durable_store, "PART_BYTES", 100)
    large = replace(meta, id="large")
    large = write(parts, tmp_path, large, run)
    assert len(parts) == 2 + large.durable_bytes // 100
    assert_same(rebuild(parts, tmp_path / "elsewhere", large), run)
    DurableStore(parts, PLANS, tmp_path).drop(large)
    assert list(parts) == [(meta.id, 0)]


def test_small_runs_are_kept_in_memory_by_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = segment()
    monkeypatch.setattr(segment_cache, "KEPT_BYTES", 2 * run.nbytes)
    kept = KeptRuns()
    paths = [tmp_path / name for name in "abc"]
    for path in paths[:2]:
        kept.put(path, "layout", run)
    assert kept.get(paths[0], "layout") is run
    assert kept.get(paths[0], "another layout") is None
    kept.put(paths[2], "layout", run)
    assert [kept.get(path, "layout") for path in paths] == [run, None, run]
    kept.pop(paths[0])
    assert kept.get(paths[0], "layout") is None


def test_a_kept_run_may_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measure derives arrays when a run is probed for the first time."""
    vectors = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32()))
    payload = pa.RecordBatch.from_pydict({"x": [5, 3, 9], "t": [10, 20, 30], "v": vectors})
    runs = [build(PLANS[Side.LEFT], payload) for _ in range(2)]
    before = runs[0].nbytes
    monkeypatch.setattr(segment_cache, "KEPT_BYTES", 2 * before)
    kept = KeptRuns()
    for name, run in zip("ab", runs, strict=True):
        kept.put(tmp_path / name, "layout", run)
    runs[1].facts.derive(MEASURES["vector_l2_distance"], "v")
    assert runs[1].nbytes > before
    assert kept.get(tmp_path / "b", "layout") is runs[1]
    assert kept.get(tmp_path / "a", "layout") is None
    kept.pop(tmp_path / "b")
    kept.put(tmp_path / "a", "layout", runs[0])
    kept.put(tmp_path / "c", "layout", runs[0])
    assert kept.get(tmp_path / "a", "layout") is runs[0]


def test_a_run_arranged_for_another_index_is_rebuilt(tmp_path: Path) -> None:
    parts, meta, run = write_one(tmp_path)
    scanned = {side: IndexPlan(CONDITION, side, IndexSpec(Scan())) for side in Side}
    found = DurableStore(parts, scanned, tmp_path).get(meta)
    assert_same(found, build(scanned[Side.LEFT], run.payload))
    assert_same(load(tmp_path / meta.id, scanned[Side.LEFT]), found)


def test_attempts_of_one_epoch_do_not_depend_on_each_other(tmp_path: Path) -> None:
    """After an attempt drops a segment and fails, its state is rolled back, but the mapped file is
    deleted."""
    parts, meta, run = write_one(tmp_path)
    reader = DurableStore(parts, PLANS, tmp_path)
    mapped = reader.get(meta)
    failed = Parts(parts)
    DurableStore(failed, PLANS, tmp_path).drop(meta)
    assert not failed
    assert not (tmp_path / meta.id).exists()
    assert_same(mapped, run)
    assert_same(rebuild(parts, tmp_path, meta), run)


def test_a_full_disk_costs_only_the_cache_and_is_said_once(tmp_path: Path) -> None:
    meta, run = segment()
    (tmp_path / "file").write_text("not a folder")
    for root in (tmp_path / "file", tmp_path / "full"):
        parts = Parts()
        with limit_files(10), pytest.warns(UserWarning, match=f"cache folder {root}.*stay exact.*make room"):
            write(parts, root, meta, run)
        with limit_files(10), warnings.catch_warnings(action="error"):
            assert_same(rebuild(parts, root, meta), run)


def test_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    meta, run = segment()

    def refusal(parts: Parts) -> str:
        with pytest.raises(StateError) as refused:
            rebuild(parts, tmp_path / "nothing", meta)
        return refused.value.condition

    parts = Parts()
    write(parts, tmp_path, meta, run)
    (data,) = parts[meta.id, 0]
    assert refusal(Parts()) == "SEGMENT_MISSING"
    for n_parts, condition in ((2, "SEGMENT_MISSING"), (0, "SEGMENT_DAMAGED"), (1 << 30, "SEGMENT_DAMAGED")):
        damaged = n_parts.to_bytes(4, "little") + data[4:]
        assert refusal(Parts({(meta.id, 0): (damaged,)})) == condition
    for damaged in (b"", data[:2], data[:4], data[:100], b"x" * 100):
        assert refusal(Parts({(meta.id, 0): (damaged,)})) == "SEGMENT_DAMAGED"


def test_orphans_are_swept(tmp_path: Path) -> None:
    live, orphan = segment(), segment()
    parts = Parts()
    for meta, run in (live, orphan):
        write(parts, tmp_path, meta, run)
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
    assert segment_cache.STALE_S > segment_cache.SWEEP_EVERY_S
