"""The answer has each pair exactly once, even if processes are killed, files lost or epochs repeated."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support import faults
from tests.support.faults import Job, find_segments, killed_at_the_end
from tests.support.truth import configured

FILES, ROWS = 8, 150
FEW = 5
"""Epochs of the tests that are not slow: a window is four files long."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    faults.write_streams(tmp_path, FILES, ROWS)
    return tmp_path


@pytest.fixture
def short(tmp_path: Path) -> Path:
    faults.write_streams(tmp_path, FEW, ROWS)
    return tmp_path


def assert_exact(job: Job) -> None:
    found = faults.read_committed(job.sink)
    expected = faults.oracle(Path(job.folder), how=job.how, has_residual=job.has_residual)
    assert sum(expected.values()) > (10 if job.how == "anti" else 1000)
    assert job.how == "inner" or any(partner is None for _, partner in expected)
    assert max(found.values()) == 1
    assert found == expected


# The driver


def kill_again_and_again(job: Job, kills: int, seed: int, files: int = FILES) -> None:
    rng = random.Random(seed)
    interrupted = 0
    for epoch in sorted(rng.sample(range(1, files - 1), kills)):
        interrupted += job.interrupt(epoch, after_s=rng.uniform(0, 0.4))
    assert interrupted, "no kill has interrupted a running epoch"


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_driver_killed_in_the_middle_of_an_epoch(spark: SparkSession, short: Path) -> None:
    """The session of this process continues what another driver began."""
    job = Job(str(short))
    kill_again_and_again(job, kills=1, seed=1, files=FEW)
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        job.write(job.pairs(spark)).awaitTermination()
    assert_exact(job)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_driver_killed_many_times(folder: Path, seed: int) -> None:
    """The cache outlives the driver, so that it contains files of killed drivers."""
    job = Job(str(folder), cache_folder=str(folder / "cache"))
    kill_again_and_again(job, kills=6, seed=seed)
    job.finish()
    assert_exact(job)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "anti"])
def test_driver_of_an_outer_join_killed_many_times(folder: Path, how: str) -> None:
    job = Job(str(folder), cache_folder=str(folder / "cache"), how=how)
    kill_again_and_again(job, kills=4, seed=7)
    job.finish()
    assert_exact(job)


# Tasks


@pytest.mark.slow
def test_tasks_that_fail_are_run_again(folder: Path) -> None:
    """A predicate raises, and later its worker dies; Spark's second attempt starts from the last commit."""
    job = Job(str(folder), master="local[2,4]", faults={"4": "raise", "11": "die", "16": "raise"})
    job.finish()
    assert job.calls.stat().st_size > 16
    assert_exact(job)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "anti"])
def test_workers_of_second_units_are_killed(folder: Path, how: str) -> None:
    """Spark evaluates a part of the condition. Tasks of first and of second units lose their workers."""
    rng, n_killed = random.Random(3), 0
    # On a slow machine, one task may lose all these workers. It may fail more often than that.
    job = Job(str(folder), master=f"local[2,{4 * FILES}]", faults={"9": "raise"}, how=how, has_residual=True)
    with killed_at_the_end(job.start()) as process:
        while process.poll() is None:
            time.sleep(rng.uniform(0.3, 0.9))
            if n_killed < 3 * FILES:
                n_killed += faults.kill_worker(process.pid, rng)
        assert process.returncode == 0, job.output[-4000:]
    assert n_killed > FILES
    assert "Exception in task" in job.output
    assert_exact(job)


@pytest.mark.slow
def test_a_task_that_fails_too_often_names_the_predicate(tmp_path: Path) -> None:
    faults.write_streams(tmp_path, 3, 2 * ROWS)
    job = Job(str(tmp_path), faults={"3": "raise"})
    with pytest.raises(RuntimeError, match=r"PREDICATE_RAISED.*higher.*on purpose"):
        job.finish()
    # The predicate succeeds in later calls, so the next start succeeds.
    job.finish()
    assert_exact(job)


# The cache


def tear(cache: Path, epoch: int) -> int:
    """Damage the segments that earlier epochs have cached, each time in another way; return their number."""
    segments = find_segments(cache)
    for segment in segments:
        if epoch % 4 == 0:
            segment.unlink()
        else:
            whole = segment.read_bytes()
            segment.write_bytes(whole[: (0, len(whole) // 2, len(whole) - 100)[epoch % 4 - 1]])
    return len(segments)


@pytest.mark.slow
@pytest.mark.usefixtures("only_epochs_with_rows")
def test_cache_wiped_and_torn_between_epochs(spark: SparkSession, short: Path) -> None:
    job = Job(str(short), cache_folder=str(short / "cache"))
    found: Counter[tuple[int, int]] = Counter()
    damaged: list[int] = []

    def collect(pairs: DataFrame, epoch: int) -> None:
        damaged.append(tear(short / "cache", epoch))
        found.update((row.a, row.b) for row in pairs.collect())

    writer = job.pairs(spark).writeStream.foreachBatch(collect).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(job.checkpoint)).start()
    query.awaitTermination()
    assert all(damaged[1:FEW])
    assert found == faults.oracle(short)


# The checkpoint


@pytest.mark.slow
def test_checkpoint_of_another_condition_is_refused_by_name(spark: SparkSession, folder: Path) -> None:
    job = Job(str(folder))
    late = [folder / alias / f"{number:06d}.parquet" for alias in "ab" for number in range(2, FILES)]
    hidden = [path.with_name(f"_{path.name}") for path in late]
    for path, name in zip(late, hidden, strict=True):
        path.rename(name)
    job.write(job.pairs(spark)).awaitTermination()
    for path, name in zip(late, hidden, strict=True):
        name.rename(path)
    with pytest.raises(StreamingQueryException) as refused:
        job.write(job.pairs(spark, band=faults.BAND + 1)).awaitTermination()
    text = str(refused.value)
    assert "[STATE_OF_ANOTHER_QUERY]" in text
    assert "the condition was " in text
    assert "checkpointLocation" in text
    # The refused start has changed nothing, so the first query continues.
    job.write(job.pairs(spark)).awaitTermination()
    assert_exact(job)
