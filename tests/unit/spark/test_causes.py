"""What ends a query outside of it is named: full disks, damaged checkpoints, processes that are killed.

The texts are those of PySpark 4.3, with the frames of their stacks that matter.
"""

import re

import pytest

from thetastream.spark.session import failure
from thetastream.spark.session.causes import find_cause

FAILED = "[STREAM_FAILED] Query q [id = 1-2, runId = 3-4] terminated with exception: {} SQLSTATE: XXKST\n{}"
PLAN = """=== Streaming Query ===
Current State: ACTIVE

Logical Plan:
+- ~StreamingExecutionRelation FileStreamSource[file:/in/a], [id#1L, ts#2], name=<Unassigned>
"""
STREAMING = "\tat org.apache.spark.sql.execution.streaming"
NO_SPACE = (
    "java.io.IOException: No space left on device",
    "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
    "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n",
)


@pytest.mark.parametrize(
    ("reason", "stack", "expected"),
    [
        (
            *NO_SPACE,
            "DISK_FULL.*the checkpoint, and the disk is full .No space left on device.*continues from its",
        ),
        (
            "/ckpt/sources/0/.4.c8dcbed1.tmp (Read-only file system)",
            "Caused by: java.io.FileNotFoundException: /ckpt/sources/0/.4.c8dcbed1.tmp (Read-only file "
            "system)\n"
            f"{STREAMING}.checkpointing.FileContextBasedCheckpointFileManager.createTempFile\n",
            r"READ_ONLY_FOLDER.*the checkpoint, /ckpt/sources/0/\.4\.c8dcbed1\.tmp, and nothing can be",
        ),
        (
            "Job aborted due to stage failure: Lost task 1.0 in stage 63.0: java.io.IOException: No space",
            "Caused by: java.io.IOException: No space left on device\n"
            "\tat org.apache.spark.storage.DiskBlockObjectWriter.commitAndGet\n",
            r"DISK_FULL.*Spark's local files \(spark\.local\.dir\).*another folder",
        ),
        (
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/pairs. SQLSTATE: 58030",
            "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
            "\tat org.apache.spark.sql.execution.datasources.FileFormatDataWriter.write\n",
            r"DISK_FULL.*the files of the sink, /out/pairs",
        ),
        (
            "Job aborted due to stage failure: Lost task 1.0 in stage 63.0",
            f"Caused by: java.io.IOException: No space left on device\n{STREAMING}.state.RocksDBFileManager\n"
            "\tat org.apache.spark.shuffle.sort.BypassMergeSortShuffleWriter.write\n",
            r"DISK_FULL.*Spark writes the checkpoint, and",
        ),
    ],
)
def test_a_folder_that_takes_nothing_is_named_with_what_to_do(reason: str, stack: str, expected: str) -> None:
    if reason == NO_SPACE[0]:
        stack += f"{STREAMING}.checkpointing.HDFSMetadataLog.write(HDFSMetadataLog.scala:200)\n"
    shown = failure.find_error(FAILED.format(reason, PLAN + stack))
    assert shown is not None
    assert re.search(expected, shown), shown
    assert "tart the query again: it continues" in shown


@pytest.mark.parametrize(
    ("reason", "stack", "expected"),
    [
        (
            "Unexpected end-of-input in field name\n at [Source: REDACTED; line: 1, column: 16]",
            "Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input\n"
            f"{STREAMING}.checkpointing.CommitMetadata$.apply\n{STREAMING}.checkpointing.CommitLog.deserialize\n",
            "a file of commits of the checkpoint .Unexpected end-of-input in field name.*inspect.*remove it",
        ),
        (
            "Unexpected end-of-input: was expecting closing quote for a string value",
            "Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input\n"
            f"{STREAMING}.runtime.CompactibleFileStreamLog.deserializeEntry\n",
            "a file of sources of the checkpoint.*Restore the checkpoint",
        ),
        (
            "Failed to read log file file:/ckpt/sources/1/0. Incomplete log file",
            "Caused by: java.lang.IllegalStateException: Incomplete log file\n"
            f"{STREAMING}.runtime.CompactibleFileStreamLog.$anonfun$applyFnInBatch$1\n",
            "the file sources/1/0 of the checkpoint",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
            "Caused by: org.apache.spark.SparkException: [CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] "
            "Checksum verification failed. File: file:/ckpt/state/0/0/5_b5adb7d8.changelog\n"
            f"{STREAMING}.state.RocksDB.load\n",
            "the file state/0/0/5_b5adb7d8.changelog of the checkpoint",
        ),
        (
            "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
            "latestOffset: Traceback (most recent call last):",
            "Caused by: json.decoder.JSONDecodeError: Extra data: line 1 column 1175 (char 1174)\n",
            "a file of offsets of the checkpoint",
        ),
        (
            "batch 3 doesn't exist",
            "Caused by: java.lang.IllegalStateException: batch 3 doesn't exist\n"
            f"{STREAMING}.runtime.MicroBatchExecution.populateStartOffsets\n",
            "a file of offsets of the checkpoint .batch 3 doesn't exist",
        ),
    ],
)
def test_a_damaged_checkpoint_is_named_with_what_to_do(reason: str, stack: str, expected: str) -> None:
    shown = failure.find_error(FAILED.format(reason, PLAN + stack))
    assert shown is not None
    assert re.search(rf"CHECKPOINT_DAMAGED\] Spark cannot read {expected}", shown), shown


def test_a_killed_source_is_named_also_where_its_reason_is_empty() -> None:
    stack = (
        "Caused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt\n"
        "\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset\n"
    )
    for text in (FAILED.format("null", PLAN + stack), stack):  # what is raised, and what a listener gets
        shown = failure.summarize_failure(text)
        assert "[SOURCE_ENDED]" in shown
        assert "Start the query again" in shown
    # A source that has failed with an error of its own has not been killed.
    assert find_cause(FAILED.format("x\nTraceback (most recent call last):", stack)) is None


def test_a_driver_whose_checkpoint_another_one_has_continued_says_so() -> None:
    reason = (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7."
    )
    shown = failure.find_error(FAILED.format(reason, PLAN))
    assert shown is not None
    assert shown.startswith("ThetastreamError: [CHECKPOINT_IN_USE] another driver has continued the query")


@pytest.mark.parametrize(
    "reason", ["Job aborted: java.lang.ArithmeticException", "[DIVIDE_BY_ZERO] Division by zero.", "null"]
)
def test_other_failures_keep_their_own_words(reason: str) -> None:
    assert failure.find_error(FAILED.format(reason, PLAN + "\tat org.apache.spark.rdd.RDD\n")) is None
