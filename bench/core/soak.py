"""Days in an hour: ``python -m bench soak --minutes 60`` runs a join, a chain and a ring side by side.

One second of the clock is one minute of event time. Three streams have bursts, pauses, a hot key that
wanders, disorder, and tuples that are a day late. The program is killed or stopped every few minutes and
started again. In the end, every answer is compared with DuckDB's over the same files, and the report says how
memory, descriptors, files, state and the time of an epoch grew.

    pairs, chain   { (a, b) : |a.x - b.x| <= 1, a.y > b.y, 10 minutes apart at most }
    ring           { (a, b, c) : a.x = b.x = c.x, a.y > c.y, 3 minutes apart at most }
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.core.processes import measure_processes

SPEED = 60
"""Seconds of event time in a second of the clock."""
PER_TICK, BURST = 60, 5
DISORDER_S, DELAY = 90, "2 minutes"
"""Disorder is shorter than the delay, so that only tuples that are meant to be late are late."""
SAMPLE_S = 2.0
FLAT = 0.2
"""A figure is flat if its straight line grows by at most this share over the measured part of the run."""
LEAST_S = 1800
"""A shorter run shows nothing about growth, so its figures have no verdict."""
START_US = 1_767_600_000_000_000
DAY_US = 86_400_000_000
QUERIES = {
    "pairs": ("abs(a.x - b.x) <= 1 AND a.y > b.y", "10 minutes"),
    "chain": ("abs(a.x - b.x) <= 1 AND a.y > b.y", "10 minutes"),
    "ring": ("a.x = b.x AND b.x = c.x AND a.y > c.y", "3 minutes"),
}


# The streams


def draw(stream: str, tick: int, is_late: bool, rng: np.random.Generator) -> pa.Table | None:
    """Draw the tuples of a stream in one second; None if it pauses."""
    if stream != "a" and tick % 120 in range(100, 110):
        return None
    n = PER_TICK * (BURST if tick % 100 in range(60, 75) else 1)
    hot = 500 + 400 * np.sin(tick / 120)
    x = np.where(rng.random(n) < 0.5, rng.normal(hot, 30, n), rng.uniform(0, 1000, n)).astype(np.int64)
    seconds = tick * SPEED + rng.uniform(0, SPEED, n) - rng.uniform(0, DISORDER_S, n)
    ts = START_US + (seconds * 1e6).astype(np.int64)
    late = np.zeros(n, bool)
    if is_late:
        late[0] = True
        ts[0] -= DAY_US
    ids = tick * 100_000 + np.arange(n)
    columns = {
        "id": ids,
        "x": x,
        "y": rng.integers(0, 100, n),
        "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
    }
    return pa.table({**columns, "late": late})


def write_tick(folder: Path, tick: int, is_late: bool, rng: np.random.Generator) -> None:
    """Write one file for each stream, so that Spark sees it only when it is whole."""
    for stream in "abc":
        table = draw(stream, tick, is_late, rng)
        if table is not None:
            hidden = folder / stream / f".{tick:06}.parquet"
            pq.write_table(table, hidden)
            hidden.rename(folder / stream / f"{tick:06}.parquet")


# The program that is killed


def run_queries(folder: Path, catch_up: bool) -> None:
    """Run all queries: until SIGTERM, or until their input is read."""
    import thetastream as th

    spark = th.local_session(2, "soak", **{"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"})
    th.export_metrics(spark, port=None, json_lines=folder / "metrics.jsonl")
    models = {"pairs": th.Biclique((1, 1)), "chain": th.Chain(2), "ring": th.Ring(2)}
    queries = []
    for name, (on, within) in QUERIES.items():
        aliases = "abc" if name == "ring" else "ab"
        streams = {}
        for alias in aliases:
            reader = spark.readStream.schema("id LONG, x LONG, y LONG, ts TIMESTAMP")
            reader = reader.option("maxFilesPerTrigger", 30)
            streams[alias] = reader.parquet(str(folder / alias)).withWatermark("ts", DELAY)
        mailbox = str(folder / "mailboxes") if name != "pairs" else None
        cache = str(folder / "cache")
        joined = th.join(streams, on, within, model=models[name], mailbox=mailbox, cache_folder=cache)
        rows = joined.selectExpr(*(f"{alias}.id AS {alias}" for alias in aliases))
        writer = rows.writeStream.queryName(name).format("parquet")
        writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name))
        writer = writer.trigger(availableNow=True) if catch_up else writer.trigger(processingTime="1 second")
        queries.append(writer.start(str(folder / "results" / name)))
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    while not stopped and any(query.isActive for query in queries):
        time.sleep(0.2)
        for query in queries:
            if not query.isActive and query.exception() is not None:
                query.awaitTermination()
    for query in queries:
        query.stop()
    spark.stop()


@dataclass
class Program:
    """The program as a process, which leads its own process group."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, catch_up: bool = False) -> None:
        command = [sys.executable, "-m", "bench.core.soak", str(self.folder), str(int(catch_up))]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end(self, is_kill: bool) -> None:
        """Kill the whole group, or ask the program to stop."""
        assert self.process is not None
        if not is_kill:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(120)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Raise if the program has ended by itself."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the program has ended: {(self.folder / 'log').read_text()[-3000:]}")


# Samples


@dataclass
class Sample:
    """What the program uses at one time."""

    second: float
    java_mb: float
    python_mb: float
    descriptors: int
    files: int
    """Files of state, mailboxes and cache. The logs of Spark's file source grow by design."""


def take_sample(program: Program, second: float) -> Sample | None:
    """Measure the processes and files of the program; None if it is between two runs."""
    assert program.process is not None
    usage = measure_processes(program.process.pid)
    if not usage.java_mb:
        return None
    folders = [
        *program.folder.glob("checkpoints/*/state"),
        program.folder / "mailboxes",
        program.folder / "cache",
    ]
    files = sum(len(names) for folder in folders for _, _, names in os.walk(folder))
    return Sample(second, *usage, files)


@dataclass
class Soak:
    """A run, and what it found."""

    minutes: float
    restarts: int = 0
    kills: int = 0
    samples: list[Sample] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each query the number of results, and of rows that are too many or too few."""


def soak(folder: Path, minutes: float, restart_s: float, announce: Callable[[str], None]) -> Soak:
    """Run the program, write its streams, end it now and then, and compare its answers."""
    shutil.rmtree(folder, ignore_errors=True)
    for stream in "abc":
        (folder / stream).mkdir(parents=True)
    rng, found, program = np.random.default_rng(1), Soak(minutes), Program(folder)
    write_tick(folder, 0, False, rng)
    program.start()
    begin = sampled = restarted = time.monotonic()
    tick, has_begun = 0, False
    try:
        while time.monotonic() - begin < 60 * minutes:
            tick += 1
            time.sleep(max(0.0, begin + tick - time.monotonic()))
            has_begun = has_begun or has_watermarks(folder)
            write_tick(folder, tick, has_begun, rng)
            now = time.monotonic()
            if now - sampled > SAMPLE_S:
                program.check()
                sample, sampled = take_sample(program, now - begin), now
                found.samples += [sample] if sample else []
            if has_begun and now - restarted > restart_s:
                is_kill = found.restarts % 2 == 0
                program.end(is_kill)
                program.start()
                restarted = now
                found.restarts += 1
                found.kills += is_kill
                announce(f"{now - begin:,.0f} s: {'killed' if is_kill else 'stopped'} and started again")
        program.end(False)
        announce("reading what is left")
        program.start(catch_up=True)
        assert program.process is not None
        if program.process.wait(1800):
            raise RuntimeError(f"catching up failed: {(folder / 'log').read_text()[-3000:]}")
    finally:
        program.end(True)
    found.epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found.answers = {name: compare(folder, name) for name in QUERIES}
    return found


def has_watermarks(folder: Path) -> bool:
    """Whether every query has a watermark, so that a tuple of yesterday is late."""
    for name in QUERIES:
        commits = folder / "checkpoints" / name / "commits"
        numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
        if len(numbers) < 3 or '"nextBatchWatermarkMs":0' in (commits / str(max(numbers))).read_text():
            return False
    return True


def compare(folder: Path, name: str) -> tuple[int, int]:
    """Compare an answer with DuckDB's: the number of rows, and of those that are too many or too few."""
    import duckdb

    aliases = "abc" if name == "ring" else "ab"
    on, within = QUERIES[name]
    paths = [
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "results" / name / "_spark_metadata").iterdir()
        if log.name.removesuffix(".compact").isdecimal()
        for line in log.read_text().splitlines()[1:]
    ]
    database = duckdb.connect()
    for alias in aliases:
        source = f"read_parquet('{folder}/{alias}/*.parquet')"
        database.execute(f"CREATE VIEW {alias} AS SELECT * FROM {source} WHERE NOT late")
    times = [f"{alias}.ts" for alias in aliases]
    apart = f"greatest({', '.join(times)}) - least({', '.join(times)}) <= INTERVAL '{within}'"
    ids = ", ".join(f"{alias}.id AS {alias}" for alias in aliases)
    database.execute(
        f"CREATE TABLE expected AS SELECT {ids} FROM {', '.join(aliases)} WHERE {on} AND {apart}"
    )
    names = ", ".join(aliases)
    database.execute(f"CREATE TABLE found AS SELECT {names} FROM read_parquet($1)", [sorted(set(paths))])
    wrong = sum(
        database.execute(f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})").fetchone()[0]
        for one, other in (("expected", "found"), ("found", "expected"))
    )
    return int(database.execute("SELECT count(*) FROM found").fetchone()[0]), int(wrong)


# The report


@dataclass(frozen=True)
class Growth:
    """The straight line through a figure over the second half of the run."""

    name: str
    mean: float
    share: float
    """By how much the line grows from its beginning to its end, as a share of the mean."""


def find_growth(name: str, seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """Fit a straight line to the second half of the run.

    >>> find_growth("files", range(10), [5.0] * 5 + [10, 11, 12, 13, 14])
    Growth(name='files', mean=12.0, share=0.333)
    """
    half = [n for n, second in enumerate(seconds) if second >= (seconds[0] + seconds[-1]) / 2]
    x, y = np.array([seconds[n] for n in half], float), np.array([values[n] for n in half], float)
    slope = float(np.polyfit(x, y, 1)[0]) if len(half) > 1 else 0.0
    mean = float(y.mean())
    return Growth(name, round(mean, 3), round(slope * float(x[-1] - x[0]) / mean, 3) if mean else 0.0)


def list_growths(found: Soak) -> list[Growth]:
    """Find the growth of every figure."""
    seconds = [sample.second for sample in found.samples]
    growths = [
        find_growth(name, seconds, [getattr(sample, name) for sample in found.samples])
        for name in ("java_mb", "python_mb", "descriptors", "files")
    ]
    for query in QUERIES:
        epochs = [one for one in found.epochs if one["query"] == query and one["received"]]
        numbers = list(range(len(epochs)))
        for name, values in (
            ("state, MB", [one["state_bytes"] / 1e6 for one in epochs]),
            ("epoch, s", [one["durations_ms"].get("triggerExecution", 0) / 1000 for one in epochs]),
        ):
            growths.append(find_growth(f"{query}: {name}", numbers, values))
    return growths


def describe(found: Soak) -> str:
    """Write the report in Markdown."""
    lines = [
        f"{found.minutes:g} minutes, which are {found.minutes / 24:.1f} days of event time; "
        f"{found.restarts} restarts, {found.kills} of them after SIGKILL.",
        "",
        "| query | results | wrong |",
        "|---|---|---|",
        *(f"| {name} | {rows:,} | {wrong:,} |" for name, (rows, wrong) in found.answers.items()),
        "",
        "| figure | mean of the second half | growth over it | |",
        "|---|---|---|---|",
    ]
    for growth in list_growths(found):
        verdict = "" if 60 * found.minutes < LEAST_S else "flat" if growth.share <= FLAT else "grows"
        lines.append(f"| {growth.name} | {growth.mean:,.2f} | {growth.share:+.0%} | {verdict} |")
    return "\n".join(lines) + "\n"


def draw_figures(found: Soak, path: Path) -> None:
    """Draw memory, files and the time of an epoch over the run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(9, 8), layout="constrained")
    seconds = [sample.second for sample in found.samples]
    for name in ("java_mb", "python_mb"):
        axes[0].plot(seconds, [getattr(sample, name) for sample in found.samples], label=name)
    for name in ("descriptors", "files"):
        axes[1].plot(seconds, [getattr(sample, name) for sample in found.samples], label=name)
    for query in QUERIES:
        epochs = [one for one in found.epochs if one["query"] == query]
        axes[2].plot([one["durations_ms"].get("triggerExecution", 0) / 1000 for one in epochs], label=query)
    for axis, title in zip(axes, ("memory, MB", "count", "seconds of an epoch, by epoch"), strict=True):
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.savefig(path)
    plt.close(figure)


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Run, and write report, samples and figures to ``out/soak``; return 1 if an answer is wrong or grows."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (default 60)")
    parser.add_argument(
        "--restart-seconds", type=float, default=180.0, help="time between restarts (default 180)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="folder (default out/soak)")
    asked = parser.parse_args(arguments)
    found = soak((asked.out / "run").absolute(), asked.minutes, asked.restart_seconds, announce)
    text = describe(found)
    print(text)
    (asked.out / "report.md").write_text(text)
    (asked.out / "samples.json").write_text(json.dumps([asdict(one) for one in found.samples]) + "\n")
    draw_figures(found, asked.out / "soak.png")
    is_wrong = any(wrong for _, wrong in found.answers.values())
    grows = 60 * found.minutes >= LEAST_S and any(growth.share > FLAT for growth in list_growths(found))
    return int(is_wrong or grows)


if __name__ == "__main__":
    run_queries(Path(sys.argv[1]), sys.argv[2] == "1")
