"""Streams with deletes while units change and crash: the summed output stays the join of the net rows."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.changes import draw_history, drop_zeros
from tests.support.controlled import KINDS, MAX_UNITS, TIME_WINDOW, CrashingRun
from tests.unit.engine.test_changes import (
    IN_WINDOW,
    WINDOW,
    Pairs,
    make_batch,
    make_row,
    replay,
)
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.store import chained_index
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model
from thetastream.runtime.control.request import Request

MODELS: tuple[Model, ...] = (Biclique((2, 1)), Split(3), Matrix(2, 2), Biclique((1, 3)), Matrix(1, 1))


def make_join(model: Model) -> EngineSpec:
    return TwoStreamSpec(IN_WINDOW, model)


def make_task(model: Model) -> EngineSpec:
    return SharedTasksSpec((TaskSpec("only", TwoStreamSpec(IN_WINDOW, model)),))


def check(make: Callable[[Any], EngineSpec], seed: int, n_epochs: int) -> None:
    chance = random.Random(seed)
    history = draw_history(chance, n_epochs, make_row, has_watermark=True)
    models = chance.sample(MODELS, len(MODELS))
    run, output, versions = CrashingRun(make(models[0]), models[0], KINDS[TIME_WINDOW][1]), Pairs(), set()
    for number, (epoch, expected) in enumerate(replay(history, WINDOW)):
        if number % 4 == 2:
            run.put(Request(model=models[number // 4 % len(models)]))
        batches = [make_batch(changes) for changes in (epoch.left, epoch.right)]
        crashes = [chance.randint(0, MAX_UNITS) for _ in range(chance.choice((0, 0, 1, 2)))]
        for columns in run.attempt(batches, epoch.watermark, crashes):
            for *values, sign in zip(*(column.to_pylist() for column in columns[-9:]), strict=True):
                output[tuple(values[:4]), tuple(values[4:])] += sign
        versions.add(run.offset.plan.version)
        assert drop_zeros(output) == expected, seed
    assert len(versions) > 2, "units must change"
    assert len(output) > 20


@pytest.mark.parametrize("make", [make_join, make_task])
def test_units_change_and_crash_between_an_insert_and_its_delete(make: Callable[[Any], EngineSpec]) -> None:
    check(make, 1, 15)


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_join, make_task])
def test_many_schedules(make: Callable[[Any], EngineSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 2)
    for seed in range(100, 108):
        check(make, seed, 30)
