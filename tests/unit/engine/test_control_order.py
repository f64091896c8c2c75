"""Units of joins with ordered results change while they run: arrivals go on, and punctuations come once."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.controlled import (
    COLUMNS,
    COUNT_WINDOW,
    COUNTED_RULES,
    COUNTED_UNIT,
    MAX_UNITS,
    RULES,
    SCHEMA,
    TIME_WINDOW,
    UNIT,
    CrashingRun,
    Schedule,
    draw_model,
)
from tests.support.local_run import LocalRun
from thetastream.core.sides import Role, Side
from thetastream.engine.inbox import Peers
from thetastream.engine.order import ARRIVAL_LEFT, ARRIVAL_RIGHT, Order, PunctuatedSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Biclique, Split
from thetastream.models.base import Model
from thetastream.runtime.control.request import Request
from thetastream.runtime.routing_step import PlanRouter

ORDER = Order(interval=3, is_punctuated=True)
ARRIVALS = [pa.field(name, pa.int64()) for name in (ARRIVAL_LEFT, ARRIVAL_RIGHT)]
RESULTS = pa.schema([*SCHEMA, ARRIVALS[0], *SCHEMA, ARRIVALS[1]])
N_LEFT = len(COLUMNS) + 1
UNITS = {TIME_WINDOW: (UNIT, RULES), COUNT_WINDOW: (COUNTED_UNIT, COUNTED_RULES)}


def build(kind: str, model: Model) -> PunctuatedSpec:
    join = TwoStreamSpec(replace(UNITS[kind][0], is_ordered=True), model)
    return PunctuatedSpec(join, ORDER, RESULTS)


def count_rows(results: Iterable[list[pa.Array]]) -> Counter[Any]:
    """Count the results of an epoch: both ids and both arrivals, or a punctuation."""
    found: Counter[Any] = Counter()
    for columns in results:
        chosen = (columns[at].to_pylist() for at in (0, N_LEFT - 1, N_LEFT, -1))
        found.update(zip(*chosen, strict=True))
    return found


def run_schedule(seed: int, kind: str, epochs: int = 14) -> tuple[list[Any], list[Any], int]:
    """Run a random schedule; return the rows of each epoch, those of one unit, and the number of changes."""
    rng, rules = random.Random(seed), replace(UNITS[kind][1], is_ordered=True)

    def draw() -> Model:
        models = (draw_model(rng, COUNT_WINDOW) for _ in range(100))
        return next(model for model in models if model.sees_all)

    first = draw()
    run, single = CrashingRun(build(kind, first), first, rules), LocalRun(build(kind, Split(1)))
    schedule, watermark, number = Schedule(rng, first), None, 0
    found, expected, beginnings = [], [], set()
    for epoch in range(epochs):
        if epoch in (1, 7) or rng.random() < 0.15:
            run.put(Request(model=Biclique((1, 1)) if rng.random() < 0.1 else draw()))
        batches = []
        for _ in Side:
            rows = schedule.draw_rows(10 * epoch, number)
            number += len(rows)
            batches.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
        found.append(count_rows(run.attempt(batches, watermark, crashes)))
        expected.append(count_rows(single.epoch(batches, watermark)))
        beginnings |= {one.since for one in run.offset.plan.membership}
        if rng.random() < 0.8:
            watermark = max(watermark or 0, 10 * epoch - rng.randint(2, 12)) or None
    return found, expected, len(beginnings) - 1


@pytest.mark.parametrize("kind", UNITS)
def test_random_schedules_with_crashes_keep_the_arrivals_of_one_unit(kind: str) -> None:
    n_changes = 0
    for seed in range(4):
        found, expected, n = run_schedule(seed, kind)
        assert found == expected, seed
        assert sum(expected, Counter())
        n_changes += n
    assert n_changes > 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNITS)
def test_many_random_schedules_with_crashes(kind: str) -> None:
    for seed in range(1000, 1100):
        found, expected, _ = run_schedule(seed, kind, epochs=25)
        assert found == expected, seed


def begin_at_zero(patch: pytest.MonkeyPatch) -> None:
    """New units do not add what had arrived before."""
    patch.setattr(Peers, "arrived", None)


def punctuate_everywhere(patch: pytest.MonkeyPatch) -> None:
    """The first unit of each generation writes punctuations."""
    patch.setattr(Peers, "is_newest", lambda self, epoch: True)


def store_at_once(patch: pytest.MonkeyPatch) -> None:
    """A coming generation stores new tuples, which the newest one stores too."""
    route = PlanRouter.route

    def route_to_store(self: PlanRouter, *given: Any) -> Any:
        coming = () if self.coming is None else self.coming[1]
        for slot, role, block in route(self, *given):
            yield slot, Role.BOTH if slot in coming else role, block

    patch.setattr(PlanRouter, "route", route_to_store)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("break_", [begin_at_zero, punctuate_everywhere, store_at_once])
def test_the_search_finds_broken_variants(
    monkeypatch: pytest.MonkeyPatch, break_: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_(monkeypatch)
    runs = (run_schedule(seed, TIME_WINDOW) for seed in range(8))
    assert any(found != expected for found, expected, _ in runs)
