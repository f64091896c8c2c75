"""Random columns for the measures of the registry, with NULL, equal values and rare cases."""

from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.measure import PairMeasure
from thetastream.index.measures.subtraction import Subtraction

ODD = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 3e38, 1e-44, 1e-30, 1e25)
LETTERS = "aabcdé日𝒳"
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def draw_columns(
    measure: PairMeasure, random: np.random.Generator, n: int, m: int
) -> tuple[pa.Array, pa.Array]:
    """Draw a left and a right column for a measure."""
    if isinstance(measure, Subtraction):
        return draw_columns(measure.measure, random, n, m)
    kind = random.integers(4)
    left, right = (_DRAW[measure.name](random, size, kind, side) for side, size in enumerate((n, m)))
    return left, right


def _draw_vectors(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    size = (0, 3, 19, 33)[kind]
    rows: list[Any] = []
    for _ in range(n):
        vector: list[Any] = [
            *(random.normal(size=size) * random.choice([1, 100])).astype(np.float32).tolist()
        ]
        odd = random.integers(9)
        if odd == 0 and size:
            vector[random.integers(size)] = (*ODD, None)[random.integers(len(ODD) + 1)]
        elif odd == 1:
            vector = [0.0] * size
        elif odd == 2 and rows:
            vector = rows[random.integers(len(rows))] or vector
        rows.append(None if odd == 3 else vector)
    return pa.array(rows, pa.list_(pa.float32()))


def _draw_integers(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    type_ = INTEGERS[kind]
    most = 1 << (type_.bit_width - 1)
    values = [int(x) for x in random.integers(-4, 9, n)]
    odd = random.integers(0, 12, n)
    rows = [{0: -most, 1: most - 1, 2: None}.get(int(o), x) for o, x in zip(odd, values, strict=True)]
    return pa.array(rows, type_)


def _draw_words(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    """Draw lists of the integers of each row, as many in all rows."""
    parts = [_draw_integers(random, n, 3, side).to_pylist() for _ in range(kind + 1)]
    lists = [None if random.random() < 0.1 else [*row] for row in zip(*parts, strict=True)]
    return pa.array(lists, pa.list_(pa.int64()))


def _draw_numbers(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    if kind < 2:
        return _draw_integers(random, n, kind + 2, side)
    rows = [None if x == 9 else float(x) / 10 for x in random.integers(-6, 10, n)]
    rows = [ODD[random.integers(len(ODD))] if random.random() < 0.1 else x for x in rows]
    return pa.array(rows, (pa.float32(), pa.float64())[kind - 2])


def _draw_points(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    """Draw points on the unit sphere; some are equal, at a pole, or opposite to each other."""
    rows: list[Any] = []
    for _ in range(n):
        point = random.normal(size=3) * (1, 1, 1 if kind else 0) + (kind == 2) * np.array([9, 0, 0])
        point /= np.linalg.norm(point)
        odd = random.integers(9)
        found = [None, [0.0, 0.0, 1.0], (-point).tolist(), (rows or [None])[-1]][odd] if odd < 4 else point
        rows.append(None if found is None else [float(x) for x in found])
    return pa.array(rows, pa.list_(pa.float64()))


def _draw_ranges(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    """Draw values on the left side, and intervals on the right one. Some have no end, or exchanged ends."""
    values = _draw_numbers(random, n, kind, side)
    if side == 0:
        return values
    other = _draw_numbers(random, n, kind, side)
    return pa.array(
        [[*pair] for pair in zip(values.to_pylist(), other.to_pylist(), strict=True)], pa.list_(values.type)
    )


def _draw_texts(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    texts = ["".join(random.choice([*LETTERS], random.integers(0, 9))) for _ in range(n)]
    # A row of the table has up to 64 characters in a word.
    texts[:: n // 3 + 1] = ["".join(random.choice([*LETTERS], size)) for size in (63, 65, 90)][: n and 3][
        : len(texts[:: n // 3 + 1])
    ]
    return pa.array([None if random.random() < 0.1 else text for text in texts], pa.string())


def _draw_elements(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    numbers = [int(min(random.zipf(1.5), 30)) - 3 for _ in range(n)]
    rows = [None if random.random() < 0.07 else f"t{number}" if kind % 2 else number for number in numbers]
    return pa.array(rows, pa.string() if kind % 2 else pa.int32())


def _draw_sets(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    rows = [
        None
        if random.random() < 0.1
        else _draw_elements(random, int(random.integers(0, 9)), kind, side).to_pylist()
        for _ in range(n)
    ]
    for number in range(1, n, 3):  # the same set again
        before = rows[number - 1]
        rows[number] = before and [*before[1:], before[0], before[0]]
    return pa.array(rows, pa.list_(pa.string() if kind % 2 else pa.int32()))


def _draw_sets_and_elements(random: np.random.Generator, n: int, kind: int, side: int) -> pa.Array:
    return (_draw_elements if side else _draw_sets)(random, n, kind, side)


_OF_SETS = ("jaccard", "jaccard_of_sizes", "contained", "contains", "overlap", "dice")
_DRAW: dict[str, Any] = {
    **dict.fromkeys(
        ("vector_cosine_similarity", "vector_inner_product", "vector_l2_distance"), _draw_vectors
    ),
    "bit_count": _draw_integers,
    "sum of bit_count": _draw_words,
    "levenshtein": _draw_texts,
    "abs": _draw_numbers,
    "metres": _draw_points,
    "outside": _draw_ranges,
    **dict.fromkeys(
        (*_OF_SETS, *(f"try_{name}" for name in _OF_SETS), "shared", "arrays_overlap"), _draw_sets
    ),
    "array_contains": _draw_sets_and_elements,
}
