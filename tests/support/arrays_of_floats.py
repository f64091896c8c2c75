"""Joins two streams of rows with arrays of 384 floats by a Python predicate, and prints its memory.

    python -m tests.support.arrays_of_floats ROWS PERCENT

It prints the results, and the largest sum of the bytes in memory of the JVM and of all Python workers. Pages
that forked workers share count once.
"""

import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import thetastream as th

FLOATS = 384


def write_rows(folder: Path, n: int) -> None:
    folder.mkdir()
    times = pa.array(np.arange(n) * 1_000 + 1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    values = pa.array(np.random.default_rng(7).normal(size=n * FLOATS).astype(np.float32))
    arrays = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * FLOATS, values)
    pq.write_table(pa.table({"id": np.arange(n), "ts": times, "v": arrays}), folder / "rows.parquet")


def watch(peak: list[int]) -> None:
    """Note the largest sum of the proportional set sizes of the processes below this one."""
    while True:
        total = 0
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                # The JVM forks itself for a moment to start a program. The copy has all of its memory.
                total += child.memory_full_info().pss if child.name().startswith(("java", "python")) else 0
        peak[0] = max(peak[0], total)
        threading.Event().wait(0.1)


def main(n: int, percent: int) -> None:
    @th.predicate(a=["id", "v"], b=["id", "v"])
    def is_chosen(a, b):  # type: ignore[no-untyped-def]
        numbers = np.asarray(a.id) * 7919 + np.asarray(b.id) * 104_729
        return pa.array(numbers % 10_000 < percent * 100)

    peak = [0]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        spark = th.local_session(2, **{"spark.driver.memory": "1g"})
        threading.Thread(target=watch, args=(peak,), daemon=True).start()
        streams = {}
        for alias in "ab":
            write_rows(base / alias, n)
            stream = spark.readStream.schema("id bigint, ts timestamp, v array<float>").parquet(
                str(base / alias)
            )
            streams[alias] = stream.withWatermark("ts", "1 minute")
        joined = th.join(streams, on=is_chosen, within="1 hour")
        writer = joined.writeStream.format("noop").option("checkpointLocation", str(base / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        print(sum(entry["matched"] for entry in th.metrics(query)), peak[0])
        spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
