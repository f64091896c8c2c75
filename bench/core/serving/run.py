"""Runs the join, the service and its clients, and reports what they took."""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil

import bench.core.serving as package
from bench.core.serving.crowd import Crowd
from bench.core.serving.query import write_second

WARM_EPOCHS = 20
"""Epochs of the join before anything is measured."""
SAMPLE_S = 2.0
P99_MS, EPOCH_RATIO = 250.0, 1.1
"""The targets: the 99th percentile of a keyed question, and an epoch beside clients over one alone."""


@dataclass
class Measured:
    """What a run has found."""

    minutes: float
    subscribers: int
    askers: int
    rate: int
    at_once: bool = False
    """Whether all askers ask in the same moment of each second. Otherwise each has a moment of its own."""
    load: list[float] = field(default_factory=list)
    """The load averages of the last minute, at the beginning of each part and at the end."""
    alone_s: list[float] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)
    """How long each epoch took, alone and beside clients, in seconds."""
    answer_ms: list[float] = field(default_factory=list)
    n_rows: int = 0
    n_events: int = 0
    errors: list[str] = field(default_factory=list)
    service_mb: list[float] = field(default_factory=list)
    """The resident memory of the service and its processes, every two seconds."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """The CPU time of the join, the service and the clients, beside each other."""


def describe(found: Measured) -> str:
    """Write the report in Markdown."""
    p50, p99, longest = (float(np.percentile(found.answer_ms or [0], p)) for p in (50, 99, 100))
    alone, beside = float(np.median(found.alone_s)), float(np.median(found.beside_s))
    thirds = [float(np.mean(part)) for part in np.array_split(np.array(found.service_mb), 3) if len(part)]
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found.cpu_s.items())
    return "\n".join(
        [
            f"{found.minutes:g} minutes, {found.subscribers} subscribers, {found.askers} askers with a "
            f"question a second each{', all in the same moment' * found.at_once}, and two streams of "
            f"{found.rate:,} tuples/s.",
            "",
            "| figure | value | target |",
            "|---|---|---|",
            f"| keyed questions | {len(found.answer_ms):,}, {found.n_rows:,} rows | |",
            f"| p50, p99, longest | {p50:.0f}, {p99:.0f}, {longest:.0f} ms | p99 <= {P99_MS:.0f} ms |",
            f"| events to subscribers | {found.n_events:,} | |",
            f"| errors, gaps, doubles | {len(found.errors)} | 0 |",
            f"| epoch of the join alone, median | {alone:.2f} s of {len(found.alone_s)} | |",
            f"| beside the clients | {beside:.2f} s of {len(found.beside_s)}, {beside / alone:.2f} times "
            f"| <= {EPOCH_RATIO} |",
            f"| memory of the service by thirds | {', '.join(f'{one:.0f}' for one in thirds)} MB | bounded |",
            f"| CPU time beside each other | {spent} | |",
            f"| load average | {', '.join(f'{one:.1f}' for one in found.load)} | |",
            *(f"- {error}" for error in found.errors[:5]),
        ]
    )


def read_epochs(path: Path, since_s: float, until_s: float) -> list[float]:
    """Read how long the epochs took that began in a time, in seconds."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        epoch = json.loads(line)
        took_ms = epoch.get("durations_ms", {}).get("triggerExecution")
        if took_ms and since_s <= datetime.fromisoformat(epoch["began"]).timestamp() < until_s:
            found.append(took_ms / 1e3)
    return found


class Feed:
    """Writes the streams, a second at a time, while ``run`` is awaited."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._folder, self._rate, self._rng = folder, rate, np.random.default_rng(1)
        self.second = 0

    def newest_key(self) -> int:
        """Return the largest id that was written."""
        return max(1, self.second * self._rate)

    async def run(self) -> None:
        begin = time.monotonic()
        while True:
            write_second(self._folder, self.second, self._rate, self._rng)
            self.second += 1
            await asyncio.sleep(max(0.0, begin + self.second - time.monotonic()))


def start(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a program that leads its own process group, and writes into a log."""
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def list_tree(pid: int) -> list[psutil.Process]:
    """List a process and all below it."""
    with contextlib.suppress(psutil.Error):
        main = psutil.Process(pid)
        return [main, *main.children(recursive=True)]
    return []


def sum_up(processes: list[psutil.Process], read: Callable[[psutil.Process], float]) -> float:
    """Add up a figure of processes, some of which may have ended."""
    total = 0.0
    for one in processes:
        with contextlib.suppress(psutil.Error):
            total += read(one)
    return total


def measure_cpu(pid: int) -> float:
    """Measure the CPU time of a process and its children, also of those that have ended."""
    return sum_up(list_tree(pid), lambda one: sum(one.cpu_times()[:4]))


async def wait_for(what: Callable[[], bool], seconds: float, log: Path) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise RuntimeError(f"it did not begin in {seconds:g} s: {log.read_text()[-2000:]}")
        await asyncio.sleep(0.5)


async def measure(folder: Path, found: Measured, announce: Callable[[str], None]) -> None:
    """Run the join alone, and then beside the clients, for the same time each."""
    feed = Feed(folder, found.rate)
    feeding = asyncio.create_task(feed.run())
    join = start([sys.executable, "-m", "bench.core.serving.query", str(folder)], folder / "join.log")
    service = None
    metrics = folder / "metrics.jsonl"
    try:
        await wait_for(lambda: len(read_epochs(metrics, 0, 4e9)) >= WARM_EPOCHS, 900, folder / "join.log")
        begin_s = time.time()
        found.load.append(os.getloadavg()[0])
        announce("the join runs alone")
        await asyncio.sleep(60 * found.minutes)
        beside_s = time.time()
        found.load.append(os.getloadavg()[0])
        log = folder / "service.log"
        command = [sys.executable, "-m", "thetastream.app.cli", "serve", str(folder / "pairs"), "--port", "0"]
        service = start(command, log)
        await wait_for(lambda: "http://" in log.read_text(), 120, log)
        address = re.search(r"http://[\w.]+:(\d+)", log.read_text())
        assert address is not None
        crowd = Crowd(int(address[1]), feed.newest_key)
        announce("the clients come")
        cpu = {
            "join": measure_cpu(join.pid),
            "service": measure_cpu(service.pid),
            "clients": time.process_time(),
        }
        clients = [asyncio.create_task(crowd.subscribe(n)) for n in range(found.subscribers)]
        waits = [0.0 if found.at_once else n / found.askers for n in range(found.askers)]
        clients += [asyncio.create_task(crowd.ask(n, 1.0, wait)) for n, wait in enumerate(waits)]
        until = time.monotonic() + 60 * found.minutes
        while time.monotonic() < until:
            found.service_mb.append(sum_up(list_tree(service.pid), lambda one: one.memory_info().rss) / 1e6)
            await asyncio.sleep(SAMPLE_S)
        found.cpu_s = {
            "join": measure_cpu(join.pid) - cpu["join"],
            "service": measure_cpu(service.pid) - cpu["service"],
            "clients": time.process_time() - cpu["clients"],
        }
        crowd.is_over.set()
        found.load.append(os.getloadavg()[0])
        _, waiting = await asyncio.wait(clients, timeout=15)
        for one in waiting:
            one.cancel()
        found.alone_s = read_epochs(metrics, begin_s, beside_s)
        found.beside_s = read_epochs(metrics, beside_s, time.time())
        found.answer_ms, found.n_rows = crowd.answer_ms, crowd.n_rows
        found.n_events = sum(map(len, crowd.snapshots))
        found.errors = [*crowd.errors, *crowd.list_gaps()]
    finally:
        feeding.cancel()
        end(join)
        if service is not None:
            end(service)


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a client got an error, a gap or a wrong row."""
    parser = argparse.ArgumentParser(prog="python -m bench serving", description=package.__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="length of each part (default 10)")
    parser.add_argument("--subscribers", type=int, default=200, help="number of subscribers (default 200)")
    parser.add_argument("--askers", type=int, default=20, help="number of askers (default 20)")
    parser.add_argument("--rate", type=int, default=250, help="tuples per second and stream (default 250)")
    parser.add_argument("--at-once", action="store_true", help="all askers ask in the same moment")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    asked = parser.parse_args(arguments)
    found = Measured(asked.minutes, asked.subscribers, asked.askers, asked.rate, asked.at_once)
    with TemporaryDirectory(prefix="bench-serving-", ignore_cleanup_errors=True) as folder:
        for alias in "ab":
            (Path(folder) / alias).mkdir()
        asyncio.run(measure(Path(folder), found, announce))
    print(describe(found))
    if asked.json:
        asked.json.write_text(json.dumps(asdict(found)) + "\n")
    return int(bool(found.errors))
