"""``make faults``: joins on Spark, and faults that strike them at random moments.

    python -m tests.support.campaign out/faults --points 1000

A case is made by its seed: a join, its streams, and the faults. It ends when the join has read its
streams, and then its results are compared with a nested loop. ``points.jsonl`` in the folder has a line for
each case. A campaign that was interrupted continues with the first seed that has no line. Several processes
may run a campaign in one folder: each takes the first seed that has no line and that no other one has taken.
"""

import argparse
import contextlib
import fcntl
import itertools
import json
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tests.support import service_faults
from tests.support.capability_jobs import (
    ChangesJob,
    FileJob,
    GroupsJob,
    NearestJob,
    ShedJob,
    StoreJob,
    TasksJob,
    ThreeStreamsJob,
)
from tests.support.faults import Job, add_empty_files, epochs, kill_group
from tests.support.live_faults import FAULTS, Target
from tests.support.table_job import TableJob

FILES, ROWS = 120, 150
STARTS = 12
"""Starts of a join that are struck. Later starts run to the end, so that each case ends."""
PATIENCE_S = 600
"""The longest time in which a query must commit the next epochs or end."""
WENT_ON = "the query went on"
STOOD_STILL = "the query stood still"
CLUSTER = "local-cluster[2,1,700]"
JOBS: dict[str, tuple[type[Job], dict[str, Any]]] = {
    "inner": (Job, {}),
    "left": (Job, {"how": "left"}),
    "anti, second units": (Job, {"how": "anti", "has_residual": True}),
    "nearest": (NearestJob, {}),
    "chain": (Job, {"chain": 2}),
    "three streams": (ThreeStreamsJob, {}),
    "units that change": (Job, {"max_units": 6}),
    "inner on two executors": (Job, {"master": CLUSTER}),
    "groups": (GroupsJob, {}),
    "two tasks": (TasksJob, {}),
    "shedding": (ShedJob, {}),
    "changes": (ChangesJob, {}),
    "a table that changes": (TableJob, {"conf": {"spark.sql.streaming.minBatchesToRetain": "10000"}}),
    "a Parquet store": (StoreJob, {}),
    "a Delta store": (StoreJob, {"kind": "delta"}),
    "a job file": (FileJob, {}),
}
"""The joins that are struck, with the class of each and its parameters."""
SERVICE = "a service"
"""The case of a service without a join (``tests.support.service_faults``)."""
ALL_JOBS = {
    "driver killed": 2,
    "Python worker killed": 8,
    "daemon of workers killed": 3,
    "second driver": 1,
    "disk full for workers": 2,
    "disk full for the JVM": 2,
    "cached segment damaged": 8,
    "JVM stands still": 2,
    "Python worker stands still": 2,
    "clock jumps": 4,
}
"""How often a fault is drawn, relative to the others."""
ONLY = {
    "chain": {"message damaged": 3},
    "units that change": {"other units": 8, "control file damaged": 4},
    "inner on two executors": {"executor killed": 4},
}


@dataclass
class Case:
    """What the faults of one seed did."""

    seed: int
    job: str
    points: list[tuple[str, str]]
    """For each fault its name and what became of the query."""
    is_exact: bool


def run_case(seed: int, folder: Path, files: int = FILES, gap_s: float = 1.5) -> Case:
    """Run a join in an empty folder until its streams are read, with faults up to ``gap_s`` apart."""
    chance = random.Random(seed)
    name = chance.choice([*JOBS, SERVICE])
    if name == SERVICE:
        struck, wrong = service_faults.run_case(seed, folder)
        print(*wrong, sep="\n", end="")
        return Case(seed, name, struck, not wrong)
    job = make_job(name, folder)
    job.write_input(files, ROWS, seed)
    weights = ALL_JOBS | ONLY.get(name, {})
    points: list[tuple[str, str]] = []
    with job.beside(seed) as seen:
        target = Target(job, job.start(), chance)
        try:
            for start in range(2 * STARTS):
                if start < STARTS:
                    points += strike(target, weights, gap_s)
                if target.process.wait(600) == 0:
                    break
                target.repair()
                Path(job.folder, "log").rename(Path(job.folder, f"log{start}"))
                target.process = job.start()
        finally:
            kill_group(target.process)
        # A restart after the last epoch with rows runs no epoch without rows, which would answer the last
        # tuples.
        add_empty_files(folder)
        job.finish(600)
    return Case(seed, name, points, job.is_exact(seen))


def make_job(name: str, folder: Path) -> Job:
    """Build the job of a name."""
    kind, own = JOBS[name]
    parameters = {"master": "local[2,50]", "cache_folder": str(folder / "cache")} | own
    if parameters["master"] == CLUSTER:
        parameters["conf"] = {"spark.task.maxFailures": "50", "spark.executor.memory": "700m"}
    return kind(str(folder), **parameters)


def strike(target: Target, weights: dict[str, int], gap_s: float) -> list[tuple[str, str]]:
    """Strike a running join until it ends; return each fault that found something, and what became of the
    query: it committed the next two epochs, or ended before."""
    points: list[tuple[str, str]] = []
    strikes_early = target.chance.random() < 0.1
    if not strikes_early:
        wait_for_commits(target, 1)
    while target.process.poll() is None:
        time.sleep(target.chance.uniform(0, gap_s))
        name = target.chance.choices([*weights], [*weights.values()])[0]
        if target.process.poll() is None and FAULTS[name](target):
            points.append((name, describe_end(target) if wait_for_commits(target, 2) else STOOD_STILL))
    return points


def wait_for_commits(target: Target, number: int) -> bool:
    """Wait until a join has committed this many more epochs, or has ended.

    A join that does neither is killed; then it returns False.
    """
    last, end = epochs(target.job.checkpoint, "commits") + number, time.monotonic() + PATIENCE_S
    while target.process.poll() is None and epochs(target.job.checkpoint, "commits") < last:
        if time.monotonic() > end:
            kill_group(target.process)
            return False
        time.sleep(0.1)
    return True


def describe_end(target: Target) -> str:
    """Say that a query goes on, or name the error with which it ended."""
    code = target.process.poll()
    if not code:
        return WENT_ON
    if code < 0:
        return "killed"
    text = target.job.output
    # The plan of a query, which Spark prints too, also has names in brackets.
    names: list[str] = re.findall(r"(?:Error|[Ee]xception|thetastream): \[([A-Z][A-Z_.]+)\]", text)
    own = [name for name in names if not name.startswith(("STREAM_FAILED", "TASK_FAILED"))]
    if own:
        return own[-1]
    for sign in ("File too large", "No space left", "Connection refused", "Broken pipe"):
        if sign in text:
            return sign
    return "an error of Spark without a name"


# The campaign


def run_campaign(folder: Path, points: int) -> list[Case]:
    """Run cases until ``points`` faults have struck, in all processes that run this campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    while count_points(read_cases(folder)) < points:
        with take_seed(folder) as seed:
            place = folder / f"case{seed}"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            case = run_case(seed, place)
            with log_of(folder).open("a") as file:
                file.write(f"\n{json.dumps(vars(case))}\n")
        verdict = "exact" if case.is_exact else "WRONG"
        so_far = count_points(read_cases(folder))
        print(f"case {seed}, {case.job}: {verdict}, {so_far} points", flush=True)
        if case.is_exact:
            shutil.rmtree(place)
    return read_cases(folder)


def log_of(folder: Path) -> Path:
    """Return the file that has a line for each case."""
    return folder / "points.jsonl"


def read_cases(folder: Path) -> list[Case]:
    """Read the cases that have ended."""
    log, cases = log_of(folder), []
    for line in log.read_text().splitlines() if log.exists() else ():
        # A process that is killed while it writes a line leaves a part of it.
        with contextlib.suppress(ValueError):
            cases.append(Case(**json.loads(line)))
    return cases


def count_points(cases: Iterable[Case]) -> int:
    """Count the faults that have struck."""
    return sum(len(case.points) for case in cases)


@contextlib.contextmanager
def take_seed(folder: Path) -> Iterator[int]:
    """Take the first seed whose case has not ended and that no other process has taken."""
    for seed in itertools.count():
        with (folder / f"lock{seed}").open("a") as lock:
            # A case that ended before this process took the lock has a line now.
            if take_lock(lock) and all(case.seed != seed for case in read_cases(folder)):
                yield seed
                return


def take_lock(file: TextIO) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def write_table(cases: Iterable[Case]) -> str:
    """Write how often each fault struck, and what became of the query."""
    counts = Counter((fault, outcome) for case in cases for fault, outcome in case.points)
    lines = ["| fault | the query | points |", "|---|---|---|"]
    lines += [f"| {fault} | {outcome} | {n} |" for (fault, outcome), n in sorted(counts.items())]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run or continue a campaign, and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=1000)
    options = parser.parse_args(arguments)
    cases = run_campaign(options.folder, options.points)
    wrong = [case.seed for case in cases if not case.is_exact]
    print(write_table(cases))
    print(f"{len(cases)} cases, {count_points(cases)} points, wrong seeds: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
