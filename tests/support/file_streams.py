"""Files of two streams, and the pairs that they have.

{ (a.id, b.id) : |a.x - b.x| <= 2, |a.ts - b.ts| <= 1 minute }
"""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FILES, PER_FILE = 4, 40
_FIRST_FILE_S = 1_700_000_000


def write_file(folder: Path, alias: str, number: int) -> None:
    """Write one file of a stream: 40 tuples, two seconds apart."""
    ids = range(number * PER_FILE, (number + 1) * PER_FILE)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([compute_x(alias, each) for each in ids], pa.int64()),
            "ts": pa.array(
                [(_FIRST_FILE_S + 2 * each) * 1_000_000 for each in ids], pa.timestamp("us", "UTC")
            ),
        }
    )
    path = folder / alias / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (_FIRST_FILE_S + number,) * 2)


def compute_x(alias: str, number: int) -> int:
    """Compute the value of a tuple."""
    return number * (7 if alias == "a" else 11) % 31


def find_pairs() -> Counter[tuple[int, int]]:
    """Find all pairs by a nested loop."""
    ids = range(FILES * PER_FILE)
    return Counter(
        (a, b)
        for a in ids
        for b in ids
        if abs(compute_x("a", a) - compute_x("b", b)) <= 2 and abs(2 * a - 2 * b) <= 60
    )
