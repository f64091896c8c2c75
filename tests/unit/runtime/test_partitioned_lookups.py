"""Tuples are divided among tasks that open few runs of a table, and the results are those of one task."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.engine.test_lookup import expect, make_block, plan
from thetastream.core.columns import PARTITION
from thetastream.core.keys import HIGHEST, LOWEST
from thetastream.core.sides import Side
from thetastream.engine.table_partitions import Extents, Partitioning, RunExtent
from thetastream.runtime import opened_table
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.lookup_steps import LookupFlow, make_lookup_step, make_partition_step
from thetastream.runtime.opened_table import name_layout
from thetastream.runtime.state import segment_cache
from thetastream.runtime.table_epochs import StagedTable
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_staging import make_staging_step
from thetastream.runtime.table_versions import Version
from thetastream.runtime.task_facts import TaskFacts

BAND, EQUALITY = "a.k >= b.k AND a.k < b.x", "a.k = b.k AND a.x > b.x"
OVERLAP = "a.k BETWEEN b.k AND b.x AND a.x > 3"
STREAM = [*((n, n * 37 % 400, n * 5 % 11) for n in range(300)), (300, None, 3), (301, 4, None)]
NARROW = [(n, n, n + n % 3) for n in range(400)]
TABLES = {
    "narrow": NARROW,
    "one row covers all": [*NARROW, (400, 0, 399)],
    "one key in most rows": [*((n, 7, n % 10) for n in range(300)), *NARROW[300:]],
    "without rows": [],
}
PARTITIONS = 6


def stage(
    folder: TableFolder, flow: LookupFlow, rows: list[tuple[int, int, int]], number: int = 1
) -> Version:
    """Stage rows as runs of 20 rows each, in the order of the key."""
    lookup, ordered = flow.lookup.plan, sorted(rows, key=lambda row: (row[1], row[0]))
    step, found = make_staging_step(folder, lookup, TaskFacts), list[dict[str, Any]]()
    for start in range(0, len(ordered), 20):
        block = make_block(flow.sides[Side.RIGHT], ordered[start : start + 20], True)
        found += [row for batch in step([block]) for row in batch.to_pylist()]
    runs = tuple(row["run"] for row in found)
    extents = tuple(RunExtent(row["nbytes"], tuple(map(tuple, row["bounds"]))) for row in found)
    nbytes = sum(row["nbytes"] for row in found)
    return Version(number, runs, len(rows), nbytes, 0.0, None, extents, name_layout(lookup))


def divide(folder: TableFolder, flow: LookupFlow, staged: StagedTable, task: TaskFacts) -> dict[Any, Any]:
    """Divide the tuples of the stream; return those of each partition."""
    block = make_block(flow.sides[Side.LEFT], STREAM, False)
    step = make_partition_step(flow, folder, staged, read_task=lambda: task)
    (divided,) = step([block])
    places = divided.column(PARTITION)
    return {
        number: block.filter(pa.array([place == number for place in places.to_pylist()]))
        for number in sorted(set(places.to_pylist()), key=str)
    }


def look_up(
    folder: TableFolder, flow: LookupFlow, staged: StagedTable, tuples: pa.RecordBatch, task: TaskFacts
) -> tuple[Counter[Any], int]:
    """Look tuples up in a process of their own; return results, and the bytes of the runs it has used."""
    opened_table._OPENED.clear()
    segment_cache._KEPT.clear()
    table = make_block(flow.sides[Side.RIGHT], [], True)
    payload = pa.schema([table.schema.field(one.block_column) for one in flow.sides[Side.RIGHT].carried])
    left = [tuples.schema.field(one.block_column) for one in flow.sides[Side.LEFT].carried]
    how = flow.lookup.how
    right = [*payload, *([pa.field("present", pa.bool_())] if how.padded else [])] if how.has_pairs else []
    results = pa.schema([*left, *right, pa.field(COUNTERS, pa.string())])
    step = make_lookup_step(flow, folder, staged, payload, results, read_task=lambda: task)
    *batches, counters = step([tuples])
    found: Counter[Any] = Counter()
    for batch in batches:
        ids = [batch.column(0).to_pylist(), *([batch.column(4).to_pylist()] if how.has_pairs else [])]
        found.update(zip(*ids, strict=True))
    return found, json.loads(counters.column(COUNTERS)[0].as_py())["tables"]["b"]["used_bytes"]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("on", [BAND, EQUALITY, OVERLAP])
@pytest.mark.parametrize("table", TABLES)
def test_divided_tuples_find_what_the_nested_loop_finds(
    on: str, how: str, table: str, tmp_path: Path
) -> None:
    flow, rows = plan(on, how).flow(), TABLES[table]
    folder = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    staged = StagedTable(stage(folder, flow, rows), "t", n_partitions=PARTITIONS)
    partitioning, extents = Partitioning.of(flow.lookup.plan), Extents(staged.version.extents)
    assert partitioning is not None
    most = max(partitioning.measure(extents, partitioning.find_edges(extents, PARTITIONS)))
    assert most == 0 or most <= staged.version.nbytes
    if table in ("narrow", "one row covers all"):
        assert most < staged.version.nbytes / 3
    folder = replace(folder, cache_folder=str(tmp_path / "another host"), cache_bytes=max(most, 1))
    folder.host.make_folder()
    task, found = TaskFacts(), Counter[Any]()
    parts = divide(folder, flow, staged, task)
    assert len(parts) > (3 if table == "narrow" else 0)
    for part in parts.values():
        pairs, used = look_up(folder, flow, staged, part, task)
        found += pairs
        assert used <= most
        copies = [path for path in folder.host.folder.iterdir() if not path.name.startswith(".")]
        assert sum(path.stat().st_size for path in copies) <= folder.cache_bytes
    assert found == expect(on, how, STREAM, rows)


@pytest.mark.parametrize("on", [BAND, EQUALITY, OVERLAP])
def test_each_tuple_touches_the_runs_of_its_partners(on: str, tmp_path: Path) -> None:
    flow = plan(on, "inner").flow()
    lookup, rows = flow.lookup, NARROW[:100]
    version = stage(TableFolder(str(tmp_path)), flow, rows)
    extents, partitioning = Extents(version.extents), Partitioning.of(lookup.plan)
    assert partitioning is not None
    edges = partitioning.find_edges(extents, PARTITIONS)
    met: dict[int, set[int]] = {}
    for k in range(105):
        tuples = make_block(flow.sides[Side.LEFT], [(0, k, 200)], False)
        touched = set(extents.find_touched(lookup.build_boxes(tuples)).tolist())
        assert touched >= {b // 20 for _, b in expect(on, "inner", [(0, k, 200)], rows)}
        assert len(touched) <= 2
        (chosen,) = partitioning.choose(lookup.plan, tuples, edges).tolist()
        met[chosen] = met.get(chosen, set()) | touched
    assert len(met) == len(edges) + 1
    room = partitioning.measure(extents, edges)
    assert all(extents.nbytes[list(runs)].sum() <= room[number] for number, runs in met.items())


@pytest.mark.parametrize("on", [BAND, EQUALITY])
def test_an_epoch_that_runs_again_divides_tuples_as_before(on: str, tmp_path: Path) -> None:
    """Another version with other ranges is at hand then."""
    flow = plan(on, "left").flow()
    folder = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    first = StagedTable(stage(folder, flow, NARROW), "t", n_partitions=PARTITIONS)
    second = replace(first, version=stage(folder, flow, TABLES["one key in most rows"], number=2))
    task = TaskFacts("query", 3, run="first run")
    parts = divide(folder, flow, first, task)
    again, later = TaskFacts("query", 3, run="second run"), TaskFacts("query", 4, run="second run")
    assert divide(folder, flow, second, again) == parts
    assert divide(folder, flow, second, later) != parts
    for epoch, rows in ((again, NARROW), (later, TABLES["one key in most rows"])):
        found = Counter[Any]()
        for part in divide(folder, flow, second, epoch).values():
            found += look_up(folder, flow, second, part, epoch)[0]
        assert found == expect(on, "left", STREAM, rows)


def test_a_version_with_another_index_is_not_divided(tmp_path: Path) -> None:
    """Its extents are those of other keys, so they say nothing about the tuples."""
    flow = plan(BAND, "inner").flow()
    folder = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    version = replace(stage(folder, flow, NARROW), layout="another")
    staged = StagedTable(version, "t", n_partitions=PARTITIONS)
    assert list(divide(folder, flow, staged, TaskFacts())) == [None]
    part = make_block(flow.sides[Side.LEFT], STREAM, False)
    found, used = look_up(folder, flow, staged, part, TaskFacts())
    assert found == expect(BAND, "inner", STREAM, NARROW)
    assert used == version.nbytes


def test_conditions_that_bound_partners_at_one_end_divide_nothing() -> None:
    assert Partitioning.of(plan("a.k <= b.k", "inner").flow().lookup.plan) is None
    assert Partitioning.of(plan(EQUALITY, "inner").flow().lookup.plan) is not None


def test_partitions_have_about_as_many_bytes_and_skewed_keys_show() -> None:
    one = Partitioning(0, 0, 0)
    even = Extents([RunExtent(10, ((10 * n, 10 * n + 9),)) for n in range(60)])
    edges = one.find_edges(even, 6)
    assert edges.tolist() == [100, 200, 300, 400, 500]
    assert one.measure(even, edges) == [100] * 6
    skewed = Extents([RunExtent(10, ((7, 7),)) for _ in range(60)] + [RunExtent(10, ((8, 900),))])
    edges = one.find_edges(skewed, 6)
    assert max(one.measure(skewed, edges)) == 610
    ends = Extents([RunExtent(10, ((LOWEST, 0),)), RunExtent(10, ((1, HIGHEST),))])
    assert one.measure(ends, one.find_edges(ends, 2)) == [10, 10]
    nothing = Extents([])
    assert one.measure(nothing, one.find_edges(nothing, 6)) == [0]
    assert np.array_equal(one.find_edges(nothing, 6), [])


def test_a_process_closes_the_runs_that_a_task_has_not_used(tmp_path: Path) -> None:
    flow = plan(BAND, "inner").flow()
    folder = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    version = stage(folder, flow, NARROW)
    table = make_block(flow.sides[Side.RIGHT], [], True)
    staged = StagedTable(version, "t", n_partitions=PARTITIONS)
    one, two, *_ = divide(folder, flow, staged, TaskFacts()).values()
    opened_table._OPENED.clear()
    opened = []
    for part in (one, two, two, one):
        task = opened_table.open_table(folder, version, flow.lookup.plan, table.schema, True)
        task.meet(flow.lookup, part)
        opened.append(set(task.runs))
    assert opened[0] < opened[1]  # the runs of the task before are still open
    assert opened[2] < opened[1]
    assert opened[2] | opened[0] == opened[1]
    assert opened[3] == opened[1]
