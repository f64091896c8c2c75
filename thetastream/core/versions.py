"""Chooses among the versions of rows: tuples that say from when on a row of a key holds."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.columns import VERSION_GONE, VERSION_ORDER
from thetastream.core.equal_rows import number_rows
from thetastream.core.keys import Int64s


def select_last(owners: Int64s, versions: pa.RecordBatch, columns: Sequence[str]) -> Int64s:
    """Return the position of the last version of each owner, by its order.

    A version without an order comes before all others. Of those with one order, the values in ``columns``
    decide: the insert and the delete of a partner must find the same version, wherever it is stored by then.

    >>> versions = pa.RecordBatch.from_pydict({"q": [5, None, 9, 2]})
    >>> select_last(np.array([7, 8, 7, 8]), versions, ["q"]).tolist()
    [2, 3]
    """
    keys = {"owner": pa.array(owners)}
    if VERSION_ORDER in versions.schema.names:
        order = versions.column(VERSION_ORDER)
        keys |= {"known": order.is_valid(), "order": order}
    by = [(name, "ascending") for name in keys]
    positions = pc.sort_indices(pa.table(keys), by).to_numpy().astype(np.int64)
    is_last = np.append(np.diff(owners[positions]) != 0, True)[: len(positions)]
    found: Int64s = positions[is_last]
    stretches = _number_stretches(number_rows(list(keys.values()))[positions])
    ends = np.flatnonzero(is_last)
    values = versions.select([*columns, *({VERSION_GONE} & set(versions.schema.names))])
    starts = np.searchsorted(stretches, stretches[ends])
    for n in np.flatnonzero(ends > starts):
        equal = positions[starts[n] : ends[n] + 1]
        found[n] = max(equal, key=lambda place: _write_values(values, int(place)))
    return found


def _number_stretches(values: Int64s) -> Int64s:
    """Number the stretches of equal values.

    >>> _number_stretches(np.array([7, 7, 5, 7])).tolist()
    [0, 0, 1, 2]
    """
    return np.cumsum(np.diff(values, prepend=values[:1]) != 0)


def _write_values(rows: pa.RecordBatch, place: int) -> list[str]:
    return [repr(column[place].as_py()) for column in rows.columns]


def are_gone(versions: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which versions say that their key has no row any more."""
    gone: npt.NDArray[np.bool_] = versions.column(VERSION_GONE).to_numpy(zero_copy_only=False)
    return gone
