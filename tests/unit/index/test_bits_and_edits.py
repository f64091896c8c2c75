"""Hamming and edit distance: values are those of plain Python."""

import numpy as np
import pyarrow as pa
import pytest

from thetastream.core.measure import LimitSearch, MeasureLimit
from thetastream.index.measures import REGISTRY

LETTERS = "aabcdé日𝒳"
TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def count_edits(x: str, y: str) -> int:
    """Count edits by the definition, with all prefixes."""
    row = list(range(len(y) + 1))
    for n, a in enumerate(x, 1):
        new = [n]
        for m, b in enumerate(y, 1):
            new.append(min(row[m] + 1, new[-1] + 1, row[m - 1] + (a != b)))
        row = new
    return row[-1]


def draw(name: str, random: np.random.Generator, n: int) -> pa.Array:
    """Draw a column; some values are NULL."""
    if name == "levenshtein":
        texts = ["".join(random.choice([*LETTERS], random.integers(0, 9))) for _ in range(n)]
        texts += ["a" * 70, "", "𝒳" * 3]
        # A row of the table has up to 64 characters in a word.
        texts += ["".join(random.choice([*LETTERS], size)) for size in (63, 64, 65, 66, 90)]
        return pa.array([None if random.random() < 0.1 else text for text in texts], pa.string())
    type_ = TYPES[random.integers(len(TYPES))]
    most = 1 << (type_.bit_width - 1)
    values = [int(x) for x in random.integers(-4, 9, n)] + [-most, most - 1, -1, 0]
    return pa.array([None if random.random() < 0.1 else value for value in values], type_)


def measure(name: str, x: str | int | None, y: str | int | None) -> int | None:
    if x is None or y is None:
        return None
    if isinstance(x, str):
        return count_edits(x, str(y))
    return ((x ^ int(y)) % (1 << 64)).bit_count()


@pytest.mark.parametrize("name", ["bit_count", "levenshtein"])
@pytest.mark.parametrize("seed", range(12))
def test_values(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    one, (left, right) = REGISTRY[name], (draw(name, random, 30) for _ in range(2))
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    found = one.compute(left, i, right, j)
    expected = [measure(name, left[p].as_py(), right[s].as_py()) for p, s in zip(i, j, strict=True)]
    values = [None if gone else int(x) for x, gone in zip(found.values, found.is_null, strict=True)]
    assert values == expected


def test_few_other_texts_are_proposed() -> None:
    random = np.random.default_rng(3)
    column = pa.array(["".join(random.choice([*"abcdefghijklmnopqrst"], 9)) for _ in range(400)])
    one = REGISTRY["levenshtein"]
    texts = one.derive(column)
    every, limit = np.arange(400), MeasureLimit(one, "<=", 2.0)
    pieces = one.propose(LimitSearch(limit, texts, every, texts, every), 1 << 17)
    assert 400 <= sum(len(one.probes) for one in pieces) < 0.05 * 400**2
