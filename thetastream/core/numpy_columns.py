"""Calls a predicate with NumPy arrays, where the join has Arrow arrays.

Arrow                          NumPy
BOOLEAN, integers, floats      the same type; NaN stays NaN
TIMESTAMP                      datetime64[us], UTC
TIMESTAMP_NTZ, DATE            datetime64[us], datetime64[D]
INTERVAL DAY TO SECOND         timedelta64[us]
anything else                  object: str, bytes, Decimal, arrays of a list, dict

NumPy has no NULL. A candidate that has a NULL in one of the columns is not passed to the function, and does
not join.
"""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class NumpyCall:
    """A function that takes Arrow columns and calls a predicate with NumPy columns.

    Parameters
    ----------
    function : callable
        The predicate. It takes one object with columns per alias, as keyword arguments.
    instants : collection of (alias, column)
        The columns that hold instants as int64 microseconds since 1970.

    Examples
    --------
    >>> call = NumpyCall(lambda a, b: a.x > b.y, ())
    >>> columns = SimpleNamespace(x=pa.array([1, None, 3])), SimpleNamespace(y=pa.array([2, 2, 2]))
    >>> call(a=columns[0], b=columns[1]).tolist()
    [False, False, True]
    """

    def __init__(self, function: Callable[..., Any], instants: Collection[tuple[str, str]]) -> None:
        self._function = function
        self._instants = frozenset(instants)

    def __call__(self, **sides: Any) -> Any:
        """Return the answer of the predicate: one boolean per candidate, false where a column is NULL."""
        columns = {alias: vars(side) for alias, side in sides.items()}
        known = _find_known(column for side in columns.values() for column in side.values())
        if known is not None:
            columns = {
                alias: {name: column.filter(known) for name, column in side.items()}
                for alias, side in columns.items()
            }
        arguments = {
            alias: SimpleNamespace(
                **{name: self._to_numpy(alias, name, column) for name, column in side.items()}
            )
            for alias, side in columns.items()
        }
        if known is None:
            return self._function(**arguments)
        is_match = known.to_numpy(zero_copy_only=False).copy()
        n = int(is_match.sum())
        if n:
            answer = np.asarray(self._function(**arguments))
            if answer.dtype != np.bool_ or answer.shape != (n,):
                raise ValueError(f"it must return {n} booleans, not {answer.dtype} of shape {answer.shape}")
            is_match[is_match] = answer
        return is_match

    def _to_numpy(self, alias: str, name: str, column: pa.Array) -> Any:
        values = column.to_numpy(zero_copy_only=False)
        return values.view("datetime64[us]") if (alias, name) in self._instants else values


def _find_known(columns: Any) -> pa.Array | None:
    """Return which rows have no NULL in any column. Return None if all rows have none."""
    known: pa.Array | None = None
    for column in columns:
        if column.null_count:
            valid = pc.is_valid(column)
            known = valid if known is None else pc.and_(known, valid)
    return known
