"""Measures the cost of a join beside its Python predicate: ``python -m bench predicate-cost``.

Three streams of images of 10,000 pixels are joined on a ring of two nodes in Spark. In epochs with a full
window, the CPU seconds of all processes are measured, those inside the predicate function, and its number of
pairs. Then the same function compares the same pairs, in the order in which each node met them, in bare loops
in as many processes at once. The difference is the cost of the join and of Spark.
"""

import argparse
import contextlib
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
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


class Call(NamedTuple):
    """A call of the predicate: when it ended, its CPU seconds, its aliases, and the ids of its pairs."""

    when: float
    seconds: float
    aliases: tuple[str, str]
    pairs: tuple[np.ndarray, np.ndarray]


def compare(mine: np.ndarray, i: np.ndarray, theirs: np.ndarray, j: np.ndarray) -> np.ndarray:
    found = np.empty(len(i), dtype=bool)
    for n, (row, other) in enumerate(zip(i, j, strict=True)):
        p, q = mine[row], theirs[other]
        found[n] = (np.maximum(p, q) - np.minimum(p, q)).mean() < THRESHOLD
    return found


def alike(left: str, right: str, log: Path) -> Any:
    """Make the predicate over two aliases. Each process logs its calls in a file of its own."""

    @th.predicate("dictionary", **{left: ["img", "id"], right: ["img", "id"]})
    def close(**sides: Any) -> np.ndarray:
        start = time.process_time()
        (mine, i), (theirs, j) = (
            (pixels(sides[alias].img.dictionary), np.asarray(sides[alias].img.indices))
            for alias in (left, right)
        )
        found = compare(mine, i, theirs, j)
        seconds = time.process_time() - start
        mine, theirs = (np.asarray(sides[alias].id.dictionary) for alias in (left, right))
        # An open file would not travel to Spark's workers: planning calls the predicate before it is sent.
        with (log / f"{os.getpid()}").open("ab") as file:
            pickle.dump((time.time(), seconds, (left, right), (mine[i], theirs[j])), file)
        return found

    return close


def draw(seed: int) -> Iterator[pa.Table]:
    """Draw the images of a stream, one table for each epoch."""
    random, began = np.random.default_rng([5, seed]), 0
    for epoch in range(EPOCHS):
        n = PER_WARM if epoch < WARM else PER_EPOCH
        images = [random.integers(0, 256, PIXELS, np.uint8).tobytes() for _ in range(n)]
        stamps = pa.array(np.full(n, (epoch + 1) * 10**6), pa.timestamp("us", "UTC"))
        columns = [pa.array(np.arange(n) + began), stamps, pa.array(images, pa.binary())]
        yield pa.table(columns, ["id", "ts", "img"])
        began += n


def read_calls(path: Path, begun: float, ended: float) -> Iterator[Call]:
    """Read the calls of a process between two times."""
    with path.open("rb") as file, contextlib.suppress(EOFError):
        while True:
            call = Call(*pickle.load(file))
            if begun < call.when <= ended:
                yield call


def run_bare_loop(folder: Path, path: Path, begun: float, ended: float) -> float:
    """Measure the CPU seconds of the function over the pairs of a process, in their order."""
    images = {}
    for alias in ALIASES:
        table = pq.read_table(sorted((folder / alias).glob("*.parquet")), columns=["img"])
        images[alias] = pixels(table["img"])
    calls = list(read_calls(path, begun, ended))
    start = time.process_time()
    for call in calls:
        (left, right), (i, j) = call.aliases, call.pairs
        compare(images[left], i, images[right], j)
    return time.process_time() - start


def read_cpu_seconds() -> dict[str, float]:
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


def run_query(clock: Clock, folder: Path, files: Path, log: Path) -> tuple[float, float, dict[str, float]]:
    """Run the join; return when the measured epochs began and ended, and their CPU seconds by process."""
    ring = th.Ring(2, order={"a": ["b", "c"], "b": ["a", "c"], "c": ["b", "a"]})
    on = [alike("a", "b", log), alike("b", "c", log)]
    streams = spark.streams(clock.session(), files, ALIASES)
    joined = th.join(streams, on, f"{WINDOW - 1} seconds", ring, mailbox=str(folder / "mail"))
    checkpoint = folder / "checkpoint"
    query = spark.start(joined.select("a.id", "b.id", "c.id"), checkpoint, [F.count(F.lit(1)).alias("rows")])
    wait_for(checkpoint, SKIPPED, query)
    begun, before = time.time(), read_cpu_seconds()
    wait_for(checkpoint, EPOCHS - 1, query)
    ended, after = time.time(), read_cpu_seconds()
    query.awaitTermination()
    return begun, ended, {kind: after[kind] - before[kind] for kind in after}


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m bench predicate-cost", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-calls-") as name, contextlib.closing(Clock()) as clock:
        log = Path(name, "log")
        log.mkdir()
        files = clock.files("calls", lambda: {alias: draw(seed) for seed, alias in enumerate(ALIASES)})
        announce("joining images in Spark")
        begun, ended, spent = run_query(clock, Path(name), files, log)
        # 1. The CPU time of the epochs.
        calls = [call for path in log.iterdir() for call in read_calls(path, begun, ended)]
        # 2. The CPU time of bare loops.
        announce("comparing the same pairs in bare loops")
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            asked = [(files, path, begun, ended) for path in log.iterdir()]
            bare_seconds = sum(pool.starmap(run_bare_loop, asked, chunksize=1))
    seconds, pairs = sum(call.seconds for call in calls), sum(len(call.pairs[0]) for call in calls)
    spent["Python workers"] -= seconds
    cpu = seconds + sum(spent.values())
    print(f"{pairs:,} pairs in {len(calls):,} calls, {EPOCHS - 1 - SKIPPED} epochs, {ended - begun:.1f} s")
    beside = ", ".join(f"{kind} {part:.1f} s" for kind, part in spent.items())
    print(f"CPU {cpu:.1f} s, {seconds:.1f} s of it in the predicate: {seconds / cpu:.0%}; beside it {beside}")
    each, bare = cpu / pairs * 1e6, bare_seconds / pairs * 1e6
    print(f"{each:.1f} us CPU a pair in all, {bare:.1f} us in bare loops: {each / bare:.2f} times")
    return 0


# Spark's workers cannot import this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
