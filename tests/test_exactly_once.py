"""The answer is the same bag, each pair once, whatever is killed, lost or repeated on the way."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from thetastream.errors import StateError
from thetastream.joiner.segment import SegmentMeta
from thetastream.joiner.unit import UnitState
from thetastream.spark.manifest import FORMAT, Heard, decode, encode
from thetastream.testing import faults
from thetastream.testing.faults import Job

FILES, ROWS = 8, 150


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    faults.write_streams(tmp_path, FILES, ROWS)
    return tmp_path


def assert_exact(job: Job) -> None:
    found, expected = faults.committed(job.sink), faults.oracle(Path(job.folder))
    assert sum(expected.values()) > 1000
    assert max(found.values()) == 1
    assert found == expected


# The driver


def kill_again_and_again(job: Job, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    interrupted = 0
    for epoch in sorted(rng.sample(range(1, FILES - 1), kills)):
        interrupted += job.interrupt(epoch, after_s=rng.uniform(0, 0.4))
    assert interrupted, "no kill met an epoch under way"
    job.finish()
    assert_exact(job)


def test_driver_killed_in_the_middle_of_epochs(folder: Path) -> None:
    kill_again_and_again(Job(str(folder)), kills=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_driver_killed_many_times(folder: Path, seed: int) -> None:
    """With a cache that outlives the driver, so that orphans of the killed are around."""
    kill_again_and_again(Job(str(folder), cache_folder=str(folder / "cache")), kills=6, seed=seed)


# Tasks


@pytest.mark.slow
def test_tasks_that_fail_are_run_again(folder: Path) -> None:
    """A predicate raises, later its worker dies; Spark's second attempt starts from the last commit."""
    job = Job(str(folder), master="local[2,4]", faults={"4": "raise", "11": "die", "16": "raise"})
    job.finish()
    assert job.calls.stat().st_size > 16
    assert_exact(job)


@pytest.mark.slow
def test_a_task_that_fails_too_often_names_the_predicate(tmp_path: Path) -> None:
    faults.write_streams(tmp_path, 3, 2 * ROWS)
    job = Job(str(tmp_path), faults={"3": "raise"})
    with pytest.raises(RuntimeError, match=r"PREDICATE_RAISED.*higher.*on purpose"):
        job.finish()
    # The next start is a later call, which succeeds.
    job.finish()
    assert_exact(job)


# The cache


def tear(cache: Path, epoch: int) -> int:
    """Damage what the epochs before have cached, each time in another way; returns how many segments."""
    segments = [meta.parent for meta in cache.rglob("payload.arrow")]
    for segment in segments:
        if epoch % 5 == 0:
            shutil.rmtree(segment)
        elif epoch % 5 == 1:
            (segment / "offsets.npy").unlink()
        else:
            torn = segment / ("rows.npy" if epoch % 5 == 2 else "payload.arrow")
            torn.write_bytes(torn.read_bytes()[: 0 if epoch % 5 == 3 else torn.stat().st_size // 2])
    return len(segments)


def test_cache_wiped_and_torn_between_epochs(spark: SparkSession, folder: Path) -> None:
    job = Job(str(folder), cache_folder=str(folder / "cache"))
    found: Counter[tuple[int, int]] = Counter()
    damaged: list[int] = []

    def collect(pairs: DataFrame, epoch: int) -> None:
        damaged.append(tear(folder / "cache", epoch))
        found.update((row.a, row.b) for row in pairs.collect())

    writer = job.pairs(spark).writeStream.foreachBatch(collect).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(job.checkpoint)).start()
    query.awaitTermination()
    assert all(damaged[1:FILES])
    assert found == faults.oracle(folder)


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
    assert "condition: " in text
    assert "checkpointLocation" in text
    # The refused start has changed nothing: the first query goes on.
    job.write(job.pairs(spark)).awaitTermination()
    assert_exact(job)


QUERY = {"condition": "a.x < b.x", "window": "10 s"}
META = SegmentMeta("0a", 1, 3, 10, 1000, 5, 7, 600)
HEARD = Heard(41, 1_700_000_000_000_000)
STATE = UnitState([META], (7, 2**40))


def test_manifest_round_trip() -> None:
    assert decode(None, QUERY, UnitState) == (None, UnitState())
    assert decode(encode(QUERY, HEARD, STATE), QUERY, UnitState) == (HEARD, STATE)


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (encode(QUERY, HEARD, STATE)[:-9], "MANIFEST_DAMAGED", "cannot be read"),
        ("", "MANIFEST_DAMAGED", "cannot be read"),
        ("[]", "MANIFEST_DAMAGED", "cannot be read"),
        (json.dumps({"format": FORMAT, "query": QUERY}), "MANIFEST_DAMAGED", "cannot be read"),
        (
            json.dumps({"format": FORMAT, "query": 1, "heard": HEARD, "state": UnitState().as_json()}),
            "MANIFEST_DAMAGED",
            "cannot be read",
        ),
        (
            json.dumps(
                {
                    "format": FORMAT,
                    "query": QUERY,
                    "heard": HEARD,
                    "state": {**STATE.as_json(), "segments": [{"id": "0a"}]},
                }
            ),
            "MANIFEST_DAMAGED",
            "cannot be read",
        ),
        (json.dumps({"format": FORMAT + 1, "anything": 1}), "STATE_FORMAT", f"must be {FORMAT}"),
        (
            encode({**QUERY, "window": "9 s"}, HEARD, UnitState()),
            "STATE_OF_ANOTHER_QUERY",
            "window: 9 s -> 10 s",
        ),
    ],
)
def test_manifest_refused_by_name(text: str, name: str, says: str) -> None:
    with pytest.raises(StateError) as refused:
        decode(text, QUERY, UnitState)
    assert refused.value.condition == name
    assert says in str(refused.value)
