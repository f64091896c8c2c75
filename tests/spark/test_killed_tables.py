"""A query beside a table that changes is killed: each pair is there once, of the version of its epoch."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.campaign import CLUSTER, STARTS, WENT_ON, strike
from tests.support.faults import kill_group
from tests.support.live_faults import Target
from tests.support.table_job import FEWEST, TableJob
from thetastream.runtime.table_versions import Version

ROWS = 60
GAP_S = 1.5
"""The longest time in seconds until the next kill."""
CONF = {
    "spark.task.maxFailures": "50",
    "spark.executor.memory": "700m",
    "spark.sql.streaming.minBatchesToRetain": "10000",
}
"""Tasks may lose many workers, and the checkpoint tells which files each epoch has read."""
PROCESSES = {"driver killed": 1, "Python worker killed": 3}
EXECUTORS = PROCESSES | {"executor killed": 3}


@dataclass
class Outcome:
    """What a query beside a changing table has read and written."""

    read: Mapping[int, Version]
    """The version that each epoch has read."""
    found: Counter[faults.Row]
    expected: Counter[faults.Row]
    killed: Counter[str]
    """How many processes of each kind were killed."""

    @property
    def numbers(self) -> list[int]:
        """The number of the version of each epoch, in the order of epochs."""
        return [version.number for _, version in sorted(self.read.items())]


def run_and_kill(folder: Path, files: int, seed: int, weights: Mapping[str, int], **job: str) -> Outcome:
    """Replace the rows of a table and kill processes of the query, until it has read its stream."""
    faults.write_streams(folder, files, ROWS, seed)
    query = TableJob(str(folder), conf=CONF, **job)
    query.write_version(0)
    with query.changing(seed) as read:
        killed = kill_until_read(query, seed, weights)
    assert {len(versions) for versions in read.values()} == {1}
    only = {epoch: version for epoch, (version,) in read.items()}
    by_epoch = query.list_files()
    assert only.keys() == by_epoch.keys()
    assert sum(map(len, by_epoch.values())) == files
    return Outcome(only, faults.read_committed(query.sink), query.find_expected(only), killed)


def kill_until_read(job: TableJob, seed: int, weights: Mapping[str, int]) -> Counter[str]:
    """Start a query again and again until it has read its stream. The last starts are not killed."""
    killed: Counter[str] = Counter()
    target = Target(job, job.start(), random.Random(seed))
    try:
        for start in range(2 * STARTS):
            if start < STARTS:
                points = strike(target, dict(weights), GAP_S)
                assert {end for _, end in points} <= {WENT_ON, "killed"}, job.output[-4000:]
                killed.update(name for name, _ in points)
            code = target.process.wait(1200)
            if code == 0:
                return killed
            assert code < 0, job.output[-4000:]
            target.process = job.start()
    finally:
        kill_group(target.process)
    raise RuntimeError(f"the query has not read its stream: {job.output[-4000:]}")


def assert_exact(outcome: Outcome, files: int) -> None:
    assert outcome.numbers == sorted(outcome.numbers)
    assert len(set(outcome.numbers)) > 1
    assert not any(
        (version.n_rows - FEWEST) % 4 == 0 for version in outcome.read.values() if version.number > 1
    )
    assert sum(outcome.found.values()) > files
    assert max(outcome.found.values()) == 1
    assert outcome.found == outcome.expected


@pytest.mark.slow
def test_drivers_and_workers_are_killed_while_the_table_changes(tmp_path: Path) -> None:
    outcome = run_and_kill(tmp_path, 40, 2, PROCESSES, master="local[2,50]")
    assert_exact(outcome, 40)
    assert outcome.killed["Python worker killed"]


@pytest.mark.slow
def test_executors_are_killed_while_the_table_changes(tmp_path: Path) -> None:
    outcome = run_and_kill(tmp_path, 40, 3, EXECUTORS, master=CLUSTER)
    assert_exact(outcome, 40)
    assert outcome.killed["executor killed"]
