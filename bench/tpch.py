"""BiStream's Band query over TPC-H: ``python -m bench tpch-band``, a number that others can check.

lineitem at scale factor 0.01 comes from the PyPI package tpchgen-cli and is streamed in twice.
Full history, two streams, no equality: 1073 rows.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from bench import data
from bench.machine import describe

SCALE_FACTOR = "0.01"
FILES = 8
ROWS = 1073
CONDITION = (
    "ABS(l1.l_orderkey - l2.l_orderkey) <= 1 AND l1.l_shipmode = 'TRUCK'"
    " AND l1.l_quantity > 48 AND l2.l_shipinstruct = 'NONE'"
)


def lineitem() -> Path:
    """Folder with lineitem, cut into ``FILES`` files in the generator's order."""
    folder = data.ROOT / f"tpch-sf{SCALE_FACTOR}"
    if not folder.exists():
        beside = Path(sys.executable).with_name("tpchgen-cli")
        program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
        if program is None:
            raise FileNotFoundError("tpchgen-cli is not installed: pip install 'thetastream[bench]'")
        with tempfile.TemporaryDirectory() as drafts:
            options = ["-s", SCALE_FACTOR, "--tables=lineitem", f"--output-dir={drafts}"]
            subprocess.run([program, "parquet", *options], check=True, capture_output=True)
            table = pq.read_table(Path(drafts, "lineitem.parquet"))
        draft = folder.with_name(f"{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        size = -(-table.num_rows // FILES)
        for number in range(FILES):
            data.write(table.slice(number * size, size), draft / f"{number:06d}.parquet", number)
        draft.rename(folder)
    return folder


def duckdb_rows(folder: Path) -> int:
    """DuckDB's answer."""
    files = f"read_parquet('{folder}/*.parquet')"
    sql = f"SELECT count(*) FROM {files} l1, {files} l2 WHERE {CONDITION}"
    row = duckdb.connect().execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def thetastream_rows(folder: Path) -> int:
    """Thetastream's answer, both streams a file per epoch, results through a Parquet sink."""
    import thetastream as th

    spark = th.local_session(2, "bench-tpch", **{"spark.sql.session.timeZone": "UTC"})
    try:
        schema = spark.read.parquet(str(folder)).schema
        with tempfile.TemporaryDirectory(prefix="bench-tpch-") as scratch:
            one, two = (
                spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
                for _ in range(2)
            )
            pairs = th.join(
                {"l1": one, "l2": two}, on=CONDITION, within=None, model=th.Biclique(units=(1, 1))
            )
            writer = pairs.select(F.col("l1.l_orderkey").alias("l1"), F.col("l2.l_orderkey").alias("l2"))
            stream = writer.writeStream.format("parquet").option(
                "checkpointLocation", f"{scratch}/checkpoint"
            )
            query = stream.trigger(availableNow=True).start(f"{scratch}/pairs")
            query.awaitTermination()
            return spark.read.schema("l1 BIGINT, l2 BIGINT").parquet(f"{scratch}/pairs").count()
    finally:
        spark.stop()


def main(announce: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Both answers."""
    folder = lineitem()
    announce(f"data: {folder}")
    expected = duckdb_rows(folder)
    found = thetastream_rows(folder)
    return {
        "workload": "tpch-band",
        "on": CONDITION,
        "scale_factor": SCALE_FACTOR,
        "published": ROWS,
        "duckdb": expected,
        "thetastream": found,
        "is_correct": found == expected == ROWS,
        "machine": describe(),
    }


def markdown(found: dict[str, Any]) -> str:
    """The rows side by side."""
    return (
        f"### TPC-H Band, scale factor {found['scale_factor']}: `{found['on']}`\n\n"
        "| expected | DuckDB | Thetastream |\n|---|---|---|\n"
        f"| {found['published']} | {found['duckdb']} | {found['thetastream']} |\n"
    )
