"""Random routing is even for any content, and sends a set of tuples to the same units in any order."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from thetastream.core.columns import HASH
from thetastream.core.keys import Int64s, mix
from thetastream.core.sides import Role, Side
from thetastream.engine.routing import Router
from thetastream.engine.spreading import Spreader
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Places

N = 100_000
ZIPF = np.random.default_rng(5).zipf(1.1, N) % 10_000
CONTENTS = {
    "all equal": np.zeros(N, dtype=np.int64),
    "two values": np.arange(N) % 2,
    "Zipf": ZIPF,
    "all different": np.arange(N),
}


def make_batches(values: Int64s, n_batches: int) -> Iterator[pa.RecordBatch]:
    """Make batches of tuples whose whole content is a number, with their hashes."""
    for piece in np.array_split(values, n_batches):
        hashes = mix(piece.astype(np.uint64)).view(np.int64)
        yield pa.RecordBatch.from_pydict({"k": piece, HASH: hashes})


def find_places(side: Side, batch: pa.RecordBatch) -> Places:
    """Name the content as the place of each tuple and of its partners."""
    keys = batch.column("k").to_numpy()
    return Places(keys, keys, keys)


def list_sent(
    model: Biclique | Matrix, batches: Iterator[pa.RecordBatch], epoch: int, task: int
) -> Counter[tuple[int, Role, int]]:
    """Count for each unit, role and content the left tuples that a task sends."""
    router = Router(model, find_places if model.needs_places else None)
    spreader, sent = Spreader(epoch, task), Counter[tuple[int, Role, int]]()
    for batch in batches:
        for unit, role, block in router.route(Side.LEFT, spreader.spread(batch)):
            sent.update((unit, role, value) for value in block.column("k").to_pylist())
    return sent


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(("epochs", "tasks"), [(1, 1), (2, 4), (500, 2)])
def test_stored_tuples_are_even_whatever_they_hold(content: str, epochs: int, tasks: int) -> None:
    """Before, all tuples of one content went to one unit: max/mean was 2.31 for the keys of Zipf."""
    stored = np.zeros(8)
    for epoch, share in enumerate(np.array_split(CONTENTS[content], epochs)):
        for task, mine in enumerate(np.array_split(share, tasks)):
            for (unit, role, _), n in list_sent(Biclique((8, 1)), make_batches(mine, 2), epoch, task).items():
                if role is Role.STORE:
                    stored[unit] += n
    assert stored.sum() == N
    assert stored.max() / stored.mean() <= 1.1


@draw_cases(50)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3000),
    st.integers(1, 9),
    st.sampled_from([Biclique((3, 1)), Biclique(((2, 1), 1), routing="hash"), Matrix(3, 2)]),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 20),
)
def test_a_task_that_runs_again_in_another_order_sends_the_same_tuples(
    values: list[int], cuts: int, model: Biclique | Matrix, epoch: int, task: int
) -> None:
    shuffled = Random(task).sample(values, len(values))
    first, second = (
        list_sent(model, make_batches(np.array(each), n), epoch, task)
        for each, n in ((values, 1), (shuffled, cuts))
    )
    assert first == second


def test_the_table_of_known_tuples_grows() -> None:
    spreader, values = Spreader(3, 1), np.arange(5000)
    hashes = mix(values.astype(np.uint64)).view(np.int64)
    numbers = [spreader.number(hashes[start : start + 700]) for start in range(0, 5000, 700)]
    again = spreader.number(hashes)
    assert np.array_equal(again - np.concatenate(numbers), np.ones(5000))
