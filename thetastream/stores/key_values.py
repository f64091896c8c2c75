"""Keeps the distinct key values of files in memory, so that a question by a value opens only files with it.

    place of staged rows, key column  ->  the distinct values as numbers of 64 bits, sorted

The number of an integer or a date is its value, and the number of a text is its hash. Rows never change, so
values are read once. Up to ``CAPACITY`` bytes of values stay in memory. The values of the newest rows are
read first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.stores.recent import LARGEST, Recent
from thetastream.stores.selection import Range, Selection
from thetastream.stores.staged import Staged

CAPACITY = 128 << 20
"""Bytes of all values that are kept."""
Numbers = npt.NDArray[np.uint64]
NUMBER_BYTES = 8
KEY_VALUES: Recent[Numbers] = Recent(CAPACITY)
"""The values of keys in the files of all stores of this process."""
ReadNumbers = Callable[[Staged, str], Numbers]
"""Returns the values of a key column in staged rows, as ``list_numbers`` makes them."""


def keep_with_values(staged: Sequence[Staged], selection: Selection, read: ReadNumbers) -> list[Staged]:
    """Leave out staged rows that do not have the values of a selection.

    Rows whose values do not fit into memory are not left out.
    """
    wanted = [(one.column, list_numbers(pa.array([one.low]))) for one in selection.ranges if is_value(one)]
    if not wanted:
        return list(staged)
    room, kept = CAPACITY, []
    for one in reversed(staged):
        nbytes = one.rows * NUMBER_BYTES * len(wanted)
        room -= nbytes
        if room < 0 or nbytes > LARGEST or all(_has(read(one, column), value) for column, value in wanted):
            kept.append(one)
    return kept[::-1]


def is_value(wanted: Range) -> bool:
    """Whether a range is one value, and this module keeps the values of its type."""
    low, high = wanted.low, wanted.high
    if low is None or high is None or not wanted.includes_high or not low.equals(high):
        return False
    kind = low.type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind))


def list_numbers(column: Any) -> Numbers:
    """List the distinct values of a column as sorted numbers, without NULL.

    >>> list_numbers(pa.array([3, None, 1, 3]))
    array([1, 3], dtype=uint64)
    """
    values = pc.drop_null(pc.unique(column))
    if pa.types.is_string(values.type):
        from pandas.util import hash_array

        numbers = hash_array(values.to_numpy(zero_copy_only=False), categorize=False)
    else:
        whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
        numbers = whole.cast(pa.int64()).to_numpy().view(np.uint64)
    return np.sort(numbers)


def _has(numbers: Numbers, value: Numbers) -> bool:
    place = numbers.searchsorted(value[0])
    return bool(place < len(numbers) and numbers[place] == value[0])
