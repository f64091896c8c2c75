"""Twice the capacity: ``python -m bench overload --minutes 10`` feeds a join more tuples than it can take.

    { (a, b) : |a.x - b.x| <= 1, a.y > b.y, 10 seconds apart at most }

First the capacity is measured: tuples per second of a join that always has input. Then the join gets
``--times`` as many, in real time, once with a shedder and once without. The source bounds an epoch
(``maxFilesPerTrigger``). With the shedder, epochs stay short, and as many pairs are found as the counters of
the shedder say. Without it, memory stays bounded, and the join falls behind.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.core.processes import measure_processes

ON, WINDOW_S = "abs(a.x - b.x) <= 1 AND a.y > b.y", 10
KEYS, VALUES = 100_000, 100
SHARE = 3 / KEYS * (VALUES - 1) / (2 * VALUES)
"""The share of all combinations that satisfy the condition, apart from its window."""
THRESHOLD_S, BOUND_S = 2, 10
"""Lag at which the shedder begins, and at which it drops everything."""
FILES_PER_EPOCH = 3
"""Seconds of input in an epoch."""
PROBE_FILES, PROBE_RATE = 30, 40_000
"""Files and tuples of each of them, by which the capacity is measured."""
LEAST_RECALL = 0.95
PARTS = 400
"""Parts of a run, between which pairs are counted."""
WARM_SHARE = 0.2
"""The share of a run before its figures count."""


def count_pairs(per_second: float, seconds: float) -> float:
    """Estimate the pairs of two streams of ``per_second`` tuples each, which run for some seconds.

    >>> round(count_pairs(1000, 5) / (1000**2 * 5**2 * SHARE), 3)
    1.0
    """
    reach_s = min(WINDOW_S, seconds)
    return SHARE * per_second**2 * (2 * reach_s * seconds - reach_s**2)


def write_second(folder: Path, second: int, begin_s: float, n: int, rng: np.random.Generator) -> None:
    """Write the tuples of one second, one file for each stream. Their event times begin at ``begin_s``."""
    for alias in "ab":
        ts = ((begin_s + np.sort(rng.random(n))) * 1e6).astype(np.int64)
        table = pa.table(
            {
                "id": second * 10_000_000 + np.arange(n),
                "x": rng.integers(0, KEYS, n),
                "y": rng.integers(0, VALUES, n),
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
            }
        )
        hidden = folder / alias / f".{second:06}.parquet"
        pq.write_table(table, hidden)
        hidden.rename(folder / alias / f"{second:06}.parquet")


def start(spark: Any, folder: Path, name: str, shed: Any, is_finite: bool) -> Any:
    """Start the join of the streams in a folder."""
    import thetastream as th

    streams = {}
    for alias in "ab":
        reader = spark.readStream.schema("id LONG, x LONG, y LONG, ts TIMESTAMP")
        reader = reader.option("maxFilesPerTrigger", FILES_PER_EPOCH)
        streams[alias] = reader.parquet(str(folder / alias)).withWatermark("ts", "2 seconds")
    pairs = th.join(streams, ON, f"{WINDOW_S} seconds", model=th.Biclique((1, 1)), shed=shed)
    writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("noop").queryName(name)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(
        **({"availableNow": True} if is_finite else {"processingTime": "0 seconds"})
    ).start()


def measure_capacity(spark: Any, folder: Path) -> tuple[float, float]:
    """Measure the tuples per second of the second half of a backlog, and the share of its pairs found."""
    import thetastream as th

    rng = np.random.default_rng(1)
    for second in range(PROBE_FILES):
        write_second(folder, second, 1_767_600_000 + second, PROBE_RATE, rng)
    query = start(spark, folder, "capacity", None, is_finite=True)
    query.awaitTermination()
    epochs = [one for one in th.metrics(query) if one["received"]]
    half = epochs[len(epochs) // 2 :]
    seconds = sum(one["durations_ms"]["triggerExecution"] for one in half) / 1000
    found = sum(one["matched"] for one in epochs)
    return sum(_count_tuples(one) for one in half) / seconds, found / count_pairs(PROBE_RATE, PROBE_FILES)


@dataclass(frozen=True)
class Overload:
    """One run at more than the capacity."""

    name: str
    seconds: float
    epoch_s_p50: float
    epoch_s_max: float
    lag_s: float
    """The lag of the last epoch."""
    shed: float
    """The share of the tuples that were dropped."""
    recall: float | None
    """Pairs found, as a share of all pairs; None if a part of the input was never read."""
    analytic: float
    """The share of the pairs that is kept, estimated from the tuples that the shedder dropped."""
    memory_mb: tuple[float, float]
    """Resident memory of the JVM and of Python: in the middle of the run and at its end, their sum."""


def overload(spark: Any, folder: Path, name: str, rate: float, minutes: float, shed: Any) -> Overload:
    """Feed both streams together ``rate`` tuples per second, in real time."""
    import thetastream as th

    rng, n = np.random.default_rng(2), round(rate / 2)
    begin_s = float(int(time.time()) + 1)
    write_second(folder, 0, begin_s - 1, n, rng)
    query = start(spark, folder, name, shed, is_finite=False)
    memory: list[float] = []
    for second in count(1):
        if second > 60 * minutes:
            break
        time.sleep(max(0.0, begin_s + second - time.time()))
        write_second(folder, second, begin_s + second - 1, n, rng)
        memory.append(sum(measure_processes(os.getpid())[:2]))
        if query.exception() is not None:
            query.awaitTermination()
    if shed is not None:
        query.processAllAvailable()
    # Units receive nothing of an epoch in which all tuples are dropped.
    epochs = [one for one in th.metrics(query) if _count_tuples(one)]
    query.stop()
    return describe_run(name, epochs, memory, n, shed is not None)


def describe_run(
    name: str, epochs: Sequence[dict[str, Any]], memory: Sequence[float], per_second: int, is_complete: bool
) -> Overload:
    """Compute the figures of a run from its metrics."""
    warm = epochs[round(WARM_SHARE * len(epochs)) :]
    times = [one["durations_ms"]["triggerExecution"] / 1000 for one in warm]
    tuples = [_count_tuples(one) for one in epochs]
    shed = sum(one["shed"] for one in epochs)
    seconds = len(memory) + 1
    found, pairs = sum(one["matched"] for one in epochs), count_pairs(per_second, seconds)
    return Overload(
        name,
        seconds,
        median(times),
        max(times),
        max(stream["lag_s"] or 0.0 for stream in epochs[-1]["streams"].values()),
        shed / sum(tuples),
        found / pairs if is_complete else None,
        estimate_recall(epochs, seconds),
        (memory[len(memory) // 2], memory[-1]),
    )


def estimate_recall(epochs: Sequence[dict[str, Any]], seconds: float) -> float:
    """Estimate the share of all pairs that is kept, from the shares of tuples that each epoch keeps.

    A pair of tuples of two epochs is kept with the product of both shares. Tuples arrive at a constant rate,
    so the run is cut into parts of equal numbers of tuples.
    """
    tuples = np.array([_count_tuples(one) for one in epochs], float)
    shares = 1 - np.array([one["shed"] for one in epochs]) / tuples
    part = np.arange(PARTS)
    kept = shares[np.searchsorted(np.cumsum(tuples) / tuples.sum(), (part + 0.5) / PARTS)]
    is_near = abs(part[:, None] - part[None, :]) <= PARTS * WINDOW_S / seconds
    return float((kept[:, None] * kept[None, :])[is_near].mean())


def _count_tuples(epoch: dict[str, Any]) -> int:
    """Count the tuples that an epoch brought, those that were dropped included."""
    return sum(one["timely"] + one["late"] + one["shed"] for one in epoch["streams"].values())


def describe(capacity: float, found: float, rate: float, runs: Sequence[Overload]) -> str:
    """Write the report in Markdown."""
    lines = [
        f"Capacity: {capacity:,.0f} tuples/s ({found:.3f} of the expected pairs). Fed: {rate:,.0f} tuples/s.",
        "",
        "| run | seconds | epoch, s: median | longest | lag at the end, s | dropped | pairs found | analytic "
        "| memory, MB: middle | end |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in runs:
        recall = "" if one.recall is None else f"{one.recall:.3f}"
        lines.append(
            f"| {one.name} | {one.seconds:.0f} | {one.epoch_s_p50:.2f} | {one.epoch_s_max:.2f} | "
            f"{one.lag_s:.1f} | {one.shed:.1%} | {recall} | {one.analytic:.3f} | "
            f"{one.memory_mb[0]:,.0f} | {one.memory_mb[1]:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Run, and write the report to ``out/overload``; return 1 if the shedder misses its bounds."""
    import thetastream as th

    parser = argparse.ArgumentParser(prog="python -m bench overload", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="length of each run (default 10)")
    parser.add_argument("--times", type=float, default=2.0, help="arrivals by capacity (default 2)")
    parser.add_argument(
        "--out", type=Path, default=Path("out/overload"), help="folder (default out/overload)"
    )
    asked = parser.parse_args(arguments)
    shutil.rmtree(asked.out, ignore_errors=True)
    for name in ("capacity", "shedder", "no shedder"):
        for alias in "ab":
            (asked.out / name / alias).mkdir(parents=True)
    spark = th.local_session(
        2, "overload", **{"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"}
    )
    capacity, found = measure_capacity(spark, (asked.out / "capacity").absolute())
    rate = asked.times * capacity
    announce(f"capacity {capacity:,.0f} tuples/s; feeding {rate:,.0f}")
    shed = th.Shed(f"{THRESHOLD_S} seconds", f"{BOUND_S} seconds", base=0.0, load="lag")
    runs = [
        overload(spark, (asked.out / name).absolute(), name, rate, asked.minutes, shedder)
        for name, shedder in (("shedder", shed), ("no shedder", None))
    ]
    spark.stop()
    text = describe(capacity, found, rate, runs)
    print(text)
    (asked.out / "report.md").write_text(text)
    (asked.out / "runs.json").write_text(json.dumps([vars(one) for one in runs]) + "\n")
    (shedder, _) = runs
    assert shedder.recall is not None
    is_exact = shedder.recall >= LEAST_RECALL * shedder.analytic
    return 0 if is_exact and shedder.epoch_s_max < BOUND_S else 1
