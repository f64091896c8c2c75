"""The gathering: an epoch's results of all units, put in order.

An epoch is when all units have reached the same punctuation, so the gathering waits for its end, and never
longer. A result has two arrivals, its left and its right tuple's: the later one is the arrival that made it,
the earlier one the stored tuple's. A punctuation is a row whose right arrival is NULL; rows with neither,
which are no results, come first.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.keys import Int64s
from thetastream.order.spec import Order

ROWS_AT_ONCE = 1 << 16


def gather(batches: Iterable[pa.RecordBatch], order: Order, places: tuple[int, int]) -> Iterator[pa.Table]:
    """The rows of an epoch in order, ``ROWS_AT_ONCE`` at a time.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Of one schema, in any order.
    order : Order
    places : (int, int)
        Positions of the int64 columns with the arrivals of the left and of the right tuple.
    """
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    left, right = (table.column(place) for place in places)
    is_punctuation = right.is_null().to_numpy()
    sorted_rows = ranked(left.fill_null(-1).to_numpy(), right.fill_null(-1).to_numpy(), is_punctuation, order)
    for start in range(0, len(sorted_rows), ROWS_AT_ONCE):
        yield table.take(sorted_rows[start : start + ROWS_AT_ONCE])


def ranked(left: Int64s, right: Int64s, is_punctuation: npt.NDArray[np.bool_], order: Order) -> Int64s:
    """Positions of the rows in order.

    >>> ranked(np.array([7, 2, 5]), np.array([3, 5, 1]), np.zeros(3, dtype=bool), Order(is_strict=True))
    array([2, 1, 0])
    """
    interval = np.maximum(left, right) // order.interval
    keys = [is_punctuation, interval]
    if order.is_strict:
        keys.insert(0, np.minimum(left, right))
    return np.lexsort(keys)
