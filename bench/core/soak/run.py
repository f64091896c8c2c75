"""Runs the soak: writes the streams, ends the program now and then, compares the answers, and reports."""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.core import soak as package
from bench.core.soak.answers import compare, has_watermarks
from bench.core.soak.program import Program, take_sample
from bench.core.soak.queries import QUERIES
from bench.core.soak.report import FLAT, LEAST_S, Soak, describe, draw_figures, list_growths
from bench.core.soak.streams import write_tick

SAMPLE_S = 2.0
"""Seconds between two samples of what the program uses."""


def soak(
    folder: Path, minutes: float, restart_s: float, trigger: str, announce: Callable[[str], None]
) -> Soak:
    """Run the program, write its streams, and end it now and then."""
    shutil.rmtree(folder, ignore_errors=True)
    for stream in "abc":
        (folder / stream).mkdir(parents=True)
    rng, found, program = np.random.default_rng(1), Soak(minutes), Program(folder, trigger)
    write_tick(folder, 0, False, rng)
    program.start()
    begin = sampled = restarted = time.monotonic()
    tick, has_begun = 0, False
    # They are written at once, so that a run that is cut off shows what it used until then.
    samples = (folder / "samples.jsonl").open("w")
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
                if sample:
                    found.samples.append(sample)
                    print(json.dumps(asdict(sample)), file=samples, flush=True)
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
        samples.close()
    found.epochs = read_epochs(folder / "metrics.jsonl")
    return found


def read_epochs(path: Path) -> list[dict[str, Any]]:
    """Read the counters of epochs. Other lines of the file say that a query has ended."""
    lines = map(json.loads, path.read_text().splitlines())
    return [line for line in lines if "ended" not in line]


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Run, and write report, samples and figures to ``out/soak``; return 1 if an answer is wrong or grows."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=package.__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (default 60)")
    parser.add_argument(
        "--restart-seconds", type=float, default=180.0, help="time between restarts (default 180)"
    )
    parser.add_argument(
        "--trigger", default="1 second", help="pause between the epochs of a query (default: 1 second)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="folder (default out/soak)")
    asked = parser.parse_args(arguments)
    folder = (asked.out / "run").absolute()
    found = soak(folder, asked.minutes, asked.restart_seconds, asked.trigger, announce)
    draw_figures(found, asked.out / "soak.png")
    report = asked.out / "report.md"
    report.write_text(describe(found))
    found.answers = {name: compare(folder, name) for name in QUERIES}
    report.write_text(describe(found))
    print(report.read_text())
    is_wrong = any(wrong for _, wrong in found.answers.values())
    grows = 60 * found.minutes >= LEAST_S and any(growth.share > FLAT for growth in list_growths(found))
    return int(is_wrong or grows)
