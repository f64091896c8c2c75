"""The streams of the soak: bursts, pauses, a hot key that wanders, disorder, and tuples a day late."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SPEED = 60
"""Seconds of event time in a second of the clock."""
PER_TICK, BURST = 60, 5
DISORDER_S = 90
"""Disorder is shorter than the delay, so that only tuples that are meant to be late are late."""
START_US = 1_767_600_000_000_000
DAY_US = 86_400_000_000


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
