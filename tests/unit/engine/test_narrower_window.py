"""A query that starts again with a narrower window keeps its state, and its archive period may change too."""

import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.local import LocalChain, LocalJoin
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import IndexSpec, Scan
from thetastream.models import Biclique, Chain, Matrix, Split
from thetastream.models.base import Model

SCAN = (IndexSpec(Scan()),) * 2
Tuple = tuple[int, int]
"""Identifier and event time."""


def condition(window: int | None) -> Condition:
    time = Key("t", Domain.INT)
    sides = tuple(SideSpec(alias, ("id", "t"), keys=(Key("id", Domain.INT),), time=time) for alias in "ab")
    both = None if window is None else Dimension(Side.LEFT, TIME, Bound(TIME, -window), Bound(TIME, window))
    return Condition((sides[0], sides[1]), window=both)


def make_epochs(seed: int) -> list[tuple[list[Tuple], list[Tuple], int]]:
    """Six epochs of tuples of both streams with a watermark each. No tuple is late."""
    rng, found, number = random.Random(seed), [], 0
    for epoch in range(6):
        both: list[list[Tuple]] = []
        for _ in Side:
            times = [epoch * 50 + rng.randrange(90) for _ in range(12)]
            both.append([(number + n, time) for n, time in enumerate(times)])
            number += 12
        found.append((both[0], both[1], epoch * 50 - 1))
    return found


def batch(rows: list[Tuple]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": [row[0] for row in rows], "t": [row[1] for row in rows]})


@pytest.mark.parametrize("model", [Biclique(2), Matrix(2, 2), Split(3), Chain(3)], ids=repr)
def test_a_narrower_window_continues(model: Model) -> None:
    def spec(window: int, period: int) -> TwoStreamSpec | HandshakeSpec:
        if isinstance(model, Chain):
            return HandshakeSpec(condition(window), SCAN, period, model)
        return TwoStreamSpec(UnitSpec(condition(window), SCAN, period), model)

    wide, narrow = spec(100, 10), spec(40, 7)
    run = LocalChain(wide) if isinstance(wide, HandshakeSpec) else LocalJoin(wide.unit, model)
    found: Counter[Tuple] = Counter()
    arrived: dict[int, tuple[int, int]] = {}
    epochs = make_epochs(7)
    for number, (left, right, watermark) in enumerate(epochs):
        if number == 3:
            run._spec = narrow
        arrived |= {row[0]: (row[1], number) for row in (*left, *right)}
        for pairs in run.epoch(batch(left), batch(right), watermark):
            found.update(zip(pairs.left["id"].to_pylist(), pairs.right["id"].to_pylist(), strict=True))
    if isinstance(run, LocalChain):
        for pairs in run.drain(10_000):
            found.update(zip(pairs.left["id"].to_pylist(), pairs.right["id"].to_pylist(), strict=True))
    ids = [[row[0] for epoch in epochs for row in epoch[side]] for side in Side]
    n_wide = 0
    for pair in ((a, b) for a in ids[0] for b in ids[1]):
        (time, came), (other_time, other_came) = (arrived[one] for one in pair)
        distance, is_early = abs(time - other_time), max(came, other_came) < 3
        if distance <= 40 or (distance <= 100 and is_early and not isinstance(model, Chain)):
            assert found.pop(pair, 0) == 1, (pair, distance)
        n_wide += distance > 40 and is_early
    # A chain finds a pair later than its tuples come, so the old window still holds for some early pairs.
    assert all(n == 1 and abs(arrived[a][0] - arrived[b][0]) <= 100 for (a, b), n in found.items())
    assert not found or isinstance(model, Chain)
    assert n_wide > 100


def test_a_smaller_count_window_continues() -> None:
    wide = UnitSpec(condition(None), SCAN, None, (9, 9))
    narrow = replace(wide, counts=(5, 3))
    run = LocalJoin(wide, Split(3))
    found: Counter[Tuple] = Counter()
    orders: list[list[tuple[int, int]]] = [[], []]
    expected: Counter[Tuple] = Counter()
    for number, (left, right, watermark) in enumerate(make_epochs(3)):
        if number == 3:
            run._spec = TwoStreamSpec(narrow, Split(3))
        counts = (9, 9) if number < 3 else (5, 3)
        # Among equal times, left tuples arrive first.
        arrivals = sorted(
            [(row[1], 0, row[0]) for row in left] + [(row[1], 1, row[0]) for row in right],
            key=lambda one: one[:2],
        )
        for _, side, name in arrivals:
            for _, other in orders[1 - side][-counts[1 - side] :]:
                expected[(name, other) if side == 0 else (other, name)] += 1
            orders[side].append((number, name))
        for pairs in run.epoch(batch(left), batch(right), watermark):
            found.update(zip(pairs.left["id"].to_pylist(), pairs.right["id"].to_pylist(), strict=True))
    assert found == expected
