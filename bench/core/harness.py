"""Compares engines: interleaved runs, each in a process of its own, with medians, ratios and checks."""

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from bench.core.check import verify
from bench.core.data import FULL, Task, ensure, window_arrow_bytes
from bench.core.engines import FILLING
from bench.core.machine import describe, watch
from bench.core.rows import find_medians

MEDIANS = (
    "tuples_per_s",
    "results_per_s",
    "results_per_tuple",
    "epoch_ms_p50",
    "epoch_ms_p99",
    "epoch_ms_mean",
    "measured_epochs",
    "state_bytes",
    "emitted_bytes",
    "peak_rss_bytes",
    "cpu_seconds",
    "cpu_us_per_tuple",
)
TAIL = 3000
"""Number of characters that are kept of the error output of an engine that fails."""


def run_once(task: Task, timeout_seconds: float) -> dict[str, Any]:
    """Run one engine in a process of its own. A failure is a result with ``error``."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        given, output, errors = (Path(folder, name) for name in ("task", "result.json", "stderr"))
        given.write_bytes(pickle.dumps(task))
        command = [sys.executable, "-m", "bench.core.worker", str(given), str(output)]
        load = os.getloadavg()[0]
        with errors.open("wb") as stderr:
            process = Popen(
                command, stdin=DEVNULL, stdout=stderr, stderr=stderr, cwd=Path(__file__).parents[2]
            )
            try:
                seen = watch(process, timeout_seconds)
            except TimeoutError as error:
                return {"error": str(error), "load_before": load}
        if process.returncode:
            return {"error": errors.read_text(errors="replace")[-TAIL:], "load_before": load}
        result = json.loads(output.read_text())
    return {**result, **seen, "load_before": load}


def compare(
    tasks: dict[str, Task],
    pairs: list[tuple[str, str]],
    repeat: int,
    timeout_seconds: float,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """Run all tasks ``repeat`` times in turn; report the medians of each and the ratios of pairs."""
    first = next(iter(tasks.values()))
    for folder in dict.fromkeys(ensure(task.shape) for task in tasks.values()):
        announce(f"data: {folder}")
    fill_windows(list(tasks.values()), timeout_seconds, announce)
    runs: dict[str, list[dict[str, Any]]] = {row: [] for row in tasks}
    for turn in range(repeat):
        for row, task in tasks.items():
            if turn and not is_measured(runs[row][0]):
                continue
            announce(f"run {turn + 1} of {repeat}: {row}")
            result = run_once(task, timeout_seconds)
            if is_measured(result) and "check" not in result:
                result["check"] = verify(task.shape, result, announce, task.engine)
            runs[row].append(result)
            announce(f"  {summary_line(result)}")
    engines = {row: summarise(found) for row, found in runs.items()}
    for row, summary in engines.items():
        if summary.get("state_bytes"):
            arrow_bytes = window_arrow_bytes(tasks[row].shape)
            summary["state_per_arrow"] = summary["state_bytes"] / arrow_bytes
    shape = first.shape
    return {
        "workload": shape.workload,
        "on": shape.spec.on,
        "within": shape.within,
        "window": shape.window,
        "epoch": shape.epoch,
        "epochs": first.epochs,
        "warmup_seconds": first.warmup_seconds,
        "rate": first.rate,
        "seconds": first.seconds,
        "seed": shape.seed,
        "repeat": repeat,
        "window_arrow_bytes": window_arrow_bytes(shape),
        "joins": [
            {"workload": join.workload, "on": join.spec.on, "within": join.within}
            for join in {task.shape.workload: task.shape for task in tasks.values()}.values()
        ],
        "engines": engines,
        "ratios": find_ratios(engines, pairs),
        "is_correct": all(summary["is_correct"] for summary in engines.values()),
        "machine": describe(),
        "runs": runs,
    }


def fill_windows(tasks: list[Task], timeout_seconds: float, announce: Callable[[str], None]) -> None:
    """Make the checkpoints with full windows from which tasks continue, unless they exist."""
    for task in tasks:
        if task.full_window is not None and not (task.full_window / FULL).exists():
            announce(f"fills the window once: {task.full_window}")
            found = run_once(replace(task, engine=FILLING), timeout_seconds)
            if "error" in found:
                raise RuntimeError(found["error"])


def is_measured(result: dict[str, Any]) -> bool:
    """Whether a run has results, and neither an error nor a refusal."""
    return "error" not in result and "refused" not in result


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute the medians of the runs of one engine. A refusal counts as correct, and an error does not."""
    refused = next((run["refused"] for run in runs if "refused" in run), None)
    if refused is not None:
        return {"refused": refused, "is_correct": True}
    error = next((run["error"] for run in runs if "error" in run), None)
    if error is not None:
        return {"error": error, "is_correct": False}
    summary = {"form": runs[0].get("form"), "runs": len(runs), **find_medians(runs, MEDIANS)}
    return {**summary, "is_correct": all(run["check"]["is_equal"] for run in runs)}


def find_ratios(engines: dict[str, dict[str, Any]], pairs: list[tuple[str, str]]) -> dict[str, float]:
    """Divide the tuples per second of the first of each pair by those of the second.

    >>> rates = {"thetastream": {"tuples_per_s": 30.0}, "spark": {"tuples_per_s": 2.0}, "duckdb": {}}
    >>> find_ratios(rates, [("thetastream", "spark"), ("thetastream", "duckdb")])
    {'thetastream/spark': 15.0}
    """
    rates = {row: summary.get("tuples_per_s") for row, summary in engines.items()}
    return {
        f"{row}/{other}": rates[row] / rates[other] for row, other in pairs if rates[row] and rates[other]
    }


def summary_line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"failed: {result['error'].strip().splitlines()[-1]}"
    if "refused" in result:
        return f"refused: {result['refused']}"
    check = result["check"]
    verdict = "equals DuckDB" if check["is_equal"] else f"DIFFERS from DuckDB: {check}"
    return (
        f"{result.get('tuples_per_s') or 0:,.0f} tuples/s, epoch {result.get('epoch_ms_p50') or 0:,.0f} ms,"
        f" {result.get('cpu_us_per_tuple') or 0:,.1f} CPU us/tuple,"
        f" count of {check['epochs']} epochs {verdict} (load before: {result['load_before']:.1f})"
    )
