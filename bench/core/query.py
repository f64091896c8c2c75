"""The two-stream joins of figures: tables in stream order, and the condition in three forms."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.core import internals as inside
from bench.core.internals import Dimension, Domain, Key, Model, Side
from bench.core.join_sql import Cells, write_join

TICKS_US = 1_000_000_000
"""The event time from the first tuple of a stream to its last. It is the same for streams of any length."""
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Query:
    """One join of two tables that are streamed in the order of their rows."""

    name: str
    aliases: tuple[str, str]
    tables: tuple[pa.Table, pa.Table]
    on: str
    """The condition in Spark SQL."""
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    equalities: tuple[inside.Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    duckdb_on: str = ""
    """The condition for DuckDB, if it differs because of DuckDB's arithmetic."""
    window_us: int | None = None
    kind: str | None = None
    """The kind of index, as in ``th.join(..., index=kind)``. Without it, ``th.join`` chooses."""
    seed: int = 1

    def within(self, share: float) -> "Query":
        """Return the same join with a window that is a share of the whole stream."""
        return replace(self, window_us=max(1, round(share * TICKS_US)))

    def by(self, kind: str | None) -> "Query":
        """Return the same join with another index. ``scan`` is the nested loop of the papers."""
        return replace(self, kind=kind)

    def part(self, share: float) -> "Query":
        """Return the join of the first part of both streams. Event times do not change."""
        return self._until(*(round(table.num_rows * share) for table in self.tables))

    def first(self, n: int, epochs: int) -> "Query":
        """Return the join of the first ``n`` of ``epochs`` parts."""
        return self._until(*(self.bounds(side, epochs)[n - 1][1] for side in Side))

    def of(self, left: pa.Table, right: pa.Table) -> "Query":
        """Return the same join of other tuples."""
        return replace(self, tables=(left, right))

    def _until(self, left: int, right: int) -> "Query":
        return replace(self, tables=(self.tables[0].slice(0, left), self.tables[1].slice(0, right)))

    @property
    def volume(self) -> int:
        return sum(table.num_rows for table in self.tables)

    @cached_property
    def condition(self) -> inside.Condition:
        """The condition in the form that units read."""
        left, right = (
            inside.SideSpec(alias, tuple(table.column_names), keys=keys, time=Key("ts", Domain.INT))
            for alias, table, keys in zip(self.aliases, self.tables, self.keys, strict=True)
        )
        window = None if self.window_us is None else band(inside.TIME, self.window_us, "window")
        return inside.Condition((left, right), self.equalities, self.dimensions, window)

    @property
    def index(self) -> inside.IndexSpec:
        return inside.choose_index(self.condition, self.kind)[0]

    def unit_spec(self) -> inside.UnitSpec:
        period = (
            None if self.window_us is None else max(1, -(-self.window_us // inside.SUBINDEXES_PER_WINDOW))
        )
        return inside.UnitSpec(self.condition, (self.index, self.index), period, None)

    def join(self, streams: dict[str, Any], model: Model, **options: Any) -> Any:
        import thetastream as th

        within = None if self.window_us is None else f"{self.window_us} microseconds"
        if self.kind is not None:
            options["index"] = self.kind
        return th.join(streams, on=self.on, within=within, model=model, **options)

    def cut(self, side: Side, epochs: int) -> Iterator[pa.RecordBatch]:
        """Cut one stream into ``epochs`` equal parts, and add the hashes of its tuples."""
        table = self.tables[side]
        random = np.random.default_rng([self.seed, side])
        hashes = inside.scramble(random.integers(0, 1 << 62, table.num_rows))
        table = table.append_column(inside.HASH_COLUMN, pa.array(hashes)).combine_chunks()
        for start, end in self.bounds(side, epochs):
            batches = table.slice(start, end - start).to_batches()
            yield batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def files(self, epochs: int) -> dict[str, list[pa.Table]]:
        """Cut both streams into ``epochs`` equal parts, which are the files of a query in Spark."""
        return {
            alias: [table.slice(start, end - start) for start, end in self.bounds(side, epochs)]
            for side, alias, table in zip(Side, self.aliases, self.tables, strict=True)
        }

    def epochs(self, n: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, int | None]]:
        """Cut both streams into ``n`` equal parts, with the watermark that Spark has for ordered streams.

        After an epoch, it is the older one of the newest event times of the two streams.
        """
        watermark = None
        for left, right in zip(*(self.cut(side, n) for side in Side), strict=True):
            yield left, right, watermark
            if self.window_us is not None and left.num_rows and right.num_rows:
                # One is subtracted, because a tuple of the next epoch may have the same event time.
                watermark = min(int(batch.column("ts").view(pa.int64())[-1]) for batch in (left, right)) - 1

    def bounds(self, side: Side, epochs: int) -> list[tuple[int, int]]:
        cuts = [int(cut) for cut in np.linspace(0, self.tables[side].num_rows, epochs + 1)]
        return list(pairwise(cuts))

    @cached_property
    def expected(self) -> int:
        return self.count("count(*)")

    def count(self, columns: str) -> int:
        """Ask DuckDB for a whole number over the results of the join."""
        ((found,),) = self._ask(columns)
        return int(found)

    def _ask(self, columns: str, tail: str = "") -> list[tuple[Any, ...]]:
        connection = duckdb.connect(config={"threads": 2})
        connection.execute("SET enable_progress_bar = false")
        for alias, table in zip(self.aliases, self.tables, strict=True):
            connection.register(f"{alias}_rows", table)
        return connection.execute(self._sql(columns) + tail).fetchall()

    def count_partners(self, alias: str) -> npt.NDArray[np.int64]:
        """Ask DuckDB for the number of partners of each tuple of a stream."""
        table = self.tables[self.aliases.index(alias)]
        numbered = table.append_column("number", pa.array(np.arange(table.num_rows)))
        tables = [
            numbered if name == alias else one for name, one in zip(self.aliases, self.tables, strict=True)
        ]
        rows = self.of(*tables)._ask(f"{alias}.number, count(*)", f" GROUP BY {alias}.number")
        found = np.zeros(table.num_rows, dtype=np.int64)
        for number, n in rows:
            found[number] = n
        return found

    def _sql(self, columns: str) -> str:
        left, right = self.keys
        cells = [
            Cells(left[one.key].column, right[one.high.key].column, one.high.delta, 2 * one.high.delta)
            for one in self.dimensions
            if one.high is not None
        ]
        sources = [f"{alias}_rows" for alias in self.aliases]
        return write_join(columns, self.aliases, sources, self.duckdb_on or self.on, self.window_us, cells)


def band(key: int, reach: float, *name: str) -> Dimension:
    """Make the dimension |left - right| <= reach of two keys with the same number."""
    return Dimension(Side.LEFT, key, inside.Bound(key, -reach), inside.Bound(key, reach), *name)


def keys(*columns: str, domain: Domain = Domain.INT) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Make the same key columns for both sides."""
    return (tuple(Key(column, domain) for column in columns),) * 2


def stamp(table: pa.Table) -> pa.Table:
    """Add event times, which spread the rows of a table evenly over ``TICKS_US``."""
    number = np.arange(table.num_rows, dtype=np.int64)
    ts = START_US + number * TICKS_US // max(1, table.num_rows)
    return table.append_column("ts", pa.array(ts, type=pa.timestamp("us", tz="UTC")))
