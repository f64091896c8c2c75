"""Streams of Q7 whose rate follows the load curve of BiStream's section 6.4.

    tuples of lineitem in epoch e  =  all tuples * rate(e) / sum of the rates

Time is compressed: an epoch holds ``EPOCH_S`` seconds of event time, and takes as long as it takes.
Suppliers arrive evenly.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bench.core.internals import BISTREAM_CURVE
from bench.core.query import START_US, Query
from bench.core.rows import Row
from bench.papers import inputs

EPOCH_S = 30
WINDOW_S = 300
EPOCHS = int(BISTREAM_CURVE.end_s) // EPOCH_S
WINDOW_EPOCHS = WINDOW_S // EPOCH_S
ENLARGED = 2
"""Q7 is read at so many times the scale of the other figures, so that an epoch has thousands of tuples."""


def follow_curve(scale: float) -> Query:
    """Make Q7 with event times that follow the curve."""
    return spread_over_curve(inputs.q7(ENLARGED * scale))


def spread_over_curve(query: Query) -> Query:
    """Replace the event times of a query: the right stream follows the curve, and the left one is even."""
    suppliers, lines = query.tables
    rates = np.array([BISTREAM_CURVE.rate(epoch * EPOCH_S) for epoch in range(EPOCHS)])
    even = np.full(EPOCHS, 1.0)
    tables = (_stamp(suppliers, even), _stamp(lines, rates))
    return replace(query, tables=tables, window_us=WINDOW_S * 1_000_000)


def _stamp(table: pa.Table, rates: np.ndarray) -> pa.Table:
    """Replace the event times of a table by those of a stream with these rates, one for each epoch."""
    arrived = np.concatenate([[0.0], np.cumsum(rates) / rates.sum()])
    shares = np.arange(table.num_rows) / max(1, table.num_rows)
    seconds = np.interp(shares, arrived, np.arange(EPOCHS + 1) * EPOCH_S)
    ts = pa.array(START_US + (seconds * 1e6).astype(np.int64), pa.timestamp("us", tz="UTC"))
    return table.set_column(table.schema.get_field_index("ts"), "ts", ts)


def cut_epochs(query: Query, n: int = EPOCHS) -> dict[str, list[pa.Table]]:
    """Cut both streams into one table for each of the first ``n`` epochs."""
    return {alias: list(_cut(table, n)) for alias, table in zip(query.aliases, query.tables, strict=True)}


def _cut(table: pa.Table, n: int) -> Iterator[pa.Table]:
    times = table.column("ts").cast(pa.int64()).to_numpy()
    until = START_US + np.arange(n + 1) * EPOCH_S * 1_000_000
    for start, end in pairwise(np.searchsorted(times, until)):
        yield table.slice(start, end - start)


def describe_curve() -> Row:
    """Describe the streams, for the parameters of the figure."""
    return {"epochs": EPOCHS, "epoch (s of event time)": EPOCH_S, "window (s)": WINDOW_S}
