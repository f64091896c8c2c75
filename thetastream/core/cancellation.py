"""Rows that change: a tuple has a sign, and equal tuples of opposite sign cancel each other.

    insert: +1        delete: -1        sign of a pair = sign of its left tuple * sign of its right tuple

A row that exists three times is three tuples of sign +1. Signs never add up to larger numbers.

Two tuples are equal if all their columns are: NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0. Lists
and maps are equal if their elements are, in order. Values are compared themselves, and not only their hashes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import Matches, concat
from thetastream.core.columns import SIGN, TUPLE
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
        All columns of the rows, without the sign. The search is fast if one of the first columns has few
        equal values.
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
        places = pa.array(deleted)
        inserted = Lookalikes([column.take(places) for column in columns]).find(columns, inserted)
        if not len(inserted):
            return None
    # 2. Compare column by column, and go on with the rows that may still have a counterpart.
    rows = np.sort(np.concatenate([deleted, inserted]))
    groups = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        codes = _number_values(column if len(rows) == len(column) else column.take(pa.array(rows)))
        groups = codes if not groups.any() else _number_pairs(groups, codes)
        deletes = signs[rows] < 0
        n_deletes, n_inserts = _count_groups(groups, deletes)
        is_open = np.minimum(n_deletes, n_inserts)[groups] > 0
        if not is_open.any():
            return None
        if not is_open.all():
            rows, groups = rows[is_open], groups[is_open]
    # 3. Of each group of equal rows, cancel as many inserts as deletes.
    groups = _number_values(pa.array(groups))
    deletes = signs[rows] < 0
    n_deletes, n_inserts = _count_groups(groups, deletes)
    order = np.lexsort((~deletes, groups))  # the deletes of each group come before its inserts
    ends = np.cumsum(n_deletes + n_inserts)
    mine = groups[order]
    place = np.arange(len(order)) - (ends - n_deletes - n_inserts)[mine]
    place -= np.where(deletes[order], 0, n_deletes[mine])
    is_cancelled = np.zeros(len(signs), dtype=np.bool_)
    is_cancelled[rows[order[place < np.minimum(n_deletes, n_inserts)[mine]]]] = True
    return np.flatnonzero(~is_cancelled)


def number_rows(columns: Sequence[pa.Array]) -> Int64s:
    """Number rows by their values in these columns, so that exactly the equal rows have one number.

    >>> number_rows([pa.array([1, 1, None]), pa.array(["a", "b", "a"])]).tolist()
    [0, 1, 2]
    """
    numbers = _number_values(columns[0])
    for column in columns[1:]:
        numbers = _number_pairs(numbers, _number_values(column))
    return numbers


def compare_rows(first: Sequence[pa.Array], second: Sequence[pa.Array]) -> Mask:
    """Compare rows place by place; equality is that of ``number_rows``.

    >>> compare_rows([pa.array([1, None, 3])], [pa.array([1, None, 4])]).tolist()
    [True, True, False]
    """
    same = np.ones(len(first[0]), dtype=np.bool_)
    for mine, theirs in zip(first, second, strict=True):
        same &= _compare_values(mine, theirs)
    return same


def _compare_values(mine: pa.Array, theirs: pa.Array) -> Mask:
    kind = mine.type
    if isinstance(mine, pa.ExtensionArray) or pa.types.is_dictionary(kind) or pa.types.is_nested(kind):
        numbers = _number_values(pa.concat_arrays([mine, theirs]))
        found: Mask = numbers[: len(mine)] == numbers[len(mine) :]
        return found
    same: Mask = pc.fill_null(pc.equal(mine, theirs), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        are_nan = pc.and_(pc.is_nan(mine), pc.is_nan(theirs))
        same |= pc.fill_null(are_nan, False).to_numpy(zero_copy_only=False)
    if mine.null_count and theirs.null_count:
        same |= pc.and_(mine.is_null(), theirs.is_null()).to_numpy(zero_copy_only=False)
    return same


def _number_pairs(first: Int64s, second: Int64s) -> Int64s:
    """Number the pairs of two numbers from 0, so that exactly the equal pairs have one number."""
    return _number_values(pa.array(first * (int(second.max(initial=0)) + 1) + second))


def _count_groups(groups: Int64s, deletes: Mask) -> tuple[Int64s, Int64s]:
    """Count the deletes and the inserts of each group."""
    n_groups = int(groups.max()) + 1
    n_deletes, n_inserts = (np.bincount(groups[mask], minlength=n_groups) for mask in (deletes, ~deletes))
    return n_deletes, n_inserts


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


def _number_values(column: pa.Array) -> Int64s:
    """Number the values of a column from 0, so that exactly the equal values have one number.

    >>> _number_values(pa.array([2.0, None, float("nan"), 2.0, float("nan")])).tolist()
    [0, 1, 2, 0, 2]
    >>> _number_values(pa.array([[1, 2], [1], None, [1, 2]])).tolist()
    [1, 2, 0, 1]
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _number_values(column.storage)
    if pa.types.is_dictionary(kind):
        return _number_values(column.dictionary_decode())
    if pa.types.is_floating(kind):
        column = _normalize_floats(column)
    elif pa.types.is_nested(kind):
        return _number_nested(column)
    numbers: Int64s = column.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return numbers


def _normalize_floats(column: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0, and all kinds of NaN by one."""
    is_zero, is_nan = pc.equal(column, pa.scalar(0, column.type)), pc.is_nan(column)
    column = pc.if_else(is_zero, pa.scalar(0, column.type), column)
    return pc.if_else(is_nan, pa.scalar(float("nan"), column.type), column)


def _number_nested(column: pa.Array) -> Int64s:
    """Number structs, lists and maps by the numbers of what is inside them; NULL has the number 0."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(column.type):
        numbers = np.where(is_null, 0, 1)
        for inner in column.flatten():
            codes = np.where(is_null, 0, _number_values(inner))
            numbers = np.where(is_null, 0, _number_pairs(numbers, codes) + 1)
        return numbers
    known: dict[bytes, int] = {}
    keys = _write_lists(column)
    found = [
        0 if null else known.setdefault(key, len(known) + 1) for null, key in zip(is_null, keys, strict=True)
    ]
    return np.array(found, dtype=np.int64)


def _write_lists(column: pa.Array) -> Iterator[bytes]:
    """Yield the numbers of the elements of each list or map, as bytes."""
    kind = column.type
    if pa.types.is_map(kind):
        inner = np.stack([_number_values(column.keys), _number_values(column.items)], axis=1)
        offsets = np.asarray(column.offsets)
    elif pa.types.is_fixed_size_list(kind):
        inner = _number_values(column.values).reshape(-1, 1)
        offsets = (column.offset + np.arange(len(column) + 1)) * kind.list_size
    else:
        inner, offsets = _number_values(column.values).reshape(-1, 1), np.asarray(column.offsets)
    for start, end in pairwise(offsets):
        yield inner[start:end].tobytes()
