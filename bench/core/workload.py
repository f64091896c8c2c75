"""The definition of a workload: one join of two streams, as data and as conditions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.core.join_sql import Cells

Columns = dict[str, pa.Array]
Draw = Callable[[np.random.Generator, int, int], Columns]
"""It draws payload columns from (random generator, number of tuples, window)."""


@dataclass(frozen=True)
class Workload:
    """One join: two aliases, the functions that draw their tuples, and the condition in each dialect.

    The event time of a tuple is its place in the stream times ``tick_us``; both streams are in step. A window
    of W tuples is an interval of W - 1 ticks, both ends included.
    """

    name: str
    aliases: tuple[str, str]
    draw: tuple[Draw, Draw]
    on: str
    """The condition in Spark SQL, as ``th.join`` takes it."""
    duckdb_on: str
    """The condition in DuckDB, with casts so that FLOAT and INTEGER are compared as DOUBLE, as in Spark."""
    window: int
    epoch: int
    depends_on_window: bool = False
    """Whether ``draw`` reads the window, to keep the results per tuple constant."""
    cells: Callable[[int], tuple[Cells, ...]] = lambda window: ()
    """The cells that DuckDB needs for a window, if the condition has no equality."""
    tick_us: int = 1000
    place: Callable[[np.ndarray], np.ndarray] = lambda number: number
    """The ticks from the beginning of the stream to each tuple, from the numbers of the tuples."""
    window_us: int | None = None
    """The length of the window, if it does not follow from the number of its tuples."""
