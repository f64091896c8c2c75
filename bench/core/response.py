"""Response times of whole queries in Spark: from the arrival of a result's latest tuple to the result.

Every tuple carries the number of its file, and ``observe`` counts the results of an epoch by the file of
their latest tuple. So response times are observed, and nothing is replayed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from bench.core.clock import Clock, Ran
from bench.core.rows import Row

FILE = "e"
"""The column with the number of the file of a tuple."""


def number(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Add the number of its file to each tuple of a stream."""
    for file, table in enumerate(tables):
        yield table.append_column(FILE, pa.array(np.full(table.num_rows, file)))


def count_by_file(
    clock: Clock,
    key: Any,
    files: Mapping[str, list[pa.Table]],
    join: Callable[[dict[str, Any], str], Any],
) -> tuple[Ran, np.ndarray]:
    """Run a query over files, which are written once for each key, until no message is in flight.

    Return the run, and the number of results of shape (epochs, files) by the file of their latest tuple.
    """
    names = [f"f{file}" for file in range(max(map(len, files.values())))]
    folder = clock.files(key, lambda: {alias: number(tables) for alias, tables in files.items()})
    clock.session()  # Columns exist only beside a session.
    latest = F.greatest(*(F.col(f"{alias}.{FILE}") for alias in files))
    observed = [F.count_if(latest == file).alias(name) for file, name in enumerate(names)]
    ran = clock.run(folder, files, join, observed)
    seen = [{} if epoch.observed is None else epoch.observed.asDict() for epoch in ran.epochs]
    return ran, np.array([[counts.get(name, 0) for name in names] for counts in seen])


def respond(ms: list[float], counts: np.ndarray, first: int, moments: np.ndarray) -> Row:
    """Compute the milliseconds and epochs from arrival to result.

    ``counts[f, n]`` results were found in epoch f, and their latest tuple is of file first + n. Tuples arrive
    at ``moments`` of the epoch before their own, which are shares of that epoch. The moment 1 is its end.

    >>> found = respond([100.0, 10.0, 10.0], np.array([[0], [3], [1]]), 1, np.linspace(0, 1, 21))
    >>> found["response_ms"], found["response_epochs"], found["at_once"]
    (62.5, 1.25, 0.75)
    """
    until = np.concatenate([[0.0], np.cumsum(ms)])
    epochs, files = np.nonzero(counts)
    weights, came = counts[epochs, files], files + first
    begun = until[came] - np.multiply.outer(1 - moments, np.array(ms)[came - 1])
    waits = until[epochs + 1] - begun
    order = np.argsort(waits, axis=None)
    share = np.cumsum(np.broadcast_to(weights, waits.shape).ravel()[order])
    half, most = (waits.ravel()[order][np.searchsorted(share, share[-1] * part)] for part in (0.5, 0.99))
    return {
        "response_ms": float(np.average(waits.mean(axis=0), weights=weights)),
        "response_ms_p50": float(half),
        "response_ms_p99": float(most),
        "response_epochs": float(np.average(epochs - came + 1, weights=weights)),
        "at_once": float(weights[epochs == came].sum() / weights.sum()),
    }
