"""Remembers which values of a key files have, so that a question by a value reads only the files with it.

    place of staged rows, key column  ->  the distinct values, sorted

Rows never change, so the values are read once. They stay in memory up to ``CAPACITY`` bytes, those of the
newest rows first.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.stores.recent import LARGEST, Recent
from thetastream.stores.selection import Range, Selection
from thetastream.stores.staged import Staged

CAPACITY = 128 << 20
"""Bytes of all values that are kept."""
TEXT_BYTES = 32
"""Bytes that a text is assumed to have."""
VALUE = "value"
KEY_VALUES = Recent(CAPACITY)
"""The values of keys in the files of all stores of this process."""
ReadValues = Callable[[Staged, Range], pa.Table]
"""Returns the values of a key in staged rows, as ``sort_values`` makes them."""


def keep_with_values(staged: Sequence[Staged], selection: Selection, read: ReadValues) -> list[Staged]:
    """Leave out staged rows that have not the values which a selection asks for.

    Rows whose values find no room in memory stay in the list.
    """
    wanted = [one for one in selection.ranges if is_value(one)]
    if not wanted:
        return list(staged)
    width, room, kept = sum(_estimate_bytes(one.low) for one in wanted), CAPACITY, []
    for one in reversed(staged):
        size = one.rows * width
        room -= size
        if room < 0 or size > LARGEST or all(_has(read(one, each), each.low) for each in wanted):
            kept.append(one)
    return kept[::-1]


def is_value(wanted: Range) -> bool:
    """Whether a range is one value of a type whose values Python compares as Arrow does."""
    low, high = wanted.low, wanted.high
    if low is None or high is None or not wanted.has_high or not low.equals(high):
        return False
    kind = low.type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def sort_values(column: Any) -> pa.Table:
    """Sort the distinct values of a column. NULL is none.

    >>> sort_values(pa.array([3, None, 1, 3]))[VALUE].to_pylist()
    [1, 3]
    """
    values = pc.drop_null(pc.unique(column))
    return pa.table({VALUE: values.take(pc.sort_indices(values))})


def _has(values: pa.Table, wanted: pa.Scalar) -> bool:
    (column,) = values[VALUE].chunks or [pa.array([], wanted.type)]
    value = wanted.as_py()
    place = bisect_left(column, value, key=lambda one: one.as_py())
    return place < len(column) and column[place].as_py() == value


def _estimate_bytes(value: pa.Scalar) -> int:
    return TEXT_BYTES if pa.types.is_string(value.type) else int(value.type.bit_width // 8)
