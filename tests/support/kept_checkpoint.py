"""The checkpoint of an earlier version, kept in ``tests/fixtures``: its query continues, or is refused.

    { (a.id, b.id) : |a.x - b.x| <= 2, |a.ts - b.ts| <= 1 minute }

``python -m tests.support.kept_checkpoint`` writes it anew, with the version and the state format of today:
two files of four are read. Spark writes absolute paths into its logs, so unpacking replaces their beginning.
"""

import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import thetastream as th

KEPT = Path(__file__).parents[1] / "fixtures" / "checkpoint.tar.gz"
PLACE = "/tmp/thetastream-kept-checkpoint"
"""Where the files lay when they were packed."""
FILES, PER_FILE, COMMITTED = 4, 40, 2
_FIRST_FILE_S = 1_700_000_000


def write_file(folder: Path, alias: str, number: int) -> None:
    """Write one file of a stream: 40 tuples, two seconds apart."""
    ids = range(number * PER_FILE, (number + 1) * PER_FILE)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([compute_x(alias, each) for each in ids], pa.int64()),
            "ts": pa.array(
                [(_FIRST_FILE_S + 2 * each) * 1_000_000 for each in ids], pa.timestamp("us", "UTC")
            ),
        }
    )
    path = folder / alias / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (_FIRST_FILE_S + number,) * 2)


def compute_x(alias: str, number: int) -> int:
    """Compute the value of a tuple."""
    return number * (7 if alias == "a" else 11) % 31


def find_pairs() -> Counter[tuple[int, int]]:
    """Find all pairs by a nested loop."""
    ids = range(FILES * PER_FILE)
    return Counter(
        (a, b)
        for a in ids
        for b in ids
        if abs(compute_x("a", a) - compute_x("b", b)) <= 2 and abs(2 * a - 2 * b) <= 60
    )


def run(spark: SparkSession, folder: Path) -> None:
    """Join what is there, and stop."""
    streams = {}
    for alias in "ab":
        reader = spark.readStream.schema("id LONG, x LONG, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
        streams[alias] = reader.parquet(str(folder / alias)).withWatermark("ts", "10 seconds")
    pairs = th.join(streams, on="abs(a.x - b.x) <= 2", within="1 minute", model=th.Biclique((1, 1)))
    writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = writer.start(str(folder / "pairs"))
    try:
        query.awaitTermination()
    finally:
        query.stop()


def unpack(folder: Path) -> None:
    """Unpack the kept files into a folder, and correct the paths in the logs of Spark."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.name.endswith(".crc"):
            path.unlink()
        elif path.is_file() and path.suffix not in (".parquet", ".sst", ".zip", ".changelog"):
            data = path.read_bytes()
            if PLACE.encode() in data:
                path.write_bytes(data.replace(PLACE.encode(), str(folder).encode()))
        if path.suffix == ".parquet" and path.parent.name in ("a", "b"):
            os.utime(path, (_FIRST_FILE_S + int(path.stem),) * 2)


def main() -> None:
    """Write the kept files anew."""
    folder = Path(PLACE)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for alias in "ab":
        for number in range(COMMITTED):
            write_file(folder, alias, number)
    spark = th.local_session(2, **{"spark.sql.session.timeZone": "UTC"})
    run(spark, folder)
    spark.stop()
    KEPT.parent.mkdir(exist_ok=True)
    with tarfile.open(KEPT, "w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if not path.name.endswith(".crc"):
                archive.add(path, path.relative_to(folder), recursive=False)
    shutil.rmtree(folder)
    print(f"{KEPT} has {KEPT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
