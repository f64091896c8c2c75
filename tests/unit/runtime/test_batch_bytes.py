"""No batch that leaves a unit, a router or a mailbox has more bytes than its limit, whatever the schema.

Spark makes Arrow batches of ``SPARK_ROWS`` rows of what these steps return, so their rows are counted too.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetastream.core.blocks import (
    BYTES_PER_BLOCK,
    FREE_BYTES,
    STEP,
    RowFacts,
    count_fillers,
    cut_pairs,
    gather,
    make_binary,
    pack,
)
from thetastream.core.columns import BLOCK
from thetastream.engine.order import Order
from thetastream.runtime.emit import MOST_BYTES, BlockEmitter, gather_batches, unpack_blocks
from thetastream.runtime.mailbox.files import Row, rows
from thetastream.spark.dataflow.stages import _make_gathering_step
from thetastream.spark.sources.mailbox import address

SPARK_ROWS = 10_000
"""The default of spark.sql.execution.arrow.maxRecordsPerBatch."""
BATCH_BYTES = SPARK_ROWS * STEP + FREE_BYTES
TEXT = "w" * 10_000_000
WIDTHS = st.sampled_from([0, 10, 1_000, 100_000, 1_000_000, 10_000_000])
KINDS = {
    "text": (pa.string(), lambda text: text),
    "floats": (pa.list_(pa.float32()), lambda text: np.zeros(len(text) // 4, np.float32)),
    "map": (pa.map_(pa.string(), pa.string()), lambda text: [("k", text)]),
    "struct": (
        pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]),
        lambda text: {"x": 1, "y": [text, None]},
    ),
}
"""For each kind of column, its type, and how a value of it is made of a text."""


def make_values(kind: str, widths: Sequence[int]) -> pa.Array:
    """Make one value of about so many bytes for each width; every seventh value is NULL."""
    type_, make = KINDS[kind]
    return pa.array([None if n % 7 == 6 else make(TEXT[:width]) for n, width in enumerate(widths)], type_)


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Draw batches of one schema: nested columns, wide values, or 2,000 columns."""
    n_fixed = draw(st.sampled_from([1, 1, 3, 2_000]))
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=2))
    found = []
    for n_rows in draw(st.lists(st.integers(0, 40), min_size=1, max_size=4)):
        columns = {f"c{n}": pa.array(np.arange(n_rows)) for n in range(n_fixed)}
        for number, kind in enumerate(kinds):
            chosen = draw(st.lists(WIDTHS, min_size=1, max_size=5))
            most = 30_000_000 // max(n_rows, 3)
            widths = [min(chosen[n % len(chosen)], most) for n in range(n_rows)]
            columns[f"wide{number}"] = make_values(kind, widths)
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


def measure_largest(nbytes: Sequence[int]) -> int:
    """Return the bytes of the largest Arrow batch that Spark makes of rows of so many bytes."""
    sums = np.concatenate([[0], np.cumsum(nbytes)])
    ends = np.minimum(np.arange(len(nbytes)) + SPARK_ROWS, len(nbytes))
    return int((sums[ends] - sums[:-1]).max(initial=0))


@given(batches())
@settings(max_examples=12, deadline=None)
def test_the_largest_batch(found: list[pa.RecordBatch]) -> None:
    whole = pa.Table.from_batches(found)
    schema = whole.schema
    widest = max((RowFacts(batch).widest for batch in found), default=0)
    # 1. Results leave a unit in batches of MOST_BYTES at most, or of one row, and nothing is lost.
    results = list(gather_batches((batch.columns for batch in found), schema))
    assert all(batch.nbytes <= MOST_BYTES or batch.num_rows == 1 for batch in results)
    assert pa.Table.from_batches(results, schema).equals(whole)
    # 2. Ordered results have fillers behind their blocks.
    packed = list(BlockEmitter(schema).gather_results(batch.columns for batch in found))
    column = pa.chunked_array([pa.array(frame[BLOCK]) for frame in packed], pa.binary())
    lengths = pc.binary_length(column).fill_null(0).to_numpy()
    assert measure_largest(lengths) <= BATCH_BYTES + MOST_BYTES + widest
    blocks = pa.table({BLOCK: column}).to_batches()
    assert pa.Table.from_batches(unpack_blocks(blocks), schema).equals(whole)
    # 3. A router sends blocks, and fillers behind the later ones.
    sent, nbytes, messages = 0, [], []
    for number, batch in enumerate(gather(found)):
        assert batch.nbytes <= BYTES_PER_BLOCK or batch.num_rows == 1
        block = make_binary(pack(batch))
        nbytes += [block.nbytes, *[0] * count_fillers(0, sent, block.nbytes)]
        sent += block.nbytes
        messages.append(Row(0, number, None, block[0].as_buffer(), [(0, 1), (1, 1)]))
    assert measure_largest(nbytes) <= BATCH_BYTES + BYTES_PER_BLOCK + widest
    # 4. A mailbox sends a message to each of its destinations, with fillers behind it.
    nbytes = [
        size
        for sent_rows in (address(rows(messages)) if messages else ())
        for size in ([sent_rows.nbytes] if sent_rows.num_rows == 1 else [0] * sent_rows.num_rows)
    ]
    assert measure_largest(nbytes) <= BATCH_BYTES + BYTES_PER_BLOCK + widest


def test_ordered_results() -> None:
    """80 MB of ordered results leave the gathering in order, 32 MB at a time or less."""
    n = 80
    arrivals = [pa.array(np.arange(n, 0, -1)), pa.array(np.zeros(n, np.int64))]
    batch = pa.RecordBatch.from_arrays(
        [*arrivals, make_values("text", [1_000_000] * n)], names=["l", "r", "t"]
    )
    step = _make_gathering_step(Order(), (0, 1), is_packed=False)
    found = list(step(iter([batch])))
    assert [value for part in found for value in part.column(0).to_pylist()] == list(range(1, n + 1))
    assert max(part.nbytes for part in found) <= MOST_BYTES


@pytest.mark.parametrize("limit", [1, 100, 10_000])
def test_pieces_of_pairs(limit: int) -> None:
    """Pairs of tuples are cut by the bytes of both tuples. A larger pair is alone."""
    sizes = np.random.default_rng(5).integers(1, 1_000, 500)
    parts = list(cut_pairs(sizes, limit))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert all(sizes[part].sum() <= limit or part.stop - part.start == 1 for part in parts)
