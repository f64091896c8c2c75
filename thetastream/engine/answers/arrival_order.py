"""An order of the new tuples of an epoch that does not depend on the order in which they arrive.

If Spark runs a task again, the tuples of an epoch may arrive in another order. They must get the same numbers
then, so they are sorted before they are numbered. Only tuples with equal columns may change places.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_floating, is_nested

from thetastream.core.keys import Int64s
from thetastream.engine.answers.number_set import Mask


def sort_tuples(batch: pa.RecordBatch, time: str | None) -> pa.RecordBatch:
    """Sort tuples by all their columns.

    ``time`` is the column of the event time, if there is one. It comes first because event times differ most:
    sorting by a text first takes 14 times as long.

    >>> batch = pa.RecordBatch.from_pydict({"x": [2, 1, 1, 1], "tags": [[], ["b"], None, ["a"]]})
    >>> sort_tuples(batch, None).column("tags").to_pylist()
    [None, ['a'], ['b'], []]
    """
    flat = [field.name for field in batch.schema if not is_nested(field.type)]
    nested = [field.name for field in batch.schema if is_nested(field.type)]
    flat.sort(key=lambda name: name != time)
    if flat:
        batch = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in flat]))
    if not nested or batch.num_rows < 2:
        return batch
    # Arrow cannot sort by nested columns. They decide among tuples that are equal in all other columns.
    equal = _find_equal_to_next([batch.column(name) for name in flat], batch.num_rows)
    ties = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if not len(ties):
        return batch
    groups = np.cumsum(np.append(True, ~equal))[ties].tolist()
    texts = map(repr, zip(*(batch.column(name).take(ties).to_pylist() for name in nested), strict=True))
    order: Int64s = np.arange(batch.num_rows)
    order[ties] = [row for *_, row in sorted(zip(groups, texts, ties.tolist(), strict=True))]
    return batch.take(order)


def _find_equal_to_next(columns: Sequence[pa.Array], n: int) -> Mask:
    """Return for each of ``n`` rows but the last one whether it equals the next one.

    NULLs are equal, and so are NaNs.
    """
    equal = np.ones(n - 1, np.bool_)
    for column in columns:
        mine, next_ = column.slice(0, n - 1), column.slice(1)
        same = pc.or_(pc.fill_null(pc.equal(mine, next_), False), pc.and_(mine.is_null(), next_.is_null()))
        if is_floating(column.type):
            same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(mine), pc.is_nan(next_)), False))
        equal &= same.to_numpy(zero_copy_only=False)
    return equal
