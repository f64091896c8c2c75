"""An index shape from outside the package needs one file and one line in the registry, also with a kernel of
its own; joins of the engine without Spark use it."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tests.support.draws import draw_cases
from tests.support.local import LocalJoin
from tests.support.strategies import Case, cases
from tests.support.tile_shape import SIDE, Tiles
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.store.run import Run
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import REGISTRY, IndexSpec, Pairs, Scan, Search, Span, StoredRows
from thetastream.lowering.lower import choose_index
from thetastream.models import Biclique

BAND = 3
VALUES = [7 * n % 31 for n in range(4 * SIDE + 1)]
PAIRS = Counter(
    (a, b) for a, x in enumerate(VALUES) for b, y in enumerate(VALUES[::-1]) if abs(x - y) <= BAND
)


@pytest.fixture
def tiles() -> Iterator[Tiles]:
    REGISTRY[Tiles.name] = Tiles()
    yield Tiles()
    del REGISTRY[Tiles.name]


def make_batch(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"id": list(range(len(values))), "x": values})


def test_a_registered_shape_is_chosen_and_joins_with_its_own_kernel(
    tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1. The planner finds it in the registry.
    left, right = (SideSpec(alias, ("id", "x"), (), (Key("x", Domain.INT),)) for alias in "ab")
    band = Dimension(Side.LEFT, 0, Bound(0, -BAND), Bound(0, BAND))
    condition = Condition((left, right), dimensions=(band,))
    index, reason = choose_index(condition)
    assert (index.shape, reason) == (tiles, "a comparison")
    # 2. The engine joins with it, and its compiled loop is never called.
    searched = []
    match = Tiles.match

    def note(self: Tiles, run: Run, search: Search, capacity: int) -> Iterator[object]:
        searched.append(search.n_probes * run.n_rows)
        return match(self, run, search, capacity)

    monkeypatch.setattr(Tiles, "match", note)
    monkeypatch.delattr("thetastream.kernels.walk.walk")
    join = LocalJoin(UnitSpec(condition, (index, index), None), Biclique((1, 2)))
    half = len(VALUES) // 2
    found: Counter[tuple[int, int]] = Counter()
    n_candidates = 0
    whole = make_batch(VALUES), make_batch(VALUES[::-1])
    for part in (slice(0, half), slice(half, len(VALUES))):
        batches = [batch.slice(part.start, part.stop - part.start) for batch in whole]
        for matches in join.epoch(*batches):
            ids = (batch["id"].to_pylist() for batch in (matches.left, matches.right))
            found.update(zip(*ids, strict=True))
        n_candidates += sum(counters.candidates for counters in join.counters)
    assert found == PAIRS
    assert n_candidates == sum(searched) == len(VALUES) ** 2


def test_any_join_agrees_with_the_nested_loop(tiles: Tiles) -> None:
    tried: Counter[str] = Counter()

    @draw_cases(100)
    @given(cases())
    def agree(case: Case) -> None:
        tried.update(index.shape.name for index in case.indexes)
        join = LocalJoin(UnitSpec(case.condition, case.indexes, case.archive_period_us), Biclique((1, 2)))
        found: Counter[tuple[int, int]] = Counter()
        for left, right, watermark in case.epochs:
            batches = case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right)
            for matches in join.epoch(*batches, watermark):
                ids = (batch["id"].to_pylist() for batch in (matches.left, matches.right))
                found.update(zip(*ids, strict=True))
        assert found == case.answer()[0]

    agree()
    assert tried[Tiles.name]


class Reversed(Scan):
    """A shape that calls the loop of the package for each half of the probes, and first for the last ones."""

    name = "outside_reversed"

    def match(self, run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs]:
        half = search.n_probes // 2
        for part in (np.arange(search.n_probes)[half:][::-1], np.arange(half)):
            buckets = Span(*(edge[part] for edge in search.buckets))
            checked = {
                column: Span(*(ends[part] for ends in span)) for column, span in search.checked.items()
            }
            for pairs in super().match(run, search._replace(buckets=buckets, checked=checked), capacity):
                yield pairs._replace(probes=part[pairs.probes])


def test_a_shape_may_pass_other_probes_to_the_loop_of_the_package() -> None:
    left, right = (SideSpec(alias, ("id", "x"), (), (Key("x", Domain.INT),)) for alias in "ab")
    band = Dimension(Side.LEFT, 0, Bound(0, -BAND), Bound(0, BAND))
    index = IndexSpec(Reversed())
    join = LocalJoin(
        UnitSpec(Condition((left, right), dimensions=(band,)), (index, index), None), Biclique((1, 2))
    )
    found: Counter[tuple[int, int]] = Counter()
    for matches in join.epoch(make_batch(VALUES), make_batch(VALUES[::-1])):
        ids = (batch["id"].to_pylist() for batch in (matches.left, matches.right))
        found.update(zip(*ids, strict=True))
    assert found == PAIRS
