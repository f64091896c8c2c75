"""Other engines, each in a Python of its own (``make bench-peers``): Flink, Pathway and DataFusion.

Their packages need other versions of Arrow and pandas than ours. Conditions without an equality get one from
cells of a grid, as Spark's own join and DuckDB do.
"""

import json
import os
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyspark

from bench.core.data import Task

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
PARQUET = ROOT / "out" / "peers"
"""The folder with the jar that reads Parquet in Flink."""
INPUT_EPOCHS = {"flink": 8, "pathway": 2}
"""Number of files of each stream that an engine reads. DataFusion reads one window, as DuckDB does."""


def run(task: Task) -> dict[str, Any]:
    """Run one engine once on the files of a task."""
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON} is missing: run `make bench-peers` to install the other engines")
    shape = task.shape
    window = -(-shape.window // shape.epoch)
    epochs = min(shape.epochs, task.options.get("input_epochs", INPUT_EPOCHS.get(task.engine, window)))
    hadoop = sorted(Path(pyspark.__file__).parent.glob("jars/hadoop-client-*.jar"))
    jars = [*sorted(PARQUET.glob("flink-sql-parquet-*.jar")), *hadoop]
    environment = {
        **os.environ,
        "BENCH_FLINK_JARS": ":".join(map(str, jars)),
        "PATHWAY_THREADS": "2",
        "PYTHONPATH": str(ROOT),
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        given, output = Path(folder, "given.json"), Path(folder, "figures.json")
        join = {
            "workload": shape.workload,
            "aliases": shape.spec.aliases,
            "files": [[shape.file(side, epoch) for epoch in range(epochs)] for side in (0, 1)],
            "on": shape.spec.duckdb_on,
            "window_us": shape.window_us,
            "cells": [asdict(cell) for cell in shape.cells],
            "folder": folder,
        }
        given.write_text(json.dumps(join))
        command = [str(PYTHON), "-m", f"bench.peers.{task.engine}", str(given), str(output)]
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        found = json.loads(output.read_text())
    return {
        "results": found["results"],
        "input_epochs": epochs,
        "measured_seconds": found["seconds"],
        "tuples_per_s": 2 * shape.epoch * epochs / found["seconds"],
        "form": f"{found['form']}, files of each stream: {epochs}",
    }
