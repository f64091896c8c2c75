"""Measures the cost of a join beside its Python predicate: ``python -m bench predicate-cost``.

Three streams of images of 10,000 pixels on a ring of two nodes in Spark. Counted are the CPU seconds of all
processes in epochs with a full window, those spent inside the predicate function, and the pairs it was asked
about. Then the same function runs over the very same pairs in the order in which each node met them, in bare
loops in as many processes at once: what is left is the join's, Spark's included.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

import thetastream as th
from bench.core import data, spark
from bench.core.machine import process_tree
from bench.papers.psp.images import pixels

PIXELS, PER_EPOCH, WINDOW = 10_000, 120, 6
WARM, PER_WARM = 12, 12
"""Number of epochs in which the JVM compiles its code, and of tuples of a stream in each of them."""
SKIPPED = WARM + WINDOW
EPOCHS = SKIPPED + 5
THRESHOLD = 83.6
"""The mean difference of pixels below which images match. Two of a thousand random pairs match."""
ALIASES = "abc"


def compare(mine: np.ndarray, i: np.ndarray, theirs: np.ndarray, j: np.ndarray) -> np.ndarray:
    found = np.empty(len(i), dtype=bool)
    for n, (row, other) in enumerate(zip(i, j, strict=True)):
        p, q = mine[row], theirs[other]
        found[n] = (np.maximum(p, q) - np.minimum(p, q)).mean() < THRESHOLD
    return found


def alike(left: str, right: str, log: Path) -> Any:
    """Make the predicate over two aliases. It logs its CPU seconds and pairs in two files that stay open."""
    logs: list[Any] = []

    @th.predicate("dictionary", **{left: ["img", "id"], right: ["img", "id"]})
    def close(**sides: Any) -> np.ndarray:
        start = time.process_time()
        (mine, i), (theirs, j) = (
            (pixels(sides[alias].img.dictionary), np.asarray(sides[alias].img.indices))
            for alias in (left, right)
        )
        found = compare(mine, i, theirs, j)
        seconds = time.process_time() - start
        if not logs:
            logs.extend((log / f"{os.getpid()}.{kind}").open("ab", buffering=0) for kind in ("json", "pairs"))
        ids = [np.asarray(sides[alias].id.dictionary)[rows] for alias, rows in ((left, i), (right, j))]
        logs[0].write(json.dumps([time.time(), seconds, len(i), left, right]).encode() + b"\n")
        logs[1].write(np.stack(ids).astype(np.int32).tobytes())
        return found

    return close


def write_streams(folder: Path) -> None:
    random = np.random.default_rng(5)
    for alias in ALIASES:
        (folder / alias).mkdir()
        began = 0
        for epoch in range(EPOCHS):
            n = PER_WARM if epoch < WARM else PER_EPOCH
            images = [random.integers(0, 256, PIXELS, np.uint8).tobytes() for _ in range(n)]
            stamps = pa.array(np.full(n, (epoch + 1) * 10**6), pa.timestamp("us", "UTC"))
            columns = [pa.array(np.arange(n) + began), stamps, pa.array(images, pa.binary())]
            table = pa.table(columns, ["id", "ts", "img"])
            data.write(table, folder / alias / f"{epoch:04d}.parquet", epoch)
            began += n


def calls_of(path: Path, begun: float, ended: float) -> list[tuple[float, str, str, np.ndarray]]:
    """Read the calls of a process between two times: CPU seconds, aliases, ids of pairs in order."""
    calls, place = [], 0
    pairs = np.fromfile(path.with_suffix(".pairs"), np.int32)
    for line in path.read_text().splitlines():
        when, seconds, n, left, right = json.loads(line)
        if begun < when <= ended:
            calls.append((seconds, left, right, pairs[place : place + 2 * n].reshape(2, n)))
        place += 2 * n
    return calls


def bare_loop(folder: Path, path: Path, begun: float, ended: float) -> float:
    """Measure the CPU seconds of the function over the pairs of a process, in their order."""
    images = {}
    for alias in ALIASES:
        table = pq.read_table(sorted((folder / alias).glob("*.parquet")), columns=["img"])
        images[alias] = pixels(table["img"])
    calls = calls_of(path, begun, ended)
    start = time.process_time()
    for _, left, right, (i, j) in calls:
        compare(images[left], i, images[right], j)
    return time.process_time() - start


def cpu_seconds() -> dict[str, float]:
    """Add the CPU times so far of this process and its descendants by kind, also of those that have ended."""
    found: dict[str, float] = defaultdict(float)
    driver, *others = process_tree()
    for member in others:
        with contextlib.suppress(psutil.Error):
            times, kind = member.cpu_times(), "JVM" if "java" in member.name() else "Python workers"
            found[kind] += times.user + times.system
            found["processes that ended"] += times.children_user + times.children_system
    times = driver.cpu_times()
    found["driver"] = times.user + times.system
    return found


def wait_for(checkpoint: Path, epoch: int, query: Any) -> None:
    """Wait until an epoch is committed, without giving the measured JVM any work."""
    while not (checkpoint / "commits" / str(epoch)).exists():
        if not query.isActive and query.exception() is not None:
            raise query.exception()
        time.sleep(0.05)


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="bench-calls-"))
    log, checkpoint = folder / "log", folder / "checkpoint"
    log.mkdir()
    write_streams(folder)
    session = th.local_session(2, "bench-calls", **spark.CONF)
    ring = th.Ring(2, order={"a": ["b", "c"], "b": ["a", "c"], "c": ["b", "a"]})
    on = [alike("a", "b", log), alike("b", "c", log)]
    streams = spark.streams(session, folder, ALIASES)
    joined = th.join(streams, on, f"{WINDOW - 1} seconds", ring, mailbox=str(folder / "mail"))
    writer = joined.select("a.id", "b.id", "c.id").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    wait_for(checkpoint, SKIPPED, query)
    begun, before = time.time(), cpu_seconds()
    wait_for(checkpoint, EPOCHS - 1, query)
    ended, after = time.time(), cpu_seconds()
    query.awaitTermination()
    session.stop()
    # 1. The CPU time of the epochs.
    logs = sorted(log.glob("*.json"))
    inside = [call for path in logs for call in calls_of(path, begun, ended)]
    seconds, pairs = sum(call[0] for call in inside), sum(call[3].shape[1] for call in inside)
    spent: dict[str, float] = {kind: after[kind] - before[kind] for kind in after}
    spent["Python workers"] -= seconds
    cpu = seconds + sum(spent.values())
    print(f"{pairs:,} pairs in {len(inside):,} calls, {EPOCHS - 1 - SKIPPED} epochs, {ended - begun:.1f} s")
    beside = ", ".join(f"{kind} {part:.1f} s" for kind, part in spent.items())
    print(f"CPU {cpu:.1f} s, {seconds:.1f} s of it in the predicate: {seconds / cpu:.0%}; beside it {beside}")
    # 2. The CPU time of bare loops.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        loops = pool.starmap(bare_loop, [(folder, path, begun, ended) for path in logs], chunksize=1)
    each, bare = cpu / pairs * 1e6, sum(loops) / pairs * 1e6
    print(f"{each:.1f} us CPU a pair in all, {bare:.1f} us in bare loops: {each / bare:.2f} times")
    return 0


# Spark's workers cannot import this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
