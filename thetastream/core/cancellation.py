"""Rows that change: a tuple has a sign, and equal tuples of opposite sign cancel each other.

    insert: +1        delete: -1        sign of a pair = sign of its left tuple * sign of its right tuple

A row that exists three times is three tuples of sign +1. Signs never add up to larger numbers.

``thetastream.core.equal_rows`` says which tuples are equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import Matches, concat
from thetastream.core.columns import SIGN, TUPLE
from thetastream.core.equal_rows import EqualRows, is_plain, take_rows
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Side

MOST_HELD = 1 << 18
"""The number of matches that wait for others by which they are cancelled. Of more, some come and go."""
FEW = 4
"""Deletes are few if there are so many times as many inserts. Then most inserts are equal to none of them."""
Signs = npt.NDArray[np.int8]
"""One sign per row: +1 or -1."""


def read_signs(tuples: pa.RecordBatch) -> Signs | None:
    """Read the signs of tuples; None if their stream has only inserts."""
    place = tuples.schema.get_field_index(SIGN)
    return None if place < 0 else tuples.column(place).to_numpy(zero_copy_only=False)


def multiply_signs(
    mine: pa.RecordBatch, found: Int64s, theirs: pa.RecordBatch, stored: Int64s
) -> pa.Array | None:
    """Return the sign of each pair ``mine[found], theirs[stored]``; None if neither stream has deletes."""
    left, right = read_signs(mine), read_signs(theirs)
    if left is None and right is None:
        return None
    if left is None or right is None:
        signs, rows = (right, stored) if left is None else (left, found)
        return pa.array(signs[rows])  # type: ignore[index]
    return pa.array(left[found] * right[stored])


def cancel(tuples: pa.RecordBatch) -> pa.RecordBatch:
    """Return the tuples that are left when equal tuples of opposite sign cancel each other.

    >>> tuples = {"c0": [5, 7, 5, 5], "w": pa.array([1, 1, -1, 1], pa.int8())}
    >>> cancel(pa.RecordBatch.from_pydict(tuples)).to_pydict()
    {'c0': [7, 5], 'w': [1, 1]}
    """
    left = find_left(tuples)
    return tuples if left is None else tuples.take(left)


def find_left(tuples: pa.RecordBatch) -> Int64s | None:
    """Find the positions of the tuples that ``cancel`` leaves; None if it leaves all of them."""
    signs = read_signs(tuples)
    if signs is None:
        return None
    return find_net(list_columns(tuples), signs)


def list_columns(tuples: pa.RecordBatch) -> list[pa.Array]:
    """List the columns of tuples without their sign, and without the number that a unit has given them."""
    columns = zip(tuples.schema.names, tuples.columns, strict=True)
    return [column for name, column in columns if name not in (SIGN, TUPLE)]


def find_net(columns: Sequence[pa.Array], signs: Signs) -> Int64s | None:
    """Find the positions of the rows that are left when equal rows of opposite sign cancel each other.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        All columns of the rows, without the sign.
    signs : int8, shape (n,)

    Returns
    -------
    int64, shape (rows left,), or None
        The positions in ascending order. None if no row cancels another one.

    Examples
    --------
    >>> find_net([pa.array([1.5, None, None])], np.array([1, 1, -1], dtype=np.int8))
    array([0])
    """
    deleted, inserted = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
    if not len(deleted) or not len(inserted):
        return None
    # 1. Choose the inserts that may be equal to a delete. Beside few deletes, these are few.
    if FEW * len(deleted) <= len(inserted):
        inserted = Lookalikes(take_rows(columns, deleted)).find(columns, inserted)
        if not len(inserted):
            return None
    # 2. Leave out rows without a counterpart by their numbers alone. Texts and nested values cost more.
    rows = np.sort(np.concatenate([deleted, inserted]))
    plain = [column for column in columns if is_plain(column.type)]
    if 0 < len(plain) < len(columns):
        rows = rows[_Cancelling.find(plain, rows, signs).find_open()]
    if not len(rows):
        return None
    # 3. Of each group of equal rows, cancel as many inserts as deletes.
    cancelled = _Cancelling.find(columns, rows, signs).find_cancelled()
    if not len(cancelled):
        return None
    is_left = np.ones(len(signs), dtype=np.bool_)
    is_left[rows[cancelled]] = False
    return np.flatnonzero(is_left)


class _Cancelling(NamedTuple):
    """Rows in groups, and how many deletes and how many inserts of each group cancel each other."""

    groups: EqualRows
    deletes: Mask
    """Which rows of ``groups.order`` are deletes."""
    counts: Int64s

    @classmethod
    def find(cls, columns: Sequence[pa.Array], rows: Int64s, signs: Signs) -> "_Cancelling":
        """Group these rows of columns, in ascending order, and count the signs of each group."""
        is_whole = len(rows) == len(signs)
        groups = EqualRows.find(columns if is_whole else take_rows(columns, rows))
        deletes = (signs[rows] < 0)[groups.order]
        n_deletes = np.add.reduceat(deletes.astype(np.int64), groups.starts)
        return cls(groups, deletes, np.minimum(n_deletes, groups.sizes - n_deletes))

    def find_open(self) -> Int64s:
        """Find the rows in whose group there are deletes and inserts, in ascending order."""
        return np.sort(self.groups.order[np.repeat(self.counts > 0, self.groups.sizes)])

    def find_cancelled(self) -> Int64s:
        """Find the rows that cancel each other: of each group, the first deletes and the first inserts."""
        starts, sizes = self.groups.starts, self.groups.sizes
        place = np.arange(len(self.deletes)) - np.repeat(starts, sizes)
        n_deletes: Int64s = np.cumsum(self.deletes) - self.deletes
        n_deletes -= np.repeat(n_deletes[starts], sizes)
        place = np.where(self.deletes, n_deletes, place - n_deletes)
        return self.groups.order[place < np.repeat(self.counts, sizes)]


def find_counterparts(tuples: pa.RecordBatch, deletes: pa.RecordBatch) -> Int64s:
    """Find the inserts among ``tuples`` that may be equal to one of the ``deletes``.

    Columns are compared one by one, so some of them are equal to none. Both batches have the same columns.
    """
    signs = read_signs(tuples)
    assert signs is not None
    columns = list_columns(tuples)
    return Lookalikes(list_columns(deletes)).find(columns, np.flatnonzero(signs > 0))


class Lookalikes:
    """Finds the rows that may be equal to one of given rows: each of their values is in one of those.

    Columns with floats, lists, structs and maps are not compared.

    Examples
    --------
    >>> lookalikes = Lookalikes([pa.array([1, 2]), pa.array(["a", "b"])])
    >>> lookalikes.find([pa.array([1, 1, 3]), pa.array(["b", "c", "a"])], np.arange(3))
    array([0])
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._known = [
            None
            if pa.types.is_nested(column.type) or pa.types.is_floating(column.type)
            else pc.unique(column)
            for column in columns
        ]

    def find(self, columns: Sequence[pa.Array], rows: Int64s) -> Int64s:
        """Return those of these positions at which a row may be equal to one of the given rows."""
        for column, known in zip(columns, self._known, strict=True):
            if known is not None and len(rows):
                chosen = column if len(rows) == len(column) else column.take(pa.array(rows))
                rows = rows[pc.is_in(chosen, value_set=known).to_numpy(zero_copy_only=False)]
        return rows


def cancel_matches(matches: Iterable[Matches], stored: Side, deletes: pa.RecordBatch) -> Iterator[Matches]:
    """Yield matches without those that cancel each other, because a stored tuple and its delete are in both.

    Parameters
    ----------
    matches : iterable of Matches
        The matches of tuples that probe the other side.
    stored : Side
        The side of the stored tuples.
    deletes : pyarrow.RecordBatch
        The stored deletes, with the columns that matches have of this side.
    """
    lookalikes, held, n_held = Lookalikes(deletes.columns), list[Matches](), 0
    for one in matches:
        theirs = one.right if stored is Side.RIGHT else one.left
        rows = lookalikes.find(theirs.columns, np.arange(len(theirs)))
        if not len(rows):
            yield one
            continue
        rest = np.ones(len(theirs), dtype=np.bool_)
        rest[rows] = False
        if rest.any():
            yield one.take(np.flatnonzero(rest))
        held.append(one.take(rows))
        n_held += len(rows)
        if n_held > MOST_HELD:
            yield net_matches(held)
            held, n_held = [], 0
    if held:
        yield net_matches(held)


def net_matches(held: Sequence[Matches]) -> Matches:
    """Return the matches that are left when equal ones of opposite sign cancel each other."""
    one = Matches(
        concat([each.left for each in held]),
        concat([each.right for each in held]),
        pa.concat_arrays([each.signs for each in held]),
    )
    assert one.signs is not None
    left = find_net([*one.left.columns, *one.right.columns], one.signs.to_numpy())
    return one if left is None else one.take(left)
