"""Joins of three streams with deletes, hop by hop: the summed output is the join of the net rows.

{ (a, b, c) : a.k = b.k, |b.v - c.v| <= 1, all in a window of 8, none is late }, over the net rows
"""

import random
from collections import Counter
from datetime import timedelta
from itertools import product

import pyarrow as pa
import pytest

from tests.support.changes import Change, Row, draw_history, drop_zeros, net
from tests.support.local_run import LocalRun
from tests.unit.engine.test_changes import COLUMNS, WINDOW, make_row
from thetastream.core.columns import SIGN
from thetastream.core.condition import Bound, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.core.spans import Rows
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.engine.store import chained_index
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import ATR, CTR, Multiway, Ring

Triples = Counter[tuple[Row, ...]]
SPAN = Ends(-WINDOW, WINDOW)
NEAR = Dimension(Side.LEFT, 1, Bound(1, -1), Bound(1, 1))
EDGES = {
    (0, 1): Edge((Equality(0, 0),), (), SPAN),
    (1, 2): Edge((), (NEAR,), SPAN),
    (0, 2): Edge((), (), SPAN),
}


def make_graph(changing: str) -> JoinGraph:
    """Make the graph. The aliases in ``changing`` have deletes."""
    sides = []
    for alias in "abc":
        t, k, v = (f"{alias}{name}" for name in "tkv")
        columns = tuple(f"{alias}{name}" for name in COLUMNS)
        keys = Key(k, Domain.INT), Key(v, Domain.INT)
        signs = (SIGN,) if alias in changing else ()
        sides.append(SideSpec(alias, columns, signs, keys, Key(t, Domain.INT)))
    return JoinGraph(tuple(sides), EDGES)


def matches(rows: tuple[Row, ...]) -> bool:
    (_, t, k, _), (_, u, j, v), (_, s, _, w) = rows
    return k is not None and k == j and abs(v - w) <= 1 and max(t, u, s) - min(t, u, s) <= WINDOW


class ThreeStreams:
    """A run whose output is summed by row, and the answer after each epoch."""

    def __init__(self, model: Multiway, changing: str = "abc") -> None:
        graph = make_graph(changing)
        self._run = LocalRun(build_multiway_spec(graph, ((1, 2), (2, 0), (1, 0)), model, 2))
        self._sides = graph.sides
        self._arrived: list[list[Change]] = [[], [], []]
        self._late: int | None = None
        self.output: Triples = Counter()

    def epoch(self, changes: list[list[Change]], watermark: int | None) -> Triples:
        """Run an epoch; return the answer after it."""
        batches = []
        for side, mine, arrived in zip(self._sides, changes, self._arrived, strict=True):
            if not side.has_deletes:
                mine = [Change(row, 1) for row, _ in mine]
            columns = {
                name: pa.array([row[n] for row, _ in mine], pa.int64()) for n, name in enumerate(side.columns)
            }
            if side.has_deletes:
                columns[SIGN] = pa.array([sign for _, sign in mine], pa.int8())
            batches.append(pa.RecordBatch.from_pydict(columns) if mine else None)
            arrived += [one for one in mine if self._late is None or one.row[1] > self._late]
        self._take(self._run.epoch(batches, watermark))
        self._late = watermark
        bags = [net(arrived).items() for arrived in self._arrived]
        found = ((tuple(row for row, _ in three), three) for three in product(*bags))
        return Counter({rows: a * b * c for rows, ((_, a), (_, b), (_, c)) in found if matches(rows)})

    def drain(self) -> None:
        """Run epochs until no partial result is in flight."""
        self._take(self._run.drain(self._late))

    def _take(self, results) -> None:  # type: ignore[no-untyped-def]
        for columns in results:
            for values in zip(*(column.to_pylist() for column in columns), strict=True):
                self.output[values[:4], values[4:8], values[8:12]] += values[12]
        self.output = drop_zeros(self.output)


MODELS: tuple[tuple[Multiway, int], ...] = (
    (Ring(3, Rows(2)), 1),
    (Ring(2, Rows(2)).store_once(1), 0),
    (ATR(2, timedelta(microseconds=6), 0), 0),
    (CTR(3, 2, timedelta(microseconds=4)), 1),
)
"""The models, and the number of epochs by which their results follow their last tuple."""
OF_MODELS = pytest.mark.parametrize(
    ("model", "delay"), MODELS, ids=[type(model).__name__ for model, _ in MODELS]
)


def check(model: Multiway, delay: int, seed: int, n_epochs: int, changing: str = "abc") -> None:
    chance = random.Random(seed)
    two, third = (draw_history(chance, n_epochs, make_row, has_watermark=True) for _ in range(2))
    run, answers = ThreeStreams(model, changing), [Triples()]
    for one, other in zip(two, third, strict=True):
        answers.append(run.epoch([one.left, one.right, other.left], one.watermark))
        assert run.output == answers[-1 - delay]
    run.drain()
    assert run.output == answers[-1]
    assert len(run.output) > 20


@OF_MODELS
def test_the_output_is_the_join_of_the_net_rows(model: Multiway, delay: int) -> None:
    check(model, delay, 4, 10)


@pytest.mark.slow
@OF_MODELS
def test_many_histories_of_three_streams(
    model: Multiway, delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 2)
    for seed, changing in enumerate(("abc", "abc", "a", "bc", "c"), 10):
        check(model, delay, seed, 25, changing)
