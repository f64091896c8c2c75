"""Which rows are equal: their numbers, their hashes, and their groups.

Two rows are equal if all their values are: NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0. Lists and
maps are equal if their elements are, in order. Values are compared themselves, and not only their hashes.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.keys import Int64s, Mask, mix

_NULL = np.uint64(0x5851F42D4C957F2D)
"""What stands for NULL among numbers."""
UInt64s = npt.NDArray[np.uint64]


class EqualRows(NamedTuple):
    """Groups of equal rows, one behind the other; the rows of a group are in ascending order."""

    order: Int64s
    """The rows."""
    starts: Int64s
    """Where each group begins in ``order``."""

    @classmethod
    def find(cls, columns: Sequence[pa.Array]) -> "EqualRows":
        """Group rows by their values in these columns: by hashes, and by comparing rows with equal hashes."""
        hashes = hash_rows(columns)
        order = _sort(hashes)
        is_first = np.append(True, np.diff(hashes[order]) != 0)
        again = np.flatnonzero(~is_first)
        if len(again):
            mine, before = (take_rows(columns, order[at]) for at in (again, again - 1))
            if not compare_rows(mine, before).all():
                numbers = number_rows(columns)
                order = np.argsort(numbers, kind="stable")
                is_first = np.append(True, np.diff(numbers[order]) != 0)
        return cls(order, np.flatnonzero(is_first))

    @property
    def sizes(self) -> Int64s:
        """The number of rows of each group."""
        return np.diff(self.starts, append=len(self.order))


def take_rows(columns: Sequence[pa.Array], rows: Int64s) -> list[pa.Array]:
    """Take rows of columns."""
    places = pa.array(rows)
    return [column.take(places) for column in columns]


def _sort(hashes: UInt64s) -> Int64s:
    """Sort hashes: return their places, in ascending order where hashes are equal.

    The last bits of each hash make room for its place, because NumPy sorts numbers much faster than places.
    """
    n_bits = np.uint64(len(hashes).bit_length())
    packed = (hashes >> n_bits << n_bits) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << n_bits) - np.uint64(1))).view(np.int64)
    # Two hashes may differ in their last bits only.
    ordered = hashes[order]
    return order if (ordered[1:] >= ordered[:-1]).all() else np.argsort(hashes, kind="stable")


def hash_rows(columns: Sequence[pa.Array]) -> UInt64s:
    """Hash rows. Equal rows have equal hashes in one call; in another call, they may have others.

    >>> hashes = hash_rows([pa.array([1, None, 1]), pa.array(["a", "b", "a"])])
    >>> bool(hashes[0] == hashes[2] != hashes[1])
    True
    """
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = mix(hashes ^ _encode_values(column))
    return hashes


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers of at most 64 bits."""
    is_number = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind)
    return is_number and kind.bit_width <= 64 and not pa.types.is_float16(kind)


def _encode_values(column: pa.Array) -> UInt64s:
    """Encode values as numbers. Equal values of the column have equal numbers, and others seldom have."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray) or not is_plain(kind):
        return _number_values(column).view(np.uint64)
    if pa.types.is_floating(kind):
        plain = _normalize_floats(column).cast(pa.float64())
    else:
        plain = column.view(getattr(pa, f"int{kind.bit_width}")())
    bits = pc.fill_null(plain, 0).to_numpy()
    codes: UInt64s = (
        bits.view(np.uint64) if bits.dtype == np.float64 else bits.astype(np.int64).view(np.uint64)
    )
    if column.null_count:
        codes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, codes)
    return codes


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
    # Arrow compares no values of these types.
    is_numbered = pa.types.is_dictionary(kind) or pa.types.is_nested(kind) or pa.types.is_interval(kind)
    if isinstance(mine, pa.ExtensionArray) or is_numbered or pa.types.is_null(kind):
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
