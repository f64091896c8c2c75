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

*Heads.* Vectors often lie near a subspace, as embeddings do. So the stored vectors of a run have a basis of
64 directions in which they differ most, and a *head*: their coordinates in it. What is outside of the
subspace, the *tail*, has a known length, and a product of two tails is at most the product of their lengths:

    x . b <= head(x) . head(b) + |tail(x)| |tail(b)| + s |x| |b|

s is room for all errors: a coordinate of a head has an error of at most (d + 32) u |x|, and 64 of them have 8
times that. With the length of the tail and sqrt(s) |x| as two more coordinates, the right side is a product
of vectors of 66 floats instead of d. Few pairs exceed the limit by it if the tails are short, and only these
are computed. A sample of pairs tells if they are few.

*The nearest.* Each measure also becomes a score of two vectors, the greatest of which is the nearest, with a
lower and an upper bound. For the distance, x . b - |b|^2 / 2 is the score of b. A heap has the k greatest
lower bounds of each seeker. A pair is proposed if its upper bound is not below the least of them.

*Decisions.* A pair whose product is beyond the limit by more than the error satisfies the comparison: such
pairs are proved, except by heads. ``thetastream.kernels.tiles`` computes each other proposed pair as Spark
4.3 does, bit for bit: sums in double precision, in groups of eight, and a result in single precision. Vectors
that are not finite, that are very long or very short, or that hold a NULL are proposed with all others.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    Bools,
    Floats,
    LimitSearch,
    MeasureLimit,
    NearestSearch,
    PairMeasure,
    Proposal,
    Singles,
    Values,
    collect_places,
    pair_all,
)
from thetastream.index.measures.vector_matrix import (
    HEAD,
    LONGEST,
    ROUNDOFF,
    Vectors,
    cover,
    read_lists,
    read_vectors,
    take_rows,
)

TILE_ROWS = 4096
"""The number of stored vectors in a tile. A tile of 1,024 probes then has 16 MB."""
TILE_SEEKERS = 1024
LEAST_FLOATS = 2 * HEAD
"""Shorter vectors have no head."""
LEAST_PAIRS = 1 << 23
"""For fewer pairs, the basis costs more than it saves."""
SAMPLED, FEW = 256, 1 / 64
"""Heads are used if this share of the pairs of so many vectors of both sides is left at most."""


class Scores(NamedTuple):
    """Bounds on scores: ``y * scale + low - slack`` and ``y * scale + high + slack``, y = x @ others.T."""

    x: Singles
    scale: Singles
    """One number for each of the others, as ``low`` and ``high``."""
    low: Singles
    high: Singles
    slack: Singles
    """One number for each seeker."""


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

    arguments = "two values of type ARRAY<FLOAT>"
    proof = "vector_inner_product(array(16777216F, 1F, 1F), array(1F, 1F, 1F))", 16777218.0
    """Spark 4.2 sums in single precision, and gets another value."""

    def takes(self, left: str, right: str) -> bool:
        return left == right == "array<float>"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        values = np.zeros(len(left_rows), dtype=np.float64)
        a, b = read_lists(left, left_rows), read_lists(right, right_rows)
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
        return read_vectors(column)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        # 1. Propose unusual vectors with all others.
        limit, probes, stored = search.limit, search.probes, search.stored
        at, other_at = probes.places[search.probe_rows], stored.places[search.stored_rows]
        known, others = search.find_known()
        usual, unusual = known[at[known] >= 0], known[at[known] < 0]
        other_usual, other_unusual = others[other_at[others] >= 0], others[other_at[others] < 0]
        if probes.size != stored.size:
            usual, unusual = usual[:0], known
        for pairs in itertools.chain(
            pair_all(unusual, others, capacity), pair_all(usual, other_unusual, capacity)
        ):
            yield Proposal(*pairs)
        if not len(usual) or not len(other_usual):
            return
        # 2. Compare the others by products of matrices.
        matrix, norms = take_rows(probes.matrix, at[usual]), probes.norms[at[usual]]
        rows = other_at[other_usual]
        error, lengths = _find_error(matrix), stored.norms[rows]
        with np.errstate(over="ignore"):  # All pairs satisfy a huge limit or none does, as an infinite one.
            form = self.form(limit, matrix, norms, lengths, error)
            sure: Form | None = self.form(limit, matrix, norms, lengths, -error)
        vectors = take_rows(stored.matrix, rows)
        if stored.size >= LEAST_FLOATS and len(usual) * len(stored.matrix) >= LEAST_PAIRS:
            heads = take_rows(stored.heads.rows, rows)
            short = form._replace(x=cover(form.x, stored.heads.basis, 1 if form.is_above else -1))
            if _leaves_few(short, heads):
                form, vectors, sure = short, heads, None
        for begin in range(0, len(rows), TILE_ROWS):
            part = slice(begin, begin + TILE_ROWS)
            for found, column, is_proved in _select(form, sure, vectors, part, capacity):
                yield Proposal(usual[found], other_usual[part][column], is_proved)

    def propose_nearest(self, search: NearestSearch, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
        seekers, others = search.seekers, search.others
        at, other_at = seekers.places[search.seeker_rows], others.places[search.other_rows]
        usual, other_usual = np.flatnonzero(at >= 0), np.flatnonzero(other_at >= 0)
        # 1. Propose unusual vectors with all others. Values that are surely NULL come last, see below.
        every = np.arange(len(other_at))
        is_last = self._are_last(others, search.other_rows)
        if seekers.size != others.size:
            usual, other_usual = usual[:0], other_usual[:0]
        unusual = np.setdiff1d(np.arange(len(at)), usual)
        yield from pair_all(unusual, every, capacity)
        yield from pair_all(usual, np.setdiff1d(every[~is_last], other_usual), capacity)
        # 2. Compare the usual ones by products of matrices.
        for begin in range(0, len(usual), TILE_SEEKERS):
            mine = usual[begin : begin + TILE_SEEKERS]
            best, vectors = search.best[mine], take_rows(seekers.matrix, at[mine])
            for start in range(0, len(other_usual), TILE_ROWS):
                theirs = other_usual[start : start + TILE_ROWS]
                scores = self.score(
                    search.is_descending,
                    vectors,
                    seekers.norms[at[mine]],
                    others.norms[other_at[theirs]],
                )
                # Products of usual vectors are finite. But a library of linear algebra may also compute with
                # memory beside a small matrix, and then NumPy warns.
                with np.errstate(invalid="ignore"):
                    tile = scores.x @ take_rows(others.matrix, other_at[theirs]).T
                for found, column in _select_nearest(tile, scores, search, mine, theirs, best, capacity):
                    yield mine[found], theirs[column]
            search.best[mine] = best
            # 3. NULL is the last. Only seekers without k other partners may need it.
            yield from pair_all(mine[best[:, 0] == -np.inf], every[is_last], capacity)

    def _are_last(self, vectors: Vectors, rows: Int64s) -> Bools:
        """Whether the value of any pair with each of these rows is surely NULL."""
        found: Bools = vectors.is_null[rows]
        return found

    @abstractmethod
    def score(self, is_descending: bool, matrix: Singles, norms: Floats, others: Floats) -> Scores:
        """Bound the scores of seekers, the rows of ``matrix``, with room for all errors.

        ``norms`` are the lengths of the seekers, and ``others`` those of the other vectors.
        """

    @abstractmethod
    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        """Call the kernel that computes pairs. It loads Numba."""

    @abstractmethod
    def form(self, limit: MeasureLimit, matrix: Singles, norms: Floats, others: Floats, error: float) -> Form:
        """Write a comparison as a linear form of the probes ``matrix``, with room for a relative error.

        All pairs that satisfy the comparison satisfy the form. With a negative error, all pairs that satisfy
        the form satisfy the comparison. ``norms`` are the lengths of the probes, and ``others`` those of the
        stored vectors.
        """


class Cosine(VectorMeasure):
    """The cosine of the angle between two vectors."""

    name = "vector_cosine_similarity"
    forms = ("vector_cosine_similarity(left, right)",)
    is_similarity = True

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels.tiles import measure_cosines

        measure_cosines(*arrays)

    def form(self, limit: MeasureLimit, matrix: Singles, norms: Floats, others: Floats, error: float) -> Form:
        is_above = limit.op in (">", ">=")
        edge = limit.value - error if is_above else limit.value + error
        return _make_form(matrix / norms[:, None], -edge * others, np.zeros(len(matrix)), is_above)

    def score(self, is_descending: bool, matrix: Singles, norms: Floats, others: Floats) -> Scores:
        error = np.full(len(others), _find_tie_error(matrix))
        x = matrix / (norms if is_descending else -norms)[:, None]
        return _make_scores(x, 1 / others, -error, error, np.zeros(len(matrix)))

    def _are_last(self, vectors: Vectors, rows: Int64s) -> Bools:
        return super()._are_last(vectors, rows) | np.isin(rows, vectors.zeros)


class Product(VectorMeasure):
    """The sum of the products of the elements."""

    name = "vector_inner_product"
    forms = ("vector_inner_product(left, right)",)
    is_similarity = True

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels.tiles import measure_products

        measure_products(*arrays)

    def form(self, limit: MeasureLimit, matrix: Singles, norms: Floats, others: Floats, error: float) -> Form:
        is_above = limit.op in (">", ">=")
        sign = 1 if is_above else -1
        bound = limit.value / norms * (1 - sign * error * np.sign(limit.value))
        return _make_form(matrix / norms[:, None], sign * error * others, bound, is_above)

    def score(self, is_descending: bool, matrix: Singles, norms: Floats, others: Floats) -> Scores:
        error = _find_tie_error(matrix) * others
        x = matrix / (norms if is_descending else -norms)[:, None]
        return _make_scores(x, np.ones(len(others)), -error, error, np.zeros(len(matrix)))


class Distance(VectorMeasure):
    """The length of the difference of two vectors."""

    name = "vector_l2_distance"
    forms = ("vector_l2_distance(left, right)",)

    def _run_kernel(self, *arrays: npt.NDArray[Any]) -> None:
        from thetastream.kernels.tiles import measure_distances

        measure_distances(*arrays)

    def form(self, limit: MeasureLimit, matrix: Singles, norms: Floats, others: Floats, error: float) -> Form:
        is_above = limit.op in ("<", "<=")  # near vectors have great products
        square = math.inf if limit.value > LONGEST * 4 else max(limit.value, 0.0) ** 2
        if is_above:
            bound = ((1 - error) * norms**2 - (1 + error) * square) / 2
            return _make_form(matrix, -(1 - error) * others**2 / 2, bound, is_above)
        bound = ((1 + error) * norms**2 - (1 - error) * square) / 2
        return _make_form(matrix, -(1 + error) * others**2 / 2, bound, is_above)

    def score(self, is_descending: bool, matrix: Singles, norms: Floats, others: Floats) -> Scores:
        error = _find_tie_error(matrix)
        sign = -1 if is_descending else 1  # near vectors have great products
        low, high = (-(sign + more) * others**2 / 2 for more in (error, -error))
        return _make_scores(sign * matrix, np.ones(len(others)), low, high, error * norms**2 / 2)


def _leaves_few(form: Form, stored: Singles) -> bool:
    """Whether few pairs of a sample satisfy a form."""
    probes, rows = (slice(None, None, max(1, n // SAMPLED)) for n in (len(form.x), len(stored)))
    values = form.x[probes] @ stored[rows].T + form.added[rows]
    bound = form.bound[probes, None]
    n_left = np.count_nonzero(values >= bound if form.is_above else values <= bound)
    return bool(n_left <= FEW * values.size)


def _make_form(x: Any, added: Floats, bound: Floats, is_above: bool) -> Form:
    single = added.astype(np.float32), bound.astype(np.float32)
    return Form(np.ascontiguousarray(x, dtype=np.float32), *single, is_above)


def _make_scores(x: Any, *bounds: Floats) -> Scores:
    scale, low, high, slack = (bound.astype(np.float32) for bound in bounds)
    return Scores(np.ascontiguousarray(x, dtype=np.float32), scale, low, high, slack)


def _find_error(matrix: Singles) -> float:
    """Bound the error of a product of unit vectors, of the linear form, and of Spark's result."""
    size: int = matrix.shape[1]
    return (size + 16) * ROUNDOFF


def _find_tie_error(matrix: Singles) -> float:
    """Bound the same, and the difference of two values that Spark rounds to one float."""
    return _find_error(matrix) + 16 * ROUNDOFF


def _select(
    form: Form, sure: Form | None, stored: Singles, part: slice, capacity: int
) -> Iterator[tuple[Int64s, Int64s, bool]]:
    """Yield the places of a tile that satisfy a form, and whether they surely satisfy the comparison."""
    from thetastream.kernels.tiles import select  # loads Numba

    tile, added, is_above = form.x @ stored[part].T, form.added[part], form.is_above
    never = np.full(len(tile), np.nan, dtype=np.float32)
    passed, edge = (added, never) if sure is None else (sure.added[part], sure.bound)
    for found, column in collect_places(
        partial(select, tile, added, form.bound, is_above, passed, edge), capacity
    ):
        yield found, column, False
    if sure is not None:
        places = partial(select, tile, passed, edge, is_above, passed, never)
        for found, column in collect_places(places, capacity):
            yield found, column, True


def _select_nearest(
    tile: Singles,
    scores: Scores,
    search: NearestSearch,
    mine: Int64s,
    theirs: Int64s,
    best: Singles,
    capacity: int,
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the places of a tile that may be among the nearest, and update the heaps ``best``."""
    from thetastream.kernels.tiles import push_best, select_best  # loads Numba

    probes, stored = (mine, theirs) if search.seekers_probe else (theirs, mine)
    low, high, keys = search.inside
    inside = low[probes], high[probes], keys[stored], search.seekers_probe
    push_best(tile, scores.scale, scores.low, scores.slack, best, *inside)
    find = partial(select_best, tile, scores.scale, scores.high, scores.slack, best, *inside)
    yield from collect_places(find, capacity)
