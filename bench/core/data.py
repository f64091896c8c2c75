"""Writes seeded streams as Parquet files: one file for each stream and epoch, written once and kept.

``bench/.data/<workload>-.../<alias>/<epoch>.parquet``. With ``maxFilesPerTrigger=1`` a micro-batch of
Spark is one file of each stream, so the epoch size is exact. Modification times follow the epochs:
Spark's file source reads in that order.
"""

import json
import os
import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from bench.core.internals import STATE_FORMAT
from bench.core.join_sql import Cells
from bench.core.workload import Workload
from bench.core.workloads import WORKLOADS

ROOT = Path(__file__).parents[1] / ".data"
FIRST_TS_US = 1_700_000_000_000_000
FULL = "full"
"""The file in a checkpoint with a full window that says that the window is full."""
ROW_GROUPS = 4
"""Number of row groups of a file, so that two tasks can share a file."""


@dataclass(frozen=True)
class Shape:
    """The parameters that determine the files of a workload and the window of its join."""

    workload: str
    window: int
    epoch: int
    epochs: int
    seed: int

    @property
    def spec(self) -> Workload:
        return WORKLOADS[self.workload]

    @property
    def window_us(self) -> int:
        """The event time between the first tuple of the window and the last one, both ends included."""
        return (self.window - 1) * self.spec.tick_us if self.spec.window_us is None else self.spec.window_us

    @property
    def within(self) -> str:
        return f"{self.window_us // 1000} milliseconds"

    @property
    def cells(self) -> tuple[Cells, ...]:
        return self.spec.cells(self.window)

    @property
    def folder(self) -> Path:
        window = f"-w{self.window}" if self.spec.depends_on_window else ""
        return ROOT / f"{self.workload}{window}-e{self.epoch}x{self.epochs}-seed{self.seed}"

    def full_window(self, options: dict[str, Any]) -> Path:
        """The checkpoint of the join with a full window, which ``engines/filling.py`` makes.

        Another format of the state, another version of Spark and other options of the engine have a
        checkpoint of their own.
        """
        settings = json.dumps([STATE_FORMAT, pyspark.__version__, self.spec.on, options], sort_keys=True)
        return self.folder / f"full-w{self.window}-{zlib.crc32(settings.encode()):08x}"

    def file(self, side: int, epoch: int) -> str:
        return str(self.folder / self.spec.aliases[side] / f"{epoch:06d}.parquet")


@dataclass(frozen=True)
class Task:
    """The instructions of a measuring process: one run of one engine."""

    engine: str
    shape: Shape
    warmup: int
    """Number of first epochs that fill the window. They are not measured."""
    warmup_seconds: float
    """Epochs before this time are not measured either, because the JVM is still compiling."""
    epochs: int
    """Number of measured epochs."""
    driver_memory: str = "4g"
    rate: int = 0
    """Tuples per second of both streams together in real time; 0 means as fast as possible."""
    seconds: int = 0
    """Measured seconds if there is a rate."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the engine, such as ``{"cell": 40}``."""
    full_window: Path | None = None
    """The checkpoint with a full window from which the query continues; None if it begins anew."""


def draw_epoch(shape: Shape, side: int, epoch: int) -> pa.Table:
    """Draw one epoch of one stream. The arguments alone determine it."""
    random = np.random.default_rng([shape.seed, side, epoch])
    columns = shape.spec.draw[side](random, shape.epoch, shape.window)
    number = np.arange(epoch * shape.epoch, (epoch + 1) * shape.epoch, dtype=np.int64)
    ts_us = FIRST_TS_US + shape.spec.place(number) * shape.spec.tick_us
    ts = pa.array(ts_us, type=pa.timestamp("us", tz="UTC"))
    return pa.table({**columns, "ts": ts})


def write(table: pa.Table, path: Path, epoch: int) -> None:
    """Write a file whose modification time gives its place in the stream."""
    groups = max(1, -(-table.num_rows // ROW_GROUPS))
    pq.write_table(table, path, row_group_size=groups)
    os.utime(path, (FIRST_TS_US // 10**6 + epoch,) * 2)


def ensure(shape: Shape) -> Path:
    """Write the files of a shape unless they exist."""
    if not shape.folder.exists():
        draft = shape.folder.with_name(f"{shape.folder.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        for side, alias in enumerate(shape.spec.aliases):
            (draft / alias).mkdir(parents=True)
            for epoch in range(shape.epochs):
                write(draw_epoch(shape, side, epoch), draft / alias / f"{epoch:06d}.parquet", epoch)
        draft.rename(shape.folder)
    return shape.folder


def window_arrow_bytes(shape: Shape) -> int:
    """Compute the Arrow size of the tuples in one full window of both streams."""
    sizes = [pq.read_table(shape.file(side, 0)).nbytes for side in (0, 1)]
    return sum(round(size / shape.epoch * shape.window) for size in sizes)
