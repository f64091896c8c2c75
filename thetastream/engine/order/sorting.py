"""Gathers the results of all units in an epoch and puts them in order.

All units reach the same punctuation at the end of an epoch. So results are gathered when the epoch ends, and
they never wait longer. A result has two arrival numbers, those of its left and its right tuple. The later
arrival is that of the tuple that found the result, and the earlier one is that of the stored tuple. A
punctuation is a row in which one of them is NULL. Rows in which both arrivals are NULL are not results; they
come first.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.engine.order.spec import Order

ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 16, 1 << 25
"""The largest number of rows that are taken together, and about their largest number of bytes."""


def sort_results(
    batches: Iterable[pa.RecordBatch], order: Order, places: tuple[int, int]
) -> Iterator[pa.Table]:
    """Yield the rows of an epoch in order, ``ROWS_AT_ONCE`` at a time, or fewer if they are wide.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        The results of all units, in any order. They have one schema.
    order : Order
        The order of results.
    places : (int, int)
        Positions of the int64 columns with the arrivals of the left and of the right tuple.
    """
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    left, right = (table.column(place) for place in places)
    is_punctuation = left.is_null().to_numpy() != right.is_null().to_numpy()
    sorted_rows = rank(left.fill_null(-1).to_numpy(), right.fill_null(-1).to_numpy(), is_punctuation, order)
    n_rows = min(ROWS_AT_ONCE, max(1, len(table) * BYTES_AT_ONCE // max(table.nbytes, 1)))
    for start in range(0, len(sorted_rows), n_rows):
        yield table.take(sorted_rows[start : start + n_rows])


def rank(left: Int64s, right: Int64s, is_punctuation: npt.NDArray[np.bool_], order: Order) -> Int64s:
    """Return the positions of the rows in the order of results.

    >>> rank(np.array([7, 2, 5]), np.array([3, 5, 1]), np.zeros(3, dtype=bool), Order(inner=1))
    array([2, 1, 0])
    """
    interval = np.maximum(left, right) // order.interval
    keys = [is_punctuation, interval]
    if order.inner is not None:
        keys.insert(0, np.minimum(left, right) // order.inner)
    return np.lexsort(keys)
