"""Checkpoints and results on HDFS, and folders that Arrow opens there.

{ (a.id, b.id) : |a.x - b.x| <= 2, |a.ts - b.ts| <= 1 minute }

Spark's own client opens HDFS. Arrow needs the native library of Hadoop, which neither PySpark nor Maven has,
so these tests hold that folders of Arrow are refused by name on a host without it.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from tests.support.file_streams import FILES, find_pairs, write_file
from tests.support.hdfs import run_hdfs
from thetastream.app import cli

JARS = Path(__file__).parents[2] / "out" / "hdfs"
PROGRAM = """
import json, sys
import thetastream as th
folder, mailbox, root, is_chain = json.loads(sys.argv[1])
spark = th.local_session(2, **{"spark.sql.session.timeZone": "UTC"})
streams = {}
for alias in "ab":
    reader = spark.readStream.schema("id LONG, x LONG, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
    streams[alias] = reader.parquet(f"{folder}/{alias}").withWatermark("ts", "10 seconds")
how = dict(model=th.Chain(2), mailbox=mailbox) if is_chain else dict(model=th.Biclique((1, 1)))
pairs = th.join(streams, on="abs(a.x - b.x) <= 2", within="1 minute", **how)
writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("parquet")
writer = writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
writer.start(f"{root}/pairs").awaitTermination()
print(json.dumps([list(row) for row in spark.read.parquet(f"{root}/pairs").collect()]))
spark.stop()
"""


@pytest.fixture(scope="session")
def hdfs() -> Iterator[str]:
    with run_hdfs(JARS) as uri:
        yield uri


def opens_hdfs(uri: str) -> bool:
    """Whether this host has the native library of Hadoop."""
    try:
        fs.FileSystem.from_uri(uri)
    except OSError:
        return False
    return True


def run(folder: Path, mailbox: str, root: str, is_chain: bool) -> "subprocess.CompletedProcess[str]":
    """Join all files that are there, in a process of its own."""
    arguments = json.dumps([str(folder), mailbox, root, is_chain])
    command = [sys.executable, "-c", PROGRAM, arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("is_chain", [False, True])
def test_checkpoint_and_results_on_hdfs(hdfs: str, tmp_path: Path, is_chain: bool) -> None:
    """A join reads two files, stops, and continues with the other two from its checkpoint."""
    root = f"{hdfs}/job-{is_chain}"
    for files in (range(2), range(2, FILES)):
        for alias in "ab":
            for number in files:
                write_file(tmp_path, alias, number)
        done = run(tmp_path, f"file:{tmp_path}/mail", root, is_chain)
        assert done.returncode == 0, done.stderr[-4000:]
    assert Counter(map(tuple, json.loads(done.stdout.splitlines()[-1]))) == find_pairs()


def test_folders_of_arrow_are_refused_without_the_native_library(
    hdfs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if opens_hdfs(hdfs):
        pytest.skip("this host has the native library of Hadoop")
    for alias in "ab":
        write_file(tmp_path, alias, 0)
    refused = run(tmp_path, f"{hdfs}/mail", f"{hdfs}/refused", is_chain=True)
    assert refused.returncode != 0
    assert "[MAILBOX_UNUSABLE]" in refused.stderr, refused.stderr[-4000:]
    assert "native libraries" in refused.stderr
    assert cli.main(["inspect", f"{hdfs}/refused/checkpoint"]) == 1
    shown = capsys.readouterr().err
    assert "native libraries" in shown
    assert "dlopen" not in refused.stderr + shown
