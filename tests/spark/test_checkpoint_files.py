"""Files of checkpoints in local sessions, which Spark writes by an interface that does not replace files."""

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.spark.test_unfinished_epoch import remove_entry
from thetastream.spark.session.configure import CHECKPOINT_FILES, WITH_FEW_PROCESSES


def write_rows(spark: SparkSession, folder: Path, first: int) -> None:
    """Write the next file of the stream: four rows, a second apart."""
    rows = spark.range(first, first + 4, 1, 1)
    rows.selectExpr("id", "timestamp_seconds(1700000000 + id) AS ts").write.mode("append").parquet(
        str(folder / "in")
    )


def join_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Join a stream with itself, one file in an epoch."""
    stream = (
        spark.readStream.schema("id LONG, ts TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/in")
    )
    streams = {alias: stream.withWatermark("ts", "10 seconds") for alias in "ab"}
    return th.join(streams, "a.id < b.id", "3 seconds").selectExpr("a.id AS a", "b.id AS b")


def count_pairs(spark: SparkSession, folder: Path) -> Counter[tuple[int, int]]:
    """Run the join over all files of the stream, and return the pairs that leave it."""
    found: Counter[tuple[int, int]] = Counter()
    query = join_stream(spark, folder).writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", f"{folder}/checkpoint")
    query = query.foreachBatch(lambda batch, _: found.update((row.a, row.b) for row in batch.collect()))
    query.start().awaitTermination()
    return found


def test_an_epoch_that_runs_again_writes_no_file_twice(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get(CHECKPOINT_FILES) == WITH_FEW_PROCESSES
    for first in (0, 4, 8):
        write_rows(spark, tmp_path, first)
    whole = count_pairs(spark, tmp_path)
    assert whole == Counter((a, b) for a in range(12) for b in range(a + 1, min(a + 4, 12)))
    checkpoint = tmp_path / "checkpoint"
    commits = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    # As if the driver had been killed before it committed this epoch, whose state is written.
    remove_entry(checkpoint / "commits", commits[2])
    for later in commits[3:]:
        remove_entry(checkpoint / "commits", later)
        remove_entry(checkpoint / "offsets", later)
    again = count_pairs(spark, tmp_path)
    assert again == Counter({pair: 1 for pair in whole if pair[1] >= 8})
    # A file that was not replaced would leave its draft behind.
    assert not list(checkpoint.rglob("*.tmp*"))


def test_a_store_is_written_although_a_driver_was_killed_before_the_first_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark does not start a first epoch if the folder of offsets has a file, and a draft is one."""
    write_rows(spark, tmp_path, 0)
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text(f'{{"id":"{uuid4()}"}}')
    (offsets / ".0.61b3e687-4346-4f94-9617-c216529e5768.tmp").write_text("v1\n")
    store = th.ParquetStore(f"{tmp_path}/store")
    query = th.write(
        join_stream(spark, tmp_path), store, checkpoint=tmp_path / "checkpoint", trigger="available now"
    )
    query.awaitTermination()
    found = Counter((row["a"], row["b"]) for row in store.read().to_pylist())
    assert found == Counter((a, b) for a in range(4) for b in range(a + 1, 4))


def test_an_entry_of_a_log_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    jvm, conf = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[union-attr]
    package = jvm.org.apache.spark.sql.execution.streaming.checkpointing  # type: ignore[union-attr]
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "0"))  # type: ignore[union-attr]
    manager = package.CheckpointFileManager.create(path.getParent(), conf)

    def write(content: bytes) -> None:
        stream = manager.createAtomic(path, False)
        stream.write(bytearray(content))
        stream.close()

    write(b"first")
    with pytest.raises(Py4JJavaError, match=r"ALREADY_EXISTS|FAILED_RENAME_PATH"):
        write(b"second")
    assert (tmp_path / "0").read_bytes() == b"first"
