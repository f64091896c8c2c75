"""Chooses among the versions of rows: tuples that say from when on a row of a key holds."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.columns import VERSION_GONE, VERSION_ORDER
from thetastream.core.keys import Int64s


def select_last(owners: Int64s, versions: pa.RecordBatch) -> Int64s:
    """Return the position of the last version of each owner, by its order.

    A version without an order comes before all others. Of equal ones, that with the last position is chosen.

    >>> versions = pa.RecordBatch.from_pydict({"q": [5, None, 9, 2]})
    >>> select_last(np.array([7, 8, 7, 8]), versions).tolist()
    [2, 3]
    """
    columns = {"owner": pa.array(owners)}
    if VERSION_ORDER in versions.schema.names:
        order = versions.column(VERSION_ORDER)
        columns |= {"known": order.is_valid(), "order": order}
    by = [(name, "ascending") for name in columns]
    positions = pc.sort_indices(pa.table(columns), by).to_numpy().astype(np.int64)
    is_last = np.append(np.diff(owners[positions]) != 0, True)[: len(positions)]
    found: Int64s = positions[is_last]
    return found


def are_gone(versions: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which versions say that their key has no row any more."""
    gone: npt.NDArray[np.bool_] = versions.column(VERSION_GONE).to_numpy(zero_copy_only=False)
    return gone
