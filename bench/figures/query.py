"""The joins of the figures: two tables in stream order, the condition for units, for Spark and for DuckDB."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa

from thetastream.blocks import HASH_COLUMN
from thetastream.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    IndexSpec,
    Key,
    SideSpec,
)
from thetastream.joiner.unit import SUBINDEXES_PER_WINDOW, UnitSpec
from thetastream.keys import scramble
from thetastream.plan.lower import choose_index
from thetastream.types import Side

TICKS_US = 1_000_000_000
"""Event time from a stream's first tuple to its last: both streams are in step, however many tuples each
has."""
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Query:
    """One join of two tables that are streamed in the order of their rows."""

    name: str
    aliases: tuple[str, str]
    tables: tuple[pa.Table, pa.Table]
    on: str
    """In Spark SQL."""
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    duckdb_on: str = ""
    """Where DuckDB's arithmetic needs other words."""
    window_us: int | None = None
    is_scanned: bool = False
    """Whether every tuple is compared with the whole window, as the papers' nested loops do."""
    seed: int = 1

    def within(self, share: float) -> "Query":
        """The same join inside a window that is a share of the whole stream."""
        return replace(self, window_us=max(1, round(share * TICKS_US)))

    def scanned(self) -> "Query":
        """The same join by nested loop."""
        return replace(self, is_scanned=True)

    def part(self, share: float) -> "Query":
        """The first part of both streams; event times stay as they are."""
        return self._until(*(round(table.num_rows * share) for table in self.tables))

    def first(self, n: int, epochs: int) -> "Query":
        """The first ``n`` of ``epochs`` parts."""
        return self._until(*(self.bounds(side, epochs)[n - 1][1] for side in Side))

    def _until(self, left: int, right: int) -> "Query":
        return replace(self, tables=(self.tables[0].slice(0, left), self.tables[1].slice(0, right)))

    @property
    def volume(self) -> int:
        """Tuples of both streams."""
        return sum(table.num_rows for table in self.tables)

    @cached_property
    def condition(self) -> Condition:
        """The condition as units see it."""
        left, right = (
            SideSpec(alias, tuple(table.column_names), keys=keys, time=Key("ts", Domain.INT))
            for alias, table, keys in zip(self.aliases, self.tables, self.keys, strict=True)
        )
        window = None
        if self.window_us is not None:
            window = Dimension(
                Side.LEFT, TIME, Bound(TIME, -self.window_us), Bound(TIME, self.window_us), "window"
            )
        return Condition((left, right), self.equalities, self.dimensions, window)

    @property
    def index(self) -> IndexSpec:
        """The index that ``th.join`` would choose."""
        return choose_index(self.condition, "scan" if self.is_scanned else None)[0]

    def unit_spec(self, counts: tuple[int, int] | None = None) -> UnitSpec:
        """What a unit is told."""
        period = None if self.window_us is None else max(1, -(-self.window_us // SUBINDEXES_PER_WINDOW))
        return UnitSpec(self.condition, (self.index, self.index), period, counts)

    def cut(self, side: Side, epochs: int) -> Iterator[pa.RecordBatch]:
        """One stream in ``epochs`` equal parts, with hashes of its tuples."""
        table = self.tables[side]
        random = np.random.default_rng([self.seed, side])
        hashes = scramble(random.integers(0, 1 << 62, table.num_rows))
        table = table.append_column(HASH_COLUMN, pa.array(hashes)).combine_chunks()
        for start, end in self.bounds(side, epochs):
            batches = table.slice(start, end - start).to_batches()
            yield batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def bounds(self, side: Side, epochs: int) -> list[tuple[int, int]]:
        """First row and end of each part of a stream."""
        cuts = [int(cut) for cut in np.linspace(0, self.tables[side].num_rows, epochs + 1)]
        return list(pairwise(cuts))

    def watermark_us(self, left: pa.RecordBatch, right: pa.RecordBatch, before: int | None) -> int | None:
        """The watermark behind an epoch, as Spark has it: the older of the streams' newest event times."""
        if self.window_us is None:
            return None
        newest = [
            batch.column("ts").view(pa.int64())[batch.num_rows - 1].as_py()
            for batch in (left, right)
            if batch.num_rows
        ]
        # Less one: a tuple of the next epoch may have the same event time.
        return min(newest) - 1 if len(newest) == 2 else before

    def expected(self) -> int:
        """The number of results, from DuckDB."""
        connection = duckdb.connect(config={"threads": 2})
        connection.execute("SET enable_progress_bar = false")
        for alias, table in zip(self.aliases, self.tables, strict=True):
            connection.register(f"{alias}_rows", table)
        row = connection.execute(self._sql()).fetchone()
        assert row is not None
        return int(row[0])

    def _sql(self) -> str:
        """A band is an equality of cells first, which DuckDB hashes: right tuples stand in all they touch."""
        left, right = self.aliases
        rows = [f"{alias}_rows" for alias in self.aliases]
        conditions = [self.duckdb_on or self.on]
        for number, dimension in enumerate(self.dimensions):
            assert dimension.high is not None
            mine, reach = self.keys[0][dimension.key].column, dimension.high.delta
            other = self.keys[1][dimension.high.key].column
            low, high = (f"floor(({other}::DOUBLE {sign} {reach}) / {2 * reach})::INT" for sign in "-+")
            cell = f"cell_{number}"
            rows[0] = f"(SELECT *, floor({mine}::DOUBLE / {2 * reach})::INT AS {cell} FROM {rows[0]})"
            rows[1] = f"(SELECT *, unnest(range({low}, {high} + 1)) AS {cell} FROM {rows[1]})"
            conditions.append(f"{left}.{cell} = {right}.{cell}")
        if self.window_us is not None:
            times = [f"epoch_us({alias}.ts)" for alias in self.aliases]
            ends = f"{times[1]} - {self.window_us} AND {times[1]} + {self.window_us}"
            conditions.append(f"{times[0]} BETWEEN {ends}")
        return f"SELECT count(*) FROM {rows[0]} {left} JOIN {rows[1]} {right} ON {' AND '.join(conditions)}"


def stamped(table: pa.Table) -> pa.Table:
    """The table with event times: its rows evenly over ``TICKS_US``."""
    number = np.arange(table.num_rows, dtype=np.int64)
    ts = START_US + number * TICKS_US // max(1, table.num_rows)
    if "ts" in table.column_names:
        table = table.drop_columns(["ts"])
    return table.append_column("ts", pa.array(ts, type=pa.timestamp("us", tz="UTC")))
