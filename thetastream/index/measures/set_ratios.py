"""Ratios and numbers of what two arrays share. With s shared elements, and sizes |A| and |B|:

    jaccard      size(array_intersect(left, right)) / size(array_union(left, right))   s / (|A| + |B| - s)
    containment  size(array_intersect(left, right)) / size(left)                       s / |A|
    overlap      ... / least(size(left), size(right))                                  s / min(|A|, |B|)
    dice         2 * size(array_intersect(left, right)) / (size(left) + size(right))   2 s / (|A| + |B|)
    shared       size(array_intersect(left, right))                                    s
    tests        arrays_overlap(left, right), array_contains(left, right)              s >= 1

Each ratio may also be written with ``try_divide``. ``size`` counts elements that occur twice, and only the
union does not. ``thetastream.index.measures.sets`` finds the pairs.
"""

import itertools
from typing import Any

import numpy as np

from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import Floats, PairMeasure, Values
from thetastream.index.measures.sets import (
    ELEMENTS,
    SIZE_OF_NULL,
    Rectangles,
    SetFacts,
    SetMeasure,
    Sets,
)


class SetRatio(SetMeasure):
    """A ratio of what two arrays share. It has no value if it divides by zero, which ends the query as in
    Spark.

    Parameters
    ----------
    is_tried : bool
        Whether it is written with ``try_divide``, which makes NULL of a division by zero.
    """

    def __init__(self, is_tried: bool = False) -> None:
        self.is_tried, self.is_fatal = is_tried, not is_tried
        if is_tried:
            self.name, self.forms = f"try_{self.name}", _write_tried(self.forms)
            self.proof = SIZE_OF_NULL, "NULL"

    def finish(self, x: Sets, y: Sets, shared: Int64s, whole: Floats) -> Values:
        is_null = x.is_null | y.is_null
        is_void = (whole == 0) & ~is_null
        if is_void.any() and self.is_fatal:
            raise PredicateError(
                "EMPTY_SETS",
                f"{self.name} divides by the size of arrays, and those that met are empty: add "
                "size(...) > 0 to the condition, or write try_divide(..., ...)",
            )
        return Values(shared / np.where(whole == 0, 1, whole), is_null | is_void)


class Jaccard(SetRatio):
    """The share of the elements of two arrays that both have."""

    name = "jaccard"
    forms = tuple(
        f"size(array_intersect(left, right)) / size(array_union({pair}))"
        for pair in ("left, right", "right, left")
    )
    kind = 0

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(left.is_empty, right.is_empty)]

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return t * sizes


class JaccardOfSizes(Jaccard):
    """The same, where the size of the union follows from the sizes of both arrays."""

    name = "jaccard_of_sizes"
    forms = tuple(
        f"size(array_intersect({pair})) / (size({x}) + size({y}) - size(array_intersect({other})))"
        for pair, other, (x, y) in itertools.product(
            ["left, right"], ["left, right", "right, left"], [("left", "right"), ("right", "left")]
        )
    )
    kind = 1

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return t * lengths


class Contained(SetRatio):
    """The share of the left array that the right one has."""

    name = "contained"
    forms: tuple[str, ...] = ("size(array_intersect(left, right)) / size(left)",)
    kind = 2

    @property
    def mirrored(self) -> PairMeasure:
        return Contains(self.is_tried)

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(left.is_empty, np.ones_like(right.is_empty))]

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return t * lengths if is_left else np.ones(len(sizes))


class Contains(Contained):
    """The share of the right array that the left one has."""

    name = "contains"
    forms: tuple[str, ...] = ("size(array_intersect(left, right)) / size(right)",)
    kind = 3

    @property
    def mirrored(self) -> PairMeasure:
        return Contained(self.is_tried)

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(np.ones_like(left.is_empty), right.is_empty)]

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return super().find_least(sizes, lengths, t, not is_left)


class OverlapRatio(SetRatio):
    """The share of the smaller array that the other one has."""

    name = "overlap"
    forms = tuple(
        f"size(array_intersect(left, right)) / least(size({x}), size({y}))"
        for x, y in (("left", "right"), ("right", "left"))
    )
    kind = 4

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(left.is_empty, np.ones_like(right.is_empty)), (~left.is_empty, right.is_empty)]

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return np.ones(len(sizes))


class Dice(Jaccard):
    """What two arrays share, of the mean of their sizes."""

    name = "dice"
    forms = tuple(
        f"2 * size(array_intersect(left, right)) / (size({x}) + size({y}))"
        for x, y in (("left", "right"), ("right", "left"))
    )
    kind = 5

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return t * lengths / (2 - t) if t < 2 else np.full(len(sizes), np.inf)


class Shared(SetMeasure):
    """The number of elements that two arrays share."""

    name = "shared"
    forms: tuple[str, ...] = ("size(array_intersect(left, right))",)
    proof: tuple[str, Any] | None = (SIZE_OF_NULL, "NULL")
    kind = 6

    def finish(self, x: Sets, y: Sets, shared: Int64s, whole: Floats) -> Values:
        return Values(shared.astype(np.float64), x.is_null | y.is_null)

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return []

    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        return np.full(len(sizes), t)


class ArraysOverlap(Shared):
    """Whether two arrays share an element that is not NULL. If they do not, it is unknown if an element of
    one is NULL and the other one is not empty."""

    name = "arrays_overlap"
    forms: tuple[str, ...] = ("arrays_overlap(left, right)",)
    proof = None
    has_null_element = False
    is_test = True
    ranks = False

    def finish(self, x: Sets, y: Sets, shared: Int64s, whole: Floats) -> Values:
        is_true = shared > 0
        is_unknown = (x.has_null | y.has_null) & (x.lengths > 0) & (y.lengths > 0)
        return Values(is_true.astype(np.float64), x.is_null | y.is_null | (is_unknown & ~is_true))

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        others = ~left.is_empty & ~left.has_null
        return [(left.has_null, ~right.is_empty), (others, right.has_null)]


class ArrayContains(ArraysOverlap):
    """Whether the left array has the right value. If not, it is unknown if an element is NULL."""

    name = "array_contains"
    forms: tuple[str, ...] = ("array_contains(left, right)",)
    arguments = "an array of whole numbers, booleans, dates or texts without a collation, and such a value"

    @property
    def mirrored(self) -> PairMeasure:
        return ContainedValue()

    def takes(self, left: str, right: str) -> bool:
        return left == f"array<{right}>" and right in ELEMENTS

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(left.has_null, np.ones_like(right.has_null))]


class ContainedValue(ArrayContains):
    """The same with the operands exchanged."""

    name = "contained_value"
    forms = ()

    @property
    def mirrored(self) -> PairMeasure:
        return ArrayContains()

    def takes(self, left: str, right: str) -> bool:
        return super().takes(right, left)

    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        return [(np.ones_like(left.has_null), right.has_null)]


def _write_tried(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Write the forms of a ratio with ``try_divide``.

    >>> _write_tried(("size(left) / (size(left) + size(right))",))
    ('try_divide(size(left), size(left) + size(right))',)
    """
    parts = (form.split(" / ") for form in forms)
    return tuple(f"try_divide({part}, {whole[1:-1] if whole[0] == '(' else whole})" for part, whole in parts)
