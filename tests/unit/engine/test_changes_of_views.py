"""Groups over streams with deletes: after each epoch, the merged views are the groups of the net join.

{ (l.k, sum of signs, sum of l.v * sign, sum of r.t * sign) : (l, r) in the join of the net rows }
"""

import random
from collections import defaultdict
from typing import Any

import pytest

from tests.support.changes import draw_history
from tests.support.local_run import LocalRun
from tests.unit.engine.test_changes import (
    FULL,
    IN_WINDOW,
    MODELS,
    WINDOW,
    Pairs,
    make_batch,
    make_row,
    replay,
)
from thetastream.aggregates import Measure
from thetastream.aggregates.operands import SideColumn
from thetastream.aggregates.simple import MatchCount, Total, ValueCount
from thetastream.core.sides import Side
from thetastream.engine.store import chained_index
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.views import Fold, FoldedSpec
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model

FOLD = Fold(
    ((Side.LEFT, "k"),),
    (
        Measure(MatchCount()),
        Measure(ValueCount(), SideColumn(Side.RIGHT, "v")),
        Measure(Total(), SideColumn(Side.LEFT, "v")),
        Measure(Total(), SideColumn(Side.RIGHT, "t")),
    ),
    has_deletes=True,
)
Groups = dict[Any, list[int]]


def group(pairs: Pairs) -> Groups:
    """Group the pairs of the answer, in which a pair may be there several times or minus several times."""
    groups: Groups = defaultdict(lambda: [0, 0, 0, 0])
    for (left, right), n in pairs.items():
        for place, value in enumerate((1, 1, left[3], right[1])):
            groups[left[2]][place] += n * value
    return drop_empty(groups)


def drop_empty(groups: Groups) -> Groups:
    return {key: row for key, row in groups.items() if any(row)}


def check(unit: UnitSpec, model: Model, window: int | None, seed: int, n_epochs: int) -> None:
    """Run a history, and compare the sum of all views with the groups of the answer after each epoch."""
    history = draw_history(random.Random(seed), n_epochs, make_row, has_watermark=window is not None)
    run = LocalRun(FoldedSpec(TwoStreamSpec(unit, model), FOLD))
    found: Groups = defaultdict(lambda: [0, 0, 0, 0])
    for epoch, expected in replay(history, window):
        batches = [make_batch(changes) for changes in (epoch.left, epoch.right)]
        for columns in run.epoch(batches, epoch.watermark):
            for key, *row in zip(*(column.to_pylist() for column in columns), strict=True):
                found[key] = [old + int(new or 0) for old, new in zip(found[key], row, strict=True)]
        assert drop_empty(found) == group(expected)


@pytest.mark.parametrize("model", [Biclique((1, 2)), Split(3)], ids=repr)
def test_groups_in_a_window_are_those_of_the_net_join(model: Model) -> None:
    check(IN_WINDOW, model, WINDOW, seed=3, n_epochs=12)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "window"), [(model, WINDOW) for model in MODELS] + [(Matrix(2, 2), None)])
def test_groups_of_many_histories(model: Model, window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 2)
    if window is None:
        monkeypatch.setattr(chained_index, "MERGED_ROWS", 16)
        monkeypatch.setattr(chained_index, "FEWEST_DELETES", 0)
    for seed in range(10):
        check(IN_WINDOW if window else FULL, model, window, seed, n_epochs=40)
