"""What a Python predicate costs beside itself: ``python -m bench.psp.calls``.

Three streams of images of 10,000 pixels on a ring of two nodes in Spark. Counted are the CPU seconds of all
processes (driver's JVM, Python workers) in epochs with a full window, those spent inside the predicate
function, and the pairs it was asked about; beside them a bare NumPy loop over such pairs in one process.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import thetastream as th
from bench import spark_run
from bench.footprint import cpu_seconds_of_tree

PIXELS, PER_EPOCH, WINDOW, EPOCHS, SKIPPED = 10_000, 120, 6, 11, 6
THRESHOLD = 83.6
"""Mean difference of pixels below which images are alike: two of a thousand random pairs are."""
ALIASES = "abc"


def pixels(column: pa.DictionaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Images as a matrix that is not copied, and for each candidate its row."""
    values = column.dictionary
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return data.reshape(len(values), PIXELS), np.asarray(column.indices)


def difference(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Mean absolute difference of pixels, along the last axis."""
    return (np.maximum(mine, theirs) - np.minimum(mine, theirs)).mean(axis=-1)


def alike(left: str, right: str, log: Path) -> Any:
    """The predicate over two aliases; notes its CPU seconds and pairs, one file a process."""

    @th.predicate("dictionary", **{left: ["img"], right: ["img"]})
    def close(**sides: Any) -> np.ndarray:
        start = time.process_time()
        (mine, i), (theirs, j) = pixels(sides[left].img), pixels(sides[right].img)
        found = np.empty(len(i), dtype=bool)
        for n, (row, other) in enumerate(zip(i, j, strict=True)):
            found[n] = difference(mine[row], theirs[other]) < THRESHOLD
        with (log / str(os.getpid())).open("a") as file:
            file.write(json.dumps([time.time(), time.process_time() - start, len(i)]) + "\n")
        return found

    return close


def files(folder: Path) -> None:
    """One file of each stream an epoch."""
    random = np.random.default_rng(5)
    for alias in ALIASES:
        (folder / alias).mkdir()
        for epoch in range(EPOCHS):
            stamps = pa.array(np.full(PER_EPOCH, (epoch + 1) * 10**6), pa.timestamp("us", "UTC"))
            images = [random.integers(0, 256, PIXELS, np.uint8).tobytes() for _ in range(PER_EPOCH)]
            ids = np.arange(PER_EPOCH) + epoch * PER_EPOCH
            path = folder / alias / f"{epoch:04d}.parquet"
            pq.write_table(pa.table({"id": ids, "ts": stamps, "img": pa.array(images, pa.binary())}), path)
            os.utime(path, (1_600_000_000 + epoch, 1_600_000_000 + epoch))


def bare_loop() -> float:
    """CPU seconds a pair of the same function in a loop of NumPy rows."""
    random = np.random.default_rng(6)
    mine, theirs = (random.integers(0, 256, (200, PIXELS), np.uint8) for _ in range(2))
    start, n = time.process_time(), 0
    for row in mine:
        for other in theirs:
            n += bool(difference(row, other) < THRESHOLD) or 1
    return (time.process_time() - start) / len(mine) / len(theirs)


def main() -> None:
    """Run and print."""
    folder = Path(tempfile.mkdtemp(prefix="bench-calls-"))
    log = folder / "log"
    log.mkdir()
    files(folder)
    spark = th.local_session(2, "bench-calls", **spark_run.CONF)
    streams = {
        alias: spark.readStream.schema("id long, ts timestamp, img binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / alias))
        .withWatermark("ts", "0 seconds")
        for alias in ALIASES
    }
    on = [alike("a", "b", log), alike("b", "c", log)]
    joined = th.join(
        streams,
        on,
        f"{WINDOW - 1} seconds",
        th.Ring(2, order={"b": ["a", "c"]}),
        mailbox=str(folder / "mail"),
    )
    writer = joined.select("a.id", "b.id", "c.id").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    loops = [bare_loop()]
    while not query.lastProgress or query.lastProgress["batchId"] < SKIPPED:
        query.awaitTermination(0.05)
    begun, cpu = time.time(), cpu_seconds_of_tree()
    while query.lastProgress["batchId"] < EPOCHS - 1:
        query.awaitTermination(0.05)
    ended, cpu = time.time(), cpu_seconds_of_tree() - cpu
    query.awaitTermination()
    loops.append(bare_loop())
    calls = [json.loads(line) for path in log.iterdir() for line in path.read_text().splitlines()]
    inside = [(seconds, pairs) for when, seconds, pairs in calls if begun < when <= ended]
    seconds, pairs = (sum(part) for part in zip(*inside, strict=True))
    print(f"{pairs:,} pairs in {EPOCHS - 1 - SKIPPED} epochs, {ended - begun:.1f} s")
    print(f"CPU {cpu:.1f} s, {seconds:.1f} s of it in the predicate: {seconds / cpu:.0%}")
    each, bare = cpu / pairs * 1e6, min(loops) * 1e6
    print(f"{each:.1f} us CPU a pair in all, {bare:.1f} us in a bare loop: {each / bare:.2f} times")
    spark.stop()


if __name__ == "__main__":
    main()
