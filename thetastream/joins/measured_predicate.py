"""``th.measure_predicate`` measures what a Python predicate costs, on sample rows, before a join is planned.

A plan does not measure by itself: a query that is started again must find the model of its checkpoint, and a
measured figure differs a little from start to start. So the figure is a value of the program.
"""

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
import pyarrow as pa

from thetastream.conditions import Predicate
from thetastream.core.condition import PythonPredicate
from thetastream.core.errors import QueryError
from thetastream.engine.matching import CandidateRows, evaluate
from thetastream.index.base import CANDIDATE_S

FEWEST, MOST = 1 << 4, 1 << 16
"""The numbers of candidates of the first and of the largest call."""
ENOUGH_S = 0.02
"""Seconds of a call from which on the cost of the call itself does not count."""
REPEATS = 3


def measure_predicate(
    predicate: Predicate, samples: Mapping[str, pa.Table], read_s: Callable[[], float] = perf_counter
) -> float:
    """Measure the seconds that a join takes to compare one candidate by a predicate.

    The predicate is called with pairs of sample rows, ever more until a call takes 20 ms. The fastest of
    three such calls counts.

    Parameters
    ----------
    predicate : Predicate
        A function that ``@th.predicate`` marks.
    samples : mapping of alias to pyarrow.Table
        A few rows of each stream that the predicate reads, as in ``frame.limit(100).toArrow()``. They have
        the columns that it reads.
    read_s : callable
        The clock: it returns seconds.

    Returns
    -------
    float
        Seconds, for ``th.Statistics(seconds_per_candidate=)``. A query that starts again on its checkpoint
        needs the same figure, or the model by name, because ``auto`` chooses by it.

    Raises
    ------
    QueryError
        BAD_SAMPLE if a stream has no sample with rows, or a sample lacks a column. BAD_VALUE if the function
        is not marked.
    PredicateError
        PREDICATE_RAISED or PREDICATE_RESULT.

    Examples
    --------
    >>> import thetastream as th
    >>> @th.predicate("numpy", a=["x"], b=["y"])
    ... def close(a, b):
    ...     return abs(a.x - b.y) <= 1
    >>> rows = pa.table({"x": range(100), "y": range(100)})
    >>> 20e-9 < measure_predicate(close, {"a": rows, "b": rows}) < 1e-3
    True
    """
    if not isinstance(predicate, Predicate):
        what = "th.measure_predicate needs a function that @th.predicate marks"
        raise QueryError("BAD_VALUE", f"{what}, not {predicate!r:.100}")
    if not isinstance(samples, Mapping):
        raise QueryError("BAD_SAMPLE", f"samples must map aliases to tables, not {samples!r:.100}")
    tables = {str(alias).casefold(): table for alias, table in samples.items()}
    batches, columns, instants = [], [], set()
    for alias, names in predicate.columns:
        batch = _read_sample(alias, names, tables.get(alias.casefold()))
        instants |= {(alias, name) for name in names if _is_instant(batch.column(name).type)}
        batches.append(_store_as_blocks_do(batch))
        columns.append(tuple((name, name) for name in names))
    aliases = tuple(alias for alias, _ in predicate.columns)
    call = predicate.adapt(lambda alias, name: (alias, name) in instants)
    asked = PythonPredicate(predicate.name, call, aliases, tuple(columns), predicate.is_encoded)
    n, seconds = FEWEST, 0.0
    while seconds < ENOUGH_S and n < MOST:
        n *= 2
        seconds = _time_call(asked, _draw_pairs(batches, n), read_s)
    again = [_time_call(asked, _draw_pairs(batches, n), read_s) for _ in range(REPEATS - 1)]
    return CANDIDATE_S + min(seconds, *again) / n


def _read_sample(alias: str, names: tuple[str, ...], table: pa.Table | None) -> pa.RecordBatch:
    """Return the columns that a predicate reads of the sample of one stream."""
    if not isinstance(table, pa.Table) or not table.num_rows:
        raise QueryError(
            "BAD_SAMPLE",
            f"samples must have a pyarrow.Table with rows for {alias!r}, as in frame.limit(100).toArrow()",
        )
    missing = [name for name in names if name not in table.column_names]
    if missing:
        what = f"the predicate reads {alias}.{missing[0]}"
        raise QueryError("BAD_SAMPLE", f"{what}, and its sample has {', '.join(table.column_names)}")
    batch: pa.RecordBatch = table.select(names).combine_chunks().to_batches()[0]
    return batch


def _is_instant(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.tz is not None


def _store_as_blocks_do(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns as blocks hold them: an instant is a number of microseconds."""
    micros = pa.timestamp("us", "UTC")
    columns = [
        column.cast(micros).cast(pa.int64()) if _is_instant(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _draw_pairs(batches: list[pa.RecordBatch], n: int) -> CandidateRows:
    """Draw ``n`` pairs of rows, the same ones each time. Probes come in order, as a join brings them."""
    random = np.random.default_rng(1)
    drawn = [random.integers(0, batch.num_rows, n) for batch in batches]
    drawn[0].sort()
    return list(zip(batches, drawn, strict=True))


def _time_call(predicate: PythonPredicate, candidates: CandidateRows, read_s: Callable[[], float]) -> float:
    began_s = read_s()
    evaluate(predicate, candidates)
    return read_s() - began_s
