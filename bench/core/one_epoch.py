"""Measures what a ring gains if its hops end in one epoch: ``python -m bench one-epoch``.

The ring in one epoch and with a mailbox, ATR, a cascade of joins of two streams, and a join of two streams
read as many tuples in an epoch, on two nodes. A tuple finds one partner in a hop on average. The response
time lasts from the end of the epoch before that of a result's latest tuple to the end of the epoch in which
the result leaves. CPU times are those of all processes over the whole query, so that they change little while
other work runs on the machine. Each count is compared with that of a search in sorted numbers.
"""

import argparse
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.clock import Clock
from bench.core.cpu_times import measure_cpu
from bench.core.internals import Model
from bench.core.response import count_by_file, respond
from bench.core.rows import Row, find_medians, measure_in_turn
from thetastream.models import ATR, Biclique, Ring

NODES = 2
TUPLES = (3_000, 60_000)
"""Tuples of all streams in an epoch."""
EPOCHS = 12
SKIPPED = 5
"""Number of first epochs that are not timed: the window fills in them."""
EPOCH_S, WINDOW_S = 10, 40
SECOND, START_US = 1_000_000, 1_700_000_000_000_000
AT_THE_END = np.ones(1)
TWO = "Two streams"
MODELS: dict[str, Model] = {
    TWO: Biclique((NODES // 2, NODES // 2)),
    "Ring, one epoch": Ring(NODES, hops="epoch"),
    "Ring, mailbox": Ring(NODES, hops="mailbox"),
    "ATR": ATR(NODES, f"{WINDOW_S} seconds", "b"),
    "Cascade": Biclique((NODES // 2, NODES // 2)),
}
SHOWN = ("model", "tuples", "response_epochs", "response_ms", "epoch_ms", "tuples_per_s", "cpu_us_per_tuple")


@dataclass(frozen=True)
class Numbers:
    """Streams of random numbers with event times. Neighbours join where numbers differ by 1 at most."""

    streams: int
    tuples: int
    """Tuples of all streams in an epoch."""
    seed: int

    @property
    def aliases(self) -> str:
        return "abc"[: self.streams]

    @property
    def on(self) -> list[str]:
        return [f"abs({left}.k - {right}.k) <= 1" for left, right in pairwise(self.aliases)]

    @cached_property
    def files(self) -> dict[str, list[pa.Table]]:
        """The tables of each stream, one for each epoch."""
        random = np.random.default_rng(self.seed)
        n = self.tuples // self.streams
        domain = 3 * n * WINDOW_S // EPOCH_S
        found: dict[str, list[pa.Table]] = {alias: [] for alias in self.aliases}
        for epoch in range(EPOCHS):
            for tables in found.values():
                times = START_US + EPOCH_S * SECOND * epoch + random.integers(0, EPOCH_S * SECOND, n)
                numbers = pa.array(random.integers(0, domain, n))
                tables.append(pa.table([pa.array(times, pa.timestamp("us", "UTC")), numbers], ["ts", "k"]))
        return found

    @cached_property
    def expected(self) -> int:
        """The number of results, by search in sorted numbers."""
        streams = [pa.concat_tables(tables) for tables in self.files.values()]
        times = [table["ts"].cast(pa.int64()).to_numpy() for table in streams]
        keys = [table["k"].to_numpy() for table in streams]
        found = np.arange(len(keys[0]))[:, None]
        for right in range(1, self.streams):
            order = np.argsort(keys[right], kind="stable")
            last = keys[right - 1][found[:, -1]]
            first, until = (
                np.searchsorted(keys[right][order], last + step, side)
                for step, side in ((-1, "left"), (1, "right"))
            )
            counts = until - first
            rows = np.repeat(np.arange(len(found)), counts)
            places = np.arange(len(rows)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            found = np.column_stack([found[rows], order[places]])
            apart = [np.abs(times[m][found[:, m]] - times[right][found[:, right]]) for m in range(right)]
            found = found[(np.array(apart) <= WINDOW_S * SECOND).all(axis=0)]
        return len(found)


def run_once(clock: Clock, numbers: Numbers, model: Model) -> Row:
    """Run one query; return its response time, the median epoch, CPU time for each tuple, and its count."""
    import thetastream as th

    def join(inputs: dict[str, Any], mailbox: str) -> Any:
        return th.join(inputs, numbers.on, f"{WINDOW_S} seconds", model, mailbox=mailbox)

    before = measure_cpu()
    ran, counts = count_by_file(clock, numbers, numbers.files, join)
    cpu_s = measure_cpu().since(before).warm_s
    epoch_ms = float(np.median(ran.ms[SKIPPED:EPOCHS]))
    return {
        "response_ms": respond(ran.ms, counts[:, SKIPPED:], SKIPPED, AT_THE_END)["response_ms"],
        "response_epochs": respond(ran.ms, counts, 0, AT_THE_END)["response_epochs"],
        "epoch_ms": epoch_ms,
        "tuples_per_s": 1000 * numbers.tuples / epoch_ms,
        "cpu_us_per_tuple": 1e6 * cpu_s / (numbers.tuples * EPOCHS),
        "load_before": ran.load_before,
        "results": int(counts.sum()),
    }


def write_table(rows: list[Row]) -> str:
    """Write rows as a table in Markdown.

    >>> row = {name: 1.5 for name in SHOWN}
    >>> write_table([row]).splitlines()[-1]
    '| 1.5 | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 | 1.5 |'
    """
    lines = [SHOWN, ["---"] * len(SHOWN)]
    for row in rows:
        lines.append(
            [f"{row[name]:,.6g}" if isinstance(row[name], float) else f"{row[name]}" for name in SHOWN]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Measure, print a table, and write JSON. The exit code is 1 if a count is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench one-epoch", description=__doc__)
    parser.add_argument("--tuples", type=int, nargs="+", default=TUPLES, help="tuples of an epoch")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each query, in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write medians and all runs to this file")
    asked = parser.parse_args(arguments)
    rows: list[Row] = []
    found: dict[str, list[Row]] = {}
    wrong = 0
    with contextlib.closing(Clock()) as clock:
        announce("warming up Spark")
        for name in (TWO, "Ring, mailbox"):
            run_once(clock, Numbers(2 if name == TWO else 3, min(asked.tuples), asked.seed), MODELS[name])
        for tuples in asked.tuples:

            def measure(name: str, turn: str, tuples: int = tuples) -> Row:
                numbers = Numbers(2 if name == TWO else 3, tuples, asked.seed)
                row = run_once(clock, numbers, MODELS[name])
                announce(
                    f"{turn}: epoch {row['epoch_ms']:.0f} ms, {row['cpu_us_per_tuple']:.1f} CPU us/tuple"
                )
                return {
                    **row,
                    "model": name,
                    "tuples": tuples,
                    "is_equal": row["results"] == numbers.expected,
                }

            for name, runs in measure_in_turn(MODELS, asked.repeat, measure).items():
                wrong += sum(not run["is_equal"] for run in runs)
                found[f"{name}, {tuples}"] = runs
                rows.append({"model": name, "tuples": tuples, **find_medians(runs, SHOWN[2:])})
    print(write_table(rows))
    if asked.json is not None:
        asked.json.write_text(json.dumps({"rows": rows, "runs": found}, indent=1))
    print(f"{wrong} counts are wrong")
    return int(wrong > 0)
