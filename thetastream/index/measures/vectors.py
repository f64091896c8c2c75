"""Similarity of vectors of floats: ``vector_cosine_similarity``, ``vector_inner_product``,
``vector_l2_distance``.

*Proposals.* The products of many vectors are one product of matrices in single precision. With unit roundoff
u = 2^-24, a product of two vectors of d floats has an error of at most about d u |x| |y|, whatever the order
of the sums. Each measure becomes a linear form, so one pass over a tile of products finds all pairs that may
satisfy the comparison:

    cosine      x = a / |a|    x . b                      >=  (t - e) |b|             e = (d + 16) u
    product     x = a / |a|    x . b + e |b|              >=  t / |a|
    distance    x = a          x . b - (1 - e) |b|^2 / 2  >=  ((1 - e) |a|^2 - t^2) / 2    for <= t

The comparisons in the other direction add the tolerance where these subtract it.

*Decisions.* ``thetastream.kernels`` computes a proposed pair as Spark 4.3 does, bit for bit: sums in
double precision, in groups of eight, and a result in single precision. Vectors that are not finite, that are
very long or very short, or that hold a NULL are proposed with all others.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import Floats, MeasureLimit, PairMeasure, Values

Singles = npt.NDArray[np.float32]

ROUNDOFF = 2.0**-24
SHORTEST, LONGEST = 2.0**-60, 2.0**60
"""Vectors of other lengths could overflow or lose all their digits in single precision."""
TILE_ROWS = 4096
"""The number of stored vectors in a tile. A tile of 1,024 probes then has 16 MB."""


@dataclass(frozen=True)
class Vectors:
    """The vectors of a column, ready for products of matrices.

    Most vectors of a column have one size. They are the rows of ``matrix``, float32 of shape (m, size).
    """

    matrix: Singles
    norms: Floats
    """The lengths of the rows of the matrix."""
    rows: Int64s
    """The row of the column for each row of the matrix, in ascending order."""
    places: Int64s
    """For each row of the column the row of the matrix, or -1."""
    others: Int64s
    """The rows of the column that are neither in the matrix nor NULL."""

    @property
    def size(self) -> int:
        """The number of floats of each row of the matrix."""
        return int(self.matrix.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside those of the column, of which the matrix may be a part."""
        own = self.matrix.nbytes if self.matrix.flags.owndata else 0
        return own + self.norms.nbytes + self.rows.nbytes + self.places.nbytes + self.others.nbytes


class Form(NamedTuple):
    """The comparison ``x @ stored.T + added >= bound``, or ``<=`` if it is not ``is_above``."""

    x: Singles
    added: Singles
    """One number for each stored vector."""
    bound: Singles
    """One number for each probe."""
    is_above: bool


class VectorMeasure(PairMeasure):
    """A measure of two vectors of floats of the same size."""

    argument_type = "array<float>"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        values = np.zeros(len(left_rows), dtype=np.float64)
        a, b = _read(left, left_rows), _read(right, right_rows)
        is_null = a.is_null | b.is_null
        unequal = np.flatnonzero((a.sizes != b.sizes) & ~is_null)
        if len(unequal):
            at = unequal[0]
            raise PredicateError(
                "VECTOR_DIMENSION",
                f"{self.name} compares vectors of one size; a vector of {a.sizes[at]} floats met one of "
                f"{b.sizes[at]}: add the conjunct size(...) = size(...) of both vectors to the condition",
            )
        is_null |= a.has_null | b.has_null
        self._run_kernel(a.floats, a.starts, b.floats, b.starts, a.sizes, values, is_null)
        return Values(values, is_null)

    def derive(self, column: pa.Array) -> Vectors:
        lists = _read(column, np.arange(len(column)))
        is_plain = ~(lists.is_null | lists.has_null) & (lists.sizes > 0)
        sizes, counts = np.unique(lists.sizes[is_plain], return_counts=True)
        size = int(sizes[counts.argmax()]) if len(sizes) else 0
        rows = np.flatnonzero(is_plain & (lists.sizes == size))
        matrix = _gather(lists, rows, size)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
            is_usual = (norms >= SHORTEST) & (norms <= LONGEST)
        if not is_usual.all():
            rows, matrix, norms = rows[is_usual], matrix[is_usual], norms[is_usual]
        places = np.full(len(column), -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))
        return Vectors(matrix, norms, rows, places, np.flatnonzero((places < 0) & ~lists.is_null))

    def propose(
        self,
        limit: MeasureLimit,
        probes: Any,
        places: Int64s,
        stored: Any,
        rows: range,
        capacity: int,
    ) -> Iterator[tuple[Int64s, Int64s]]:
        # 1. Propose unusual vectors with all others.
        at = probes.places[places]
        usual, unusual = np.flatnonzero(at >= 0), np.flatnonzero(np.isin(places, probes.others))
        begin, end = np.searchsorted(stored.others, [rows.start, rows.stop])
        first, last = np.searchsorted(stored.rows, [rows.start, rows.stop])
        others = stored.others[begin:end]
        both = np.sort(np.concatenate([stored.rows[first:last], others]))
        yield from pair_all(unusual, both, capacity)
        yield from pair_all(usual, others, capacity)
        if probes.size != stored.size:
            yield from pair_all(usual, stored.rows[first:last], capacity)
            return
        if not len(usual):
            return
        # 2. Compare the others by products of matrices.
        matrix, norms = probes.matrix[at[usual]], probes.norms[at[usual]]
        for begin in range(first, last, TILE_ROWS):
            part = slice(begin, min(begin + TILE_ROWS, last))
            form = self.form(limit.op, limit.value, matrix, norms, stored.norms[part])
            for found, column in _select(form, stored.matrix[part], capacity):
                yield usual[found], stored.rows[part][column]

    @abstractmethod
    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        """Call the kernel that computes pairs. It loads Numba."""

    @abstractmethod
    def form(self, op: str, limit: float, matrix: Singles, norms: Floats, others: Floats) -> Form:
        """Write ``value OP limit`` as a linear form of the probes ``matrix``, with room for all errors.

        ``norms`` are the lengths of the probes, and ``others`` those of the stored vectors.
        """


class Cosine(VectorMeasure):
    """The cosine of the angle between two vectors."""

    name = "vector_cosine_similarity"

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels import measure_cosines

        measure_cosines(*arrays)

    def form(self, op: str, limit: float, matrix: Singles, norms: Floats, others: Floats) -> Form:
        is_above = op in (">", ">=")
        error = _find_error(matrix)
        edge = limit - error if is_above else limit + error
        return _make_form(matrix / norms[:, None], -edge * others, np.zeros(len(matrix)), is_above)


class Product(VectorMeasure):
    """The sum of the products of the elements."""

    name = "vector_inner_product"

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels import measure_products

        measure_products(*arrays)

    def form(self, op: str, limit: float, matrix: Singles, norms: Floats, others: Floats) -> Form:
        is_above = op in (">", ">=")
        error = _find_error(matrix)
        sign = 1 if is_above else -1
        bound = limit / norms * (1 - sign * error * np.sign(limit))
        return _make_form(matrix / norms[:, None], sign * error * others, bound, is_above)


class Distance(VectorMeasure):
    """The length of the difference of two vectors."""

    name = "vector_l2_distance"

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels import measure_distances

        measure_distances(*arrays)

    def form(self, op: str, limit: float, matrix: Singles, norms: Floats, others: Floats) -> Form:
        is_above = op in ("<", "<=")  # near vectors have great products
        error = _find_error(matrix)
        square = math.inf if limit > LONGEST * 4 else max(limit, 0.0) ** 2
        if is_above:
            bound = ((1 - error) * norms**2 - (1 + error) * square) / 2
            return _make_form(matrix, -(1 - error) * others**2 / 2, bound, is_above)
        bound = ((1 + error) * norms**2 - (1 - error) * square) / 2
        return _make_form(matrix, -(1 + error) * others**2 / 2, bound, is_above)


def _make_form(x: Any, added: Floats, bound: Floats, is_above: bool) -> Form:
    with np.errstate(over="ignore"):
        single = added.astype(np.float32), bound.astype(np.float32)
    return Form(np.ascontiguousarray(x, dtype=np.float32), *single, is_above)


def _find_error(matrix: Singles) -> float:
    """Bound the error of a product of unit vectors, of the linear form, and of Spark's result."""
    size: int = matrix.shape[1]
    return (size + 16) * ROUNDOFF


def _select(form: Form, stored: Singles, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
    from thetastream.kernels import select  # loads Numba

    tile = form.x @ stored.T
    cursor, n = np.zeros(2, dtype=np.int64), capacity
    while n == capacity:
        probes, columns = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        n = select(tile, form.added, form.bound, form.is_above, cursor, probes, columns)
        yield probes[:n], columns[:n]


def pair_all(probes: Int64s, stored: Int64s, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield each pair of a probe and a stored row, at most ``capacity`` at a time.

    >>> [(p.tolist(), s.tolist()) for p, s in pair_all(np.array([4]), np.array([7, 8, 9]), 2)]
    [([4, 4], [7, 8]), ([4], [9])]
    """
    n = len(probes) * len(stored)
    for begin in range(0, n, capacity):
        at = np.arange(begin, min(begin + capacity, n))
        yield probes[at // len(stored)], stored[at % len(stored)]


class _Lists(NamedTuple):
    """Some rows of a column of arrays of floats."""

    floats: Singles
    starts: Int64s
    sizes: Int64s
    is_null: npt.NDArray[np.bool_]
    has_null: npt.NDArray[np.bool_]


def _read(column: pa.Array, rows: Int64s) -> _Lists:
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
    return _Lists(values.to_numpy(), starts, ends - starts, is_null, has_null)


def _gather(lists: _Lists, rows: Int64s, size: int) -> Singles:
    """Return these rows as a matrix. If they lie one behind the other, nothing is copied."""
    starts = lists.starts[rows]
    if len(rows) and (np.diff(starts) == size).all():
        return lists.floats[starts[0] : starts[0] + len(rows) * size].reshape(len(rows), size)
    matrix: Singles = lists.floats[starts[:, None] + np.arange(size)]
    return matrix
