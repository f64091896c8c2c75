"""The checkpoint of an earlier version continues, or is refused by name and says which version wrote it."""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.dataset as ds
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support import kept_checkpoint
from tests.support.kept_checkpoint import COMMITTED, FILES, find_pairs, unpack, write_file
from thetastream.job.checkpoint import read_checkpoint
from thetastream.spark.state.manifest import FORMAT


def test_the_checkpoint_of_an_earlier_version(spark: SparkSession, tmp_path: Path) -> None:
    unpack(tmp_path)
    before = read_checkpoint(str(tmp_path / "checkpoint"))
    (join,) = before.joins
    assert join.written_by is not None
    assert before.committed == before.begun >= COMMITTED - 1
    for alias in "ab":
        for number in range(COMMITTED, FILES):
            write_file(tmp_path, alias, number)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        if join.state_format == FORMAT:
            kept_checkpoint.run(spark, tmp_path)
            assert read_pairs(tmp_path) == find_pairs()
        else:
            with pytest.raises(StreamingQueryException, match=rf"STATE_FORMAT.* has {join.state_format}"):
                kept_checkpoint.run(spark, tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def read_pairs(folder: Path) -> Counter[tuple[int, int]]:
    """Read the pairs that Spark's sink has committed."""
    files = {
        unquote(urlparse(json.loads(line)["path"]).path)
        for log in (folder / "pairs" / "_spark_metadata").iterdir()
        if log.name.isdecimal()
        for line in log.read_text().splitlines()[1:]
    }
    table = ds.dataset(sorted(files)).to_table()
    return Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
