"""A number that others can check: BiStream's Band query over TPC-H."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import thetastream as th

BAND = (
    "ABS(l1.l_orderkey - l2.l_orderkey) <= 1 AND l1.l_shipmode = 'TRUCK'"
    " AND l1.l_quantity > 48 AND l2.l_shipinstruct = 'NONE'"
)
FILES = 4


@pytest.fixture(scope="module")
def lineitem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scale factor 0.01, cut into files in the generator's order."""
    folder = tmp_path_factory.mktemp("tpch")
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    assert program, "tpchgen-cli is not installed: pip install 'thetastream[dev]'"
    command = [program, "parquet", "-s", "0.01", "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    table = pq.read_table(folder / "lineitem.parquet")
    (folder / "cut").mkdir()
    size = -(-table.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), folder / "cut" / f"{number}.parquet")
    return folder / "cut"


def test_band_query_streamed(spark: SparkSession, lineitem: Path) -> None:
    schema = spark.read.parquet(str(lineitem)).schema
    streams = {
        alias: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(lineitem))
        for alias in ("l1", "l2")
    }
    pairs = th.join(streams, on=BAND, within=None, model=th.Biclique(units=(2, 1)))
    rows = pairs.selectExpr("l1.l_orderkey AS a", "l2.l_orderkey AS b")
    query = rows.writeStream.format("memory").queryName("band").trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(query.recentProgress) >= FILES
    assert spark.table("band").count() == 1073


def test_band_query_in_batch(spark: SparkSession, lineitem: Path) -> None:
    table = spark.read.parquet(str(lineitem))
    assert th.join({"l1": table, "l2": table}, on=BAND).count() == 1073
