"""Adds up changes: each delete cancels an insert of an equal row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.cancellation import find_net
from thetastream.core.columns import CHANGE_TYPE, INSERT


def add_up(changes: pa.Table) -> pa.Table:
    """Return the rows that hold after all changes: the inserts without a delete.

    >>> kinds = ["insert", "insert", "delete"]
    >>> add_up(pa.table({"id": [1, 2, 1], "_change_type": kinds})).to_pydict()
    {'id': [2]}
    """
    left = cancel_changes(changes)
    return left.filter(pc.equal(left[CHANGE_TYPE], INSERT)).drop_columns([CHANGE_TYPE])


def cancel_changes(changes: pa.Table) -> pa.Table:
    """Return the changes that are left when each delete has cancelled an insert of an equal row.

    >>> kinds = ["insert", "delete", "delete"]
    >>> cancel_changes(pa.table({"id": [1, 1, 2], "_change_type": kinds})).to_pylist()
    [{'id': 2, '_change_type': 'delete'}]
    """
    is_insert = pc.equal(changes[CHANGE_TYPE], INSERT).to_numpy()
    if not is_insert.any() or is_insert.all():
        return changes
    columns = [join_chunks(column) for column in changes.drop_columns([CHANGE_TYPE]).columns]
    left = find_net(columns, np.where(is_insert, 1, -1).astype(np.int8))
    if left is None:
        return changes
    is_left = np.zeros(len(changes), dtype=np.bool_)
    is_left[left] = True
    return changes.filter(pa.array(is_left))


def join_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array.

    An array of texts has at most 2 GiB, so several chunks become an array of large texts.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.cast(_enlarge(column.type)).chunks)


def _enlarge(kind: pa.DataType) -> pa.DataType:
    """Return the type with 64-bit offsets. Maps keep theirs, because Arrow has no large maps."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.large_list(_enlarge(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_enlarge(field.type)) for field in kind])
    return kind
