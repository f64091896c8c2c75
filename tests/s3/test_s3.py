"""Folders on an object store: the mailbox, the checkpoint and the results of a chain.

{ (a.id, b.id) : |a.x - b.x| <= 2, |a.ts - b.ts| <= 1 minute }
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.checkpoints import write_checkpoint
from tests.support.file_streams import FILES, find_pairs, write_file
from tests.support.maven import fetch_jars
from tests.support.object_store import BUCKET, HADOOP_AWS, ObjectStore, find_hadoop_version, run_object_store
from thetastream.app import cli
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder
from thetastream.core.identity import Part
from thetastream.results.version_log import write_once
from thetastream.runtime.mailbox.files import Mailbox, Row, rows
from thetastream.runtime.table_epochs import StagedTable, choose_version, list_epochs
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import NEW, EpochVersion, Version
from thetastream.runtime.task_facts import TaskFacts
from thetastream.spark.sources.mailbox import MailboxReader

JARS = Path(__file__).parents[2] / "out" / "s3"
QUERY = {"the model": Part("Chain(workers=2)", "Chain(workers=2)")}
PROGRAM = """
import json, sys
import thetastream as th
folder, mailbox, root, conf = json.loads(sys.argv[1])
spark = th.local_session(2, **conf)
streams = {}
for alias in "ab":
    reader = spark.readStream.schema("id LONG, x LONG, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
    streams[alias] = reader.parquet(f"{folder}/{alias}").withWatermark("ts", "10 seconds")
model = th.Chain(2)
pairs = th.join(streams, on="abs(a.x - b.x) <= 2", within="1 minute", model=model, mailbox=mailbox)
writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("parquet")
writer = writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
writer.start(f"{root}/pairs").awaitTermination()
spark.stop()
"""


@pytest.fixture(scope="session")
def store() -> Iterator[ObjectStore]:
    with run_object_store() as one:
        yield one


def test_messages_lie_in_the_store(store: ObjectStore) -> None:
    box = Mailbox(store.uri("mail"), "one")
    box.create(QUERY)
    box.check(QUERY)
    sent = {
        (epoch, unit): rows([Row(0, 0, f"{epoch} {unit}", b"x", [(1, 1)])])
        for epoch in (0, 1)
        for unit in (0, 1)
    }
    for (epoch, unit), batch in sent.items():
        box.post(epoch, unit, [rows([Row(0, 0, "a first attempt", b"x", [(1, 1)])])])
        box.post(epoch, unit, [batch])
    assert box.find_next(0) == (1, [0, 1])
    assert all(list(box.fetch(epoch, unit)) == [batch] for (epoch, unit), batch in sent.items())
    box.clear(0)
    box.post(1, 1, [])
    assert (box.find_next(0), [*box.list_sizes(1)]) == ((1, [0]), [0])
    with pytest.raises(StateError, match="MAILBOX_DAMAGED"):
        list(box.fetch(0, 0))
    with pytest.raises(StateError, match="MAILBOX_MISSING"):
        Mailbox(store.uri("mail"), "another").check(QUERY)


def test_the_commands_read_and_remove_a_checkpoint(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = MailboxReader(store.uri("kept"), QUERY, [1])
    local = write_checkpoint(tmp_path / "c", 3, 3, reader.initialOffset())
    fs.copy_files(str(local), f"{BUCKET}/jobs/c", destination_filesystem=store.open())
    uri = store.uri("jobs/c")
    assert cli.main(["inspect", uri]) == 0
    shown = capsys.readouterr().out
    assert "Chain(workers=2)" in shown
    assert f"s3://{BUCKET}/kept" in shown
    assert cli.main(["clean", uri, "--for-good"]) == 1
    refused = capsys.readouterr().err
    assert "CHECKPOINT_IN_USE" in refused
    assert cli.main(["clean", uri, "--for-good", "--min-age", "0s"]) == 1
    refused += capsys.readouterr().err
    assert "MAILBOX_UNUSABLE" in refused, "the offset does not keep where the endpoint is"
    assert cli.main(["clean", uri, "--for-good", "--min-age", "0s", "--mailbox", store.uri("kept")]) == 0
    assert f"checkpoint: s3://{BUCKET}/jobs/c" in capsys.readouterr().out
    assert cli.main(["inspect", uri]) == 1
    refused += capsys.readouterr().err
    assert "NO_CHECKPOINT" in refused
    assert "secret" not in shown + refused


def test_a_join_with_all_its_folders_in_the_store(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chain reads two files, stops, and continues with the other two."""
    jars = fetch_jars([f"{HADOOP_AWS}:{find_hadoop_version()}"], JARS / "hadoop-aws")
    conf = {**store.configure_spark(jars), "spark.sql.session.timeZone": "UTC"}
    arguments = json.dumps([str(tmp_path), store.uri("mail"), f"s3a://{BUCKET}/job", conf])
    for files in (range(2), range(2, FILES)):
        for alias in "ab":
            for number in files:
                write_file(tmp_path, alias, number)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
    assert read_pairs(store) == find_pairs()
    assert cli.main(["inspect", store.uri("job/checkpoint")]) == 0
    assert "Chain(workers=2)" in capsys.readouterr().out


def read_pairs(store: ObjectStore) -> Counter[tuple[int, int]]:
    """Read the pairs that Spark's sink has committed. Its tenth log repeats those of the others."""
    opened = store.open()
    paths: set[str] = set()
    for log in opened.get_file_info(fs.FileSelector(f"{BUCKET}/job/pairs/_spark_metadata")):
        with opened.open_input_stream(log.path) as file:
            lines = file.read().decode().splitlines()[1:]
        paths.update(json.loads(line)["path"].removeprefix("s3a://") for line in lines)
    found: Counter[tuple[int, int]] = Counter()
    for path in paths:
        table = pq.read_table(path, filesystem=opened)
        found.update(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
    return found


def test_one_of_several_writers_of_a_commit_wins(store: ObjectStore) -> None:
    root = store.uri("commits")
    folder, start = Folder(root, "_log"), threading.Barrier(8)

    def write(writer: int) -> list[bool]:
        won = []
        for version in range(20):
            start.wait()
            won.append(write_once(root, folder, f"{version}.json", b"%d" % writer))
        return won

    with ThreadPoolExecutor(8) as pool:
        rounds = list(zip(*pool.map(write, range(8)), strict=True))
    assert [sum(winners) for winners in rounds] == [1] * 20
    for version, winners in enumerate(rounds):
        assert folder.read(f"{version}.json") == b"%d" % winners.index(True)
    assert set(folder.list_files()) == {f"{version}.json" for version in range(20)}


def test_a_table_is_staged_in_the_store_and_each_epoch_has_one_version(
    store: ObjectStore, spark: SparkSession, tmp_path: Path
) -> None:
    folder = TableFolder(store.uri("raced"), str(tmp_path / "host"))
    versions = folder.open_versions("t")
    staged = [versions.add(Version(NEW, (), n, 0, 0.0)) for n in range(8)]

    def decide(version: Version) -> EpochVersion:
        task = TaskFacts("query", 5)
        return choose_version(folder, task, "join", "t", StagedTable(version, "t", None))

    (chosen,) = {decide(version) for version in staged}
    assert list_epochs(folder, "query") == [(5, chosen)]
    # A query beside a table that changes, with a mailbox and a host that has no copy of a run.
    rows, numbers = tmp_path / "rows", tmp_path / "numbers"
    numbers.mkdir()
    stream = spark.readStream.schema("x BIGINT").option("maxFilesPerTrigger", 1).csv(str(numbers))
    table, found = th.Table(rows, keep=1), list[tuple[int, int, int]]()

    def write(n: int) -> None:
        spark.range(n).selectExpr("id * 10 AS low", "id * 10 + 5 AS high").write.mode("overwrite").parquet(
            str(rows)
        )
        (numbers / f"{n}.csv").write_text("".join(f"{x}\n" for x in range(50)))

    def collect(batch: DataFrame, epoch: int) -> None:
        found.extend((epoch, *row) for row in batch.collect())

    write(2)
    inputs = {"a": stream, "t": table}
    on, mailbox = "a.x >= t.low AND a.x < t.high", store.uri("tables")
    options = {"mailbox": mailbox, "cache_folder": str(tmp_path / "cache")}
    pairs = th.join(inputs, on, **options).select("a.x", "t.low")
    for n in (3, 4):
        query = pairs.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        write(n)
        assert th.stage(table)[0]["version"] == n - 1
        for path in (tmp_path / "cache").rglob("*"):
            if path.is_file():
                path.unlink()
    expected = [
        (epoch, x, x // 10 * 10) for epoch in (0, 1) for x in range(50) if x % 10 < 5 and x < 20 + 10 * epoch
    ]
    assert sorted(found) == expected
