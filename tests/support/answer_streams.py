"""Two streams for joins that answer each tuple: rows with disorder, tuples that are too late, and NULLs."""

import functools
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.streams import replay

START = datetime(2024, 3, 10)
WITHIN_S, DELAY_S, EPOCH_S, EPOCHS, ROWS = 20, 3, 15, 6, 12
"""Seconds of the window, of the watermark delay and of an epoch; epochs, and rows of an epoch and stream."""
SCHEMA = "id bigint, ts timestamp, x int, y int, tags array<string>"


def make_rows(seed: int) -> list[dict[str, Any]]:
    """Rows with disorder, tuples that are far too late, and NULLs. The last epoch moves the watermark on."""
    rng, rows = random.Random(seed), []
    for epoch in range(EPOCHS):
        for n in range(ROWS):
            second = epoch * EPOCH_S + rng.randrange(EPOCH_S) - rng.choice([0, 0, 0, 2, 40])
            second += 1_000 if epoch == EPOCHS - 1 else 0
            rows.append(
                {
                    "id": epoch * ROWS + n,
                    "ts": None if rng.random() < 0.05 else START + timedelta(seconds=second),
                    "x": None if rng.random() < 0.1 else rng.randrange(30),
                    "y": rng.randrange(10),
                    "tags": [None, "t"],
                }
            )
    return rows


LEFT, RIGHT = make_rows(1), make_rows(2)


@functools.cache
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left, right = (
        spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).localCheckpoint()
        for rows in (LEFT, RIGHT)
    )
    return left, right


def streams(spark: SparkSession, folder: Path, chosen: Sequence[int] = range(EPOCHS)) -> dict[str, DataFrame]:
    """Both streams, with one epoch for each of the ``chosen`` epochs of rows."""
    epochs = [range(e * ROWS, (e + 1) * ROWS) for e in chosen]
    a, b = (
        replay(frame, epochs, folder).withWatermark("ts", f"{DELAY_S} seconds") for frame in frames(spark)
    )
    return {"a": a, "b": b}
