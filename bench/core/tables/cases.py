"""The tables and rows of ``python -m bench tables``, and their joins as DuckDB computes them.

    { (s, t) : t.low <= s.x < t.high }        as-of: the row with the greatest t.low <= s.x

The checksum of a bag of results is the sum of a number for each result, which its two ids give.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

RANGE = "s.x >= t.low AND s.x < t.high"
AS_OF = "s.x >= t.low"
STEP = 100
"""The distance of the lower ends of two ranges. A range is nine tenths of it."""
_PAIR = "((s.id * 31 + 17) * (coalesce({partner}, -1) * 13 + 29)) % 1000000007"


@dataclass(frozen=True)
class Answer:
    """A bag of results, and what it took to compute it."""

    results: int
    checksum: int
    seconds: float
    cpu_s: float

    @property
    def bag(self) -> tuple[int, int]:
        """What two equal bags have in common."""
        return self.results, self.checksum


@dataclass(frozen=True)
class Case:
    """A stream beside a table of ranges."""

    name: str
    n_ranges: int = 10_000
    how: str = "inner"
    n_keys: int = 0
    """With keys, an equality is part of the condition."""
    has_long_range: bool = False
    has_loop: bool = True
    """Whether Spark's own join takes part. It compares each row with the whole table."""
    target: str = "0.7 of inner"

    @property
    def is_as_of(self) -> bool:
        """Whether each row meets the last row of the table at or before it."""
        return self.how == "as-of"

    @property
    def on(self) -> str:
        """The condition of the join."""
        return (AS_OF if self.is_as_of else RANGE) + " AND s.k = t.k" * bool(self.n_keys)

    @property
    def checksum(self) -> str:
        """The SQL of the checksum of results."""
        return checksum(has_partner=self.how not in ("semi", "anti"))

    @property
    def sql(self) -> str:
        """The join of ``s`` and ``t`` in DuckDB."""
        return f"SELECT count(*), {self.checksum} FROM s {self.how.replace('-', '')} JOIN t ON {self.on}"

    def draw_table(self) -> pa.Table:
        """Draw the ranges."""
        low = np.arange(self.n_ranges, dtype=np.int64) * STEP
        high = low + STEP * 9 // 10
        if self.has_long_range:
            low, high = np.append(low, 0), np.append(high, self.n_ranges * STEP)
        random = np.random.default_rng(0)
        keys = {"k": random.integers(0, self.n_keys, len(low))} if self.n_keys else {}
        return pa.table({"id": np.arange(len(low)), "low": low, "high": high, **keys})

    def draw_rows(self, n: int, seed: int) -> pa.Table:
        """Draw the rows of the stream."""
        random = np.random.default_rng(seed)
        x = random.integers(0, self.n_ranges * STEP, n)
        keys = {"k": random.integers(0, self.n_keys, n)} if self.n_keys else {}
        ts = pa.array(np.arange(n) * 1000, pa.timestamp("us", "UTC"))
        return pa.table({"id": np.arange(n), "x": x, **keys, "ts": ts})


def checksum(has_partner: bool) -> str:
    """Write the checksum of results as SQL of Spark and of DuckDB."""
    partner = "t.id" if has_partner else "CAST(NULL AS BIGINT)"
    return f"coalesce(sum({_PAIR.format(partner=partner)}), 0)"


def ask_duckdb(sql: str, table: pa.Table, batches: Iterable[pa.Table]) -> list[Answer]:
    """Join each batch ``s`` with the table ``t`` by DuckDB, on one thread.

    DuckDB holds the table. It reads batches where they are, and writes no results.
    """
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    found = []
    for batch in batches:
        connection.register("s", batch)
        began, began_cpu = time.perf_counter(), time.process_time()
        ((results, total),) = connection.execute(sql).fetchall()
        spent = time.perf_counter() - began, time.process_time() - began_cpu
        found.append(Answer(int(results), int(total), *spent))
    return found
