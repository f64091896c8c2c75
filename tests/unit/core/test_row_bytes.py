"""The bytes of rows against the bytes that Arrow counts, and the pieces of results that they bound."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.support.local import LocalJoin
from thetastream.core.blocks import RowFacts, concat, cut, gather
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.errors import StateError
from thetastream.core.sides import Side
from thetastream.engine.store.probing import BYTES_AT_ONCE
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import IndexSpec, Sorted
from thetastream.models import Biclique

WORDS = [None, "", "a", "bc" * 50, "d" * 1000]
MAP, STRUCT = pa.map_(pa.string(), pa.string()), pa.struct([("p", pa.string())])
COLUMNS = {
    "i": pa.array(range(5), pa.int32()),
    "b": pa.array([True, None, False, True, True]),
    "s": pa.array(WORDS),
    "l": pa.array(WORDS, pa.large_string()),
    "y": pa.array([None if word is None else word.encode() for word in WORDS]),
    "n": pa.array([None, [], [1], [1, 2, 3], list(range(500))], pa.list_(pa.int64())),
    "t": pa.array([None, [], ["x"], [None, "yy"], ["z" * 700]], pa.list_(pa.string())),
    "m": pa.array([None, [], [("k", "v")], [("k" * 9, None)], [("k", "v" * 300)]], MAP),
    "r": pa.array([None, {"p": "q"}, {"p": None}, {"p": "q" * 40}, {"p": ""}], STRUCT),
    "d": pa.array([None, 1, 2, 3, 4], pa.decimal128(30, 2)),
    "v": pa.nulls(5),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_bytes_of_rows(name: str) -> None:
    batch = pa.RecordBatch.from_pydict({name: pa.concat_arrays([COLUMNS[name]] * 3)})
    for part in (batch, batch.slice(3, 9), batch.slice(7, 0)):
        each = RowFacts(part).each
        assert each.shape == (part.num_rows,)
        alone = [part.slice(n, 1).nbytes for n in range(part.num_rows)]
        # Offsets and validity bits are counted by rough rules.
        np.testing.assert_allclose(each, alone, atol=16)


def wide(sizes: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": [*range(len(sizes))], "text": ["w" * size for size in sizes]})


def test_blocks_are_cut_by_bytes() -> None:
    rows = wide([10, 500, 10, 10, 3000, *[10] * 50])
    parts = list(gather([rows], rows_at_once=20, bytes_at_once=400, most_bytes=600))
    assert concat(parts).equals(rows)
    assert all(part.nbytes <= 600 or part.num_rows == 1 for part in parts)
    assert len(parts) < 12
    assert [part.num_rows for part in cut(rows.slice(0, 0), 1)] == []


def test_pieces_of_results_are_bounded_by_bytes() -> None:
    """One tuple of 10 MB on each side meets 300 small ones. All pairs together have 6 GB."""
    sides = tuple(SideSpec(alias, ("x", "text"), keys=(Key("x", Domain.INT),)) for alias in "ab")
    band = Dimension(Side.LEFT, 0, Bound(0, -1000), Bound(0, 1000))
    unit = UnitSpec(Condition(sides, dimensions=(band,)), (IndexSpec(Sorted(), dimensions=(0,)),) * 2, None)
    streams = [wide([*[20] * 150, 10_000_000, *[20] * 150]) for _ in sides]

    def sizes(join: LocalJoin) -> Iterator[tuple[int, int]]:
        for pairs in join.epoch(*streams):
            yield len(pairs.left), pairs.left.nbytes + pairs.right.nbytes

    found = list(sizes(LocalJoin(unit, Biclique(1))))
    assert sum(n for n, _ in found) == 301 * 301
    assert max(nbytes for _, nbytes in found) <= 1.01 * BYTES_AT_ONCE
    assert len(found) < 450


def test_an_epoch_that_no_column_can_hold_is_refused_by_name() -> None:
    """The offsets of text have 32 bits. Here two arrays share one buffer of zeros."""
    size = 3 << 29
    zeros = pa.py_buffer(memoryview(np.zeros(size, dtype=np.uint8)))  # the system maps no page of it
    offsets = pa.py_buffer(np.array([0, size], dtype=np.int32))
    batch = pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), 1, [None, offsets, zeros])], ["y"])
    with pytest.raises(StateError, match=r"EPOCH_TOO_LARGE.* the 2 tuples .* 3,221,225,480 bytes"):
        concat([batch, batch])
