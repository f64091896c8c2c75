"""Vectors of floats as matrices, and the heads that stand for them in products.

``thetastream.index.measures.vectors`` explains what heads are for.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.core.measure import Bools, DerivedArrays, Floats, Singles

ROUNDOFF = 2.0**-24
SHORTEST, LONGEST = 2.0**-60, 2.0**60
"""Vectors of other lengths could overflow or lose all their digits in single precision."""
HEAD = 64
"""The number of coordinates in a head."""
BASIS_ROWS = 1024
"""The number of vectors from which the basis is computed."""


@dataclass(frozen=True)
class Vectors(DerivedArrays):
    """The vectors of a column, ready for products of matrices.

    Most vectors of a column have one size. They are the rows of ``matrix``, float32 of shape (m, size).
    """

    matrix: Singles
    norms: Floats
    """The lengths of the rows of the matrix."""
    places: Int64s
    """For each row of the column the row of the matrix, or -1."""
    is_null: Bools
    zeros: Int64s
    """The rows of the column whose vector has the size of the matrix and the length 0."""

    @cached_property
    def heads(self) -> "Heads":
        """The heads of the rows of the matrix."""
        return find_heads(self.matrix)

    @property
    def size(self) -> int:
        """The number of floats of each row of the matrix."""
        return int(self.matrix.shape[1])


class Heads(NamedTuple):
    """A basis, and what stands for stored vectors in products of heads."""

    basis: Singles
    """Orthonormal columns, float32 of shape (size, HEAD)."""
    rows: Singles
    """float32 of shape (m, HEAD + 2): the head, the length of the tail, and the room for errors."""


class FloatLists(NamedTuple):
    """Some rows of a column of arrays of floats."""

    floats: Singles
    starts: Int64s
    sizes: Int64s
    is_null: Bools
    has_null: Bools


def read_lists(column: pa.Array, rows: Int64s) -> FloatLists:
    """Read these rows, in time that does not depend on the number of the others."""
    values = column.values
    has_null = np.zeros(len(rows), dtype=np.bool_)
    if values.null_count:
        distinct, rows = np.unique(rows, return_inverse=True)
        column = column.take(pa.array(distinct))
        values = column.values
    offsets = column.offsets.to_numpy()
    starts, ends = (offsets[at].astype(np.int64) for at in (rows, rows + 1))
    is_null = np.zeros(len(rows), dtype=np.bool_)
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False)[rows]
    if values.null_count:
        before = np.concatenate([[0], np.cumsum(values.is_null().to_numpy(zero_copy_only=False))])
        has_null = before[ends] > before[starts]
        values = values.fill_null(0.0)
    return FloatLists(values.to_numpy(), starts, ends - starts, is_null, has_null)


def _gather(lists: FloatLists, rows: Int64s, size: int) -> Singles:
    """Return these rows as a matrix. If they lie one behind the other, nothing is copied."""
    starts = lists.starts[rows]
    if len(rows) and (np.diff(starts) == size).all():
        return lists.floats[starts[0] : starts[0] + len(rows) * size].reshape(len(rows), size)
    matrix: Singles = lists.floats[starts[:, None] + np.arange(size)]
    return matrix


def read_vectors(column: pa.Array) -> Vectors:
    """Read a column of arrays of floats, ready for products of matrices."""
    lists = read_lists(column, np.arange(len(column)))
    is_plain = ~(lists.is_null | lists.has_null) & (lists.sizes > 0)
    sizes, counts = np.unique(lists.sizes[is_plain], return_counts=True)
    size = int(sizes[counts.argmax()]) if len(sizes) else 0
    rows = np.flatnonzero(is_plain & (lists.sizes == size))
    matrix = _gather(lists, rows, size)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        is_usual = (norms >= SHORTEST) & (norms <= LONGEST)
    zeros = rows[norms == 0]
    if not is_usual.all():
        rows, matrix, norms = rows[is_usual], matrix[is_usual], norms[is_usual]
    places = np.full(len(column), -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return Vectors(matrix, norms, places, lists.is_null, zeros)


def take_rows(matrix: Singles, rows: Int64s) -> Singles:
    """Return these rows. If they follow each other, nothing is copied."""
    if len(rows) and (np.diff(rows) == 1).all():
        return matrix[rows[0] : rows[-1] + 1]
    taken: Singles = matrix[rows]
    return taken


def find_heads(matrix: Singles) -> Heads:
    """Find the directions in which vectors differ most, and the heads of the vectors."""
    every = max(1, len(matrix) // BASIS_ROWS)
    sample = matrix[::every].astype(np.float64)
    sample /= np.linalg.norm(sample, axis=1, keepdims=True)
    _, directions = np.linalg.eigh(sample.T @ sample)  # The greatest come last.
    basis = np.ascontiguousarray(directions[:, -HEAD:], dtype=np.float32)
    return Heads(basis, cover(matrix, basis, 1))


def cover(vectors: Singles, basis: Singles, sign: int) -> Singles:
    """Compute what stands for vectors in products of heads.

    The product with a row of ``Heads.rows`` is at least the product of the vectors, or at most if ``sign`` is
    -1.
    """
    heads = vectors @ basis
    error = math.sqrt(basis.shape[1]) * (len(basis) + 32) * ROUNDOFF
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    own = np.einsum("ij,ij->i", heads, heads, dtype=np.float64)
    tails = np.sqrt(np.maximum(squares * (1 + 3 * error) - own, 0))
    room = np.sqrt(squares * (2 * error + 80 * ROUNDOFF))
    return np.column_stack([heads, sign * tails, sign * room]).astype(np.float32)
