"""Edit distance of texts, ``levenshtein(left, right)``: insertions, deletions and replacements of characters.

A pair is proposed if its lengths and its signatures are near enough. A signature has a bit for each character
of the text, by a hash of 6 bits. An edit changes the length by 1 at most, and 2 bits of the signature.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    Bools,
    DerivedArrays,
    LimitSearch,
    NearestSearch,
    Proposal,
    Singles,
    Values,
    collect_places,
    join_places,
    pair_all,
    pair_others,
)
from thetastream.index.measures.bits import find_interval
from thetastream.index.measures.scores import ScoredMeasure

Characters = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Texts(DerivedArrays):
    """What proposals need of the texts of a column."""

    lengths: Int64s
    signatures: Int64s
    is_null: Bools
    column: pa.Array

    @cached_property
    def characters(self) -> tuple[Characters, Int64s]:
        """The characters of all texts, and where each text begins."""
        return _read_characters(self.column)


class EditDistance(ScoredMeasure):
    """The least number of edits that make one text of another one."""

    name = "levenshtein"
    forms = ("levenshtein(left, right)",)
    arguments = "two texts of type STRING, without a collation"

    def takes(self, left: str, right: str) -> bool:
        return left == right == "string"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        from thetastream.kernels.tiles import count_edits  # loads Numba

        mine, theirs = left.take(pa.array(left_rows)), right.take(pa.array(right_rows))
        values = np.zeros(len(left_rows), dtype=np.float64)
        count_edits(*_read_characters(mine), *_read_characters(theirs), values)
        is_null = pc.or_(mine.is_null(), theirs.is_null()).to_numpy(zero_copy_only=False)
        return Values(values, is_null)

    def derive(self, column: pa.Array) -> Texts:
        from thetastream.kernels.tiles import sign_characters  # loads Numba

        characters, starts = _read_characters(column)
        signatures = np.zeros(len(column), dtype=np.int64)
        sign_characters(characters, starts, signatures)
        return Texts(np.diff(starts), signatures, column.is_null().to_numpy(zero_copy_only=False), column)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        probes, stored, rows = search.probes, search.stored, search.probe_rows
        least, most = find_interval(search.limit)
        known, others = search.find_known()
        # In the order of their lengths, the texts that are long enough and short enough lie side by side.
        ordered = stored.lengths[search.stored_rows[others]]
        order = np.argsort(ordered, kind="stable")
        others, ordered = others[order], ordered[order]
        signatures = stored.signatures[search.stored_rows[others]]

        def find_near(some: Int64s, most: int = most) -> Iterator[tuple[Int64s, Int64s]]:
            from thetastream.kernels.tiles import select_texts  # loads Numba

            lengths, mine = probes.lengths[rows[some]], probes.signatures[rows[some]]
            first = np.searchsorted(ordered, lengths - most, side="left")
            last = np.searchsorted(ordered, lengths + most, side="right")
            return collect_places(partial(select_texts, mine, signatures, first, last, most), capacity)

        if not search.limit.is_far:
            for found, columns in find_near(known):
                yield Proposal(known[found], others[columns])
            return
        # Texts that are less than ``least`` edits apart are near.
        yield from pair_others(known, others, lambda some: join_places(find_near(some, least - 1)), capacity)

    def propose_nearest(self, search: NearestSearch, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
        if search.is_descending:
            # No bound says which texts are the farthest.
            every = np.arange(len(search.seeker_rows)), np.arange(len(search.other_rows))
            yield from pair_all(*every, capacity)
        else:
            yield from super().propose_nearest(search, capacity)

    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        from thetastream.kernels.tiles import score_texts  # loads Numba

        left, right = search.seekers, search.others
        rows = search.seeker_rows[mine]
        tile = np.full((len(mine), len(theirs)), -np.inf, dtype=np.float32)
        known = np.flatnonzero(~right.is_null[search.other_rows[theirs]])
        theirs, other_rows = theirs[known], search.other_rows[theirs[known]]
        probes, stored = (mine, theirs) if search.seekers_probe else (theirs, mine)
        low, high, keys = search.inside
        found = np.empty((len(mine), len(theirs)), dtype=np.float32)
        score_texts(
            *_take_texts(left, rows), *_take_texts(right, other_rows),
            left.signatures[rows], right.signatures[other_rows],
            best, low[probes], high[probes], keys[stored], search.seekers_probe, found,
        )  # fmt: skip
        tile[:, known] = found
        return tile


def _take_texts(texts: Texts, rows: Int64s) -> tuple[Characters, Int64s]:
    """Return the characters of some texts, and where each of them begins."""
    characters, starts = texts.characters
    sizes = texts.lengths[rows]
    ends = np.cumsum(sizes)
    at = np.repeat(starts[rows] - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    return characters[at], np.append(0, ends)


def _read_characters(column: pa.Array) -> tuple[Characters, Int64s]:
    """Return the bytes of each character of all texts as a number, and where each text begins; NULL is empty.

    >>> characters, starts = _read_characters(pa.array(["aé", None, "a"]))
    >>> len({*characters.tolist()}), starts.tolist()
    (2, [0, 2, 2, 3])
    """
    from thetastream.kernels.tiles import read_characters  # loads Numba

    texts = column.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    characters = np.empty(int(offsets[-1] - offsets[0]), dtype=np.uint32)
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    n = read_characters(data, offsets, characters, starts)
    return characters[:n], starts
