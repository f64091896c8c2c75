"""Edit distance of texts, ``levenshtein(left, right)``: insertions, deletions and replacements of characters.

A pair is proposed if its lengths and its signatures are near enough. A signature has a bit for each character
of the text, by a hash of 6 bits. An edit changes the length by 1 at most, and 2 bits of the signature.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.keys import Int64s
from thetastream.core.measure import MeasureLimit, PairMeasure, Values, collect_places, pair_all
from thetastream.index.measures.bits import find_interval


@dataclass(frozen=True)
class Texts:
    """What proposals need of the texts of a column."""

    lengths: Int64s
    signatures: Int64s

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside those of the column."""
        return self.lengths.nbytes + self.signatures.nbytes


class EditDistance(PairMeasure):
    """The least number of edits that make one text of another one."""

    name = "levenshtein"
    forms = ("levenshtein(left, right)",)
    arguments = "two texts of type STRING, without a collation"

    def takes(self, left: str, right: str) -> bool:
        return left == right == "string"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        from thetastream.kernels import count_edits  # loads Numba

        mine, theirs = left.take(pa.array(left_rows)), right.take(pa.array(right_rows))
        values = np.zeros(len(left_rows), dtype=np.float64)
        count_edits(*_read_characters(mine), *_read_characters(theirs), values)
        is_null = pc.or_(mine.is_null(), theirs.is_null()).to_numpy(zero_copy_only=False)
        return Values(values, is_null)

    def derive(self, column: pa.Array) -> Texts:
        from thetastream.kernels import sign_characters  # loads Numba

        characters, starts = _read_characters(column)
        signatures = np.zeros(len(column), dtype=np.int64)
        sign_characters(characters, starts, signatures)
        return Texts(np.diff(starts), signatures)

    def propose(
        self,
        limit: MeasureLimit,
        probes: Any,
        places: Int64s,
        stored: Any,
        rows: range,
        capacity: int,
    ) -> Iterator[tuple[Int64s, Int64s]]:
        from thetastream.kernels import select_texts  # loads Numba

        if limit.op in (">", ">="):
            yield from pair_all(np.arange(len(places)), np.arange(rows.start, rows.stop), capacity)
            return
        _, most = find_interval(limit)
        # In the order of their lengths, the texts that are long enough and short enough lie side by side.
        order = rows.start + np.argsort(stored.lengths[rows.start : rows.stop], kind="stable")
        ordered, lengths = stored.lengths[order], probes.lengths[places]
        first = np.searchsorted(ordered, lengths - most, side="left")
        last = np.searchsorted(ordered, lengths + most, side="right")
        signatures = probes.signatures[places], stored.signatures[order]
        for found, columns in collect_places(partial(select_texts, *signatures, first, last, most), capacity):
            yield found, order[columns]


def _read_characters(column: pa.Array) -> tuple[npt.NDArray[np.uint32], Int64s]:
    """Return the bytes of each character of all texts as a number, and where each text begins; NULL is empty.

    >>> characters, starts = _read_characters(pa.array(["aé", None, "a"]))
    >>> len({*characters.tolist()}), starts.tolist()
    (2, [0, 2, 2, 3])
    """
    from thetastream.kernels import read_characters  # loads Numba

    texts = column.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    characters = np.empty(int(offsets[-1] - offsets[0]), dtype=np.uint32)
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    n = read_characters(data, offsets, characters, starts)
    return characters[:n], starts
