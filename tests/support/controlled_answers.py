"""Random schedules of joins that answer each tuple, while their units change and epochs crash.

The answers of each epoch must be those of one unit that sees all tuples and does not change. So neither the
bag of answers nor the epoch in which one is known depends on requests, models and crashes.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from tests.support import oracle
from tests.support.answer_cases import ANSWERING, flag_passing, read
from tests.support.answers import Answer, answers, nearest
from tests.support.controlled import (
    COLUMNS,
    CONDITION,
    MAX_UNITS,
    SCHEMA,
    UNIT,
    WINDOW,
    CrashingRun,
    Schedule,
)
from tests.support.local_run import LocalRun
from tests.support.strategies import Case
from tests.support.two_units import TwoUnits
from thetastream.core.columns import PASSES, RANKED
from thetastream.core.condition import TIME, Bound, Dimension, Domain
from thetastream.core.how import How, Nearest, Ranking, find_nearest
from thetastream.core.sides import Side
from thetastream.engine.answers.spec import AnswersSpec, NearestSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model
from thetastream.models.subgroups import Routing
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.request import Request

Finish = Callable[[Iterable[list[pa.Array]]], Iterator[list[pa.Array]]]
KINDS: dict[str, How] = {
    **ANSWERING,
    "nearest": find_nearest(Nearest(1, "abs(l.v - r.v)")),
    "nearest or alone": find_nearest(Nearest(2, "abs(l.v - r.v)", keep_unmatched=True)),
}
"""The kinds of joins that answer each tuple."""
WINDOWS = ((-WINDOW, WINDOW), (-WINDOW, 0), (0, WINDOW), (-3, 20), (3, 9))
"""Intervals of the left event time minus the right one."""
FAILS = 9
"""Tuples with this value fail the filter of their stream."""
END = 10_000
"""A watermark that decides every tuple."""
EPOCHS = 18
CHANGES = (1, 9)
"""Epochs with a request. Other epochs may have one too."""


@dataclass(frozen=True)
class AnswersQuery:
    """A join that answers each tuple."""

    how: How
    window: tuple[int, int]
    has_residual: bool = False
    """Whether a part of the condition is evaluated behind the units, and second units decide."""

    @property
    def ranking(self) -> Ranking | None:
        """How partners are ranked."""
        found = self.how.nearest
        return None if found is None else Ranking(found.k, Domain.INT, True, True, is_abs=True)

    @property
    def condition(self) -> Any:
        """The condition, with this window."""
        low, high = self.window
        window = Dimension(Side.LEFT, TIME, Bound(TIME, low), Bound(TIME, high))
        return replace(CONDITION, window=window)

    def open(self, model: Model, make_run: Callable[[Any], LocalRun] = LocalRun) -> tuple[LocalRun, Finish]:
        """Open the query under a model. The second value turns the results of an epoch into answers."""
        if not self.has_residual:
            return make_run(self._build(model)), iter
        case = Case(self.condition, UNIT.indexes, UNIT.archive_period_us, ())
        two = TwoUnits(case, self.how, model, is_chosen, self.ranking, make_run, MAX_UNITS)
        return two.first, two.decide

    def _build(self, model: Model) -> Any:
        join = TwoStreamSpec(replace(UNIT, condition=self.condition), model)
        if self.ranking is None:
            return AnswersSpec(join, self.how)
        return NearestSpec(join, self.how, self.ranking)

    def batch(self, side: Side, rows: list[dict[str, int]]) -> pa.RecordBatch:
        """Build the block of one stream. Tuples of preserved streams that fail the filter are part of it."""
        passes = {row["id"]: row["v"] != FAILS for row in rows}
        if side not in self.how.preserved:
            rows = [row for row in rows if passes[row["id"]]]
        batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        if side in self.how.preserved:
            batch = batch.append_column(PASSES, flag_passing(rows, passes))
        if self.ranking is not None:
            batch = batch.append_column(RANKED, batch.column("v"))
        if self.has_residual:
            names = [f"{'ab'[side]}_{name}" for name in COLUMNS]
            batch = batch.rename_columns([*names, *batch.schema.names[len(COLUMNS) :]])
        return batch

    def matches(self, a: oracle.Row, b: oracle.Row) -> bool:
        """Whether two tuples are partners."""
        passes = FAILS not in (a["v"], b["v"]) and (not self.has_residual or is_chosen(a["id"], b["id"]))
        return passes and oracle.holds(self.condition, a, b)

    def expect(self, left: list[oracle.Row], right: list[oracle.Row]) -> Counter[Answer]:
        """Find the answers by a nested loop over the tuples that are not late."""
        found = self.how.nearest
        if found is None:
            return answers(self.how.name, self.matches, left, right)
        return nearest(found.k, _measure_distance, found.keep_unmatched, self.matches, left, right)

    def count(self, results: Any) -> Counter[Answer]:
        """Count the answers of an epoch."""
        found: Counter[Answer] = Counter()
        for columns in results:
            found.update(read(self.how, columns, [len(COLUMNS)] * 2))
        return found


def is_chosen(a: int, b: int) -> bool:
    """The part of the condition that is evaluated behind the units, if there is one."""
    return (7 * a + 3 * b) % 5 < 3


def _measure_distance(a: oracle.Row, b: oracle.Row) -> float:
    return float(abs(a["v"] - b["v"]))


class Outcome(NamedTuple):
    """What a schedule has found."""

    epochs: list[Counter[Answer]]
    """The answers of each epoch."""
    expected: list[Counter[Answer]]
    """The answers of one unit in each epoch."""
    nested_loop: Counter[Answer]
    n_taken: int
    """How many generations have taken over."""

    @property
    def is_right(self) -> bool:
        """Whether the answers are those of one unit and of the nested loop."""
        return self.epochs == self.expected and sum(self.epochs, Counter()) == self.nested_loop


def draw_model(rng: random.Random, how: How) -> Model:
    """Draw a model whose units show each preserved tuple all its partners."""
    while True:
        rows, columns = rng.randint(1, 4), rng.randint(1, 4)
        groups = rng.randint(1, rows), rng.randint(1, columns)
        routings: tuple[Routing, ...] = ("auto", "hash", "range")
        routing = rng.choice(routings) if max(groups) > 1 else "auto"
        model = Matrix(rows, columns, groups, routing)
        if model.n_units <= 5 and all(map(model.sees_partners, how.preserved)):
            return model


def draw_request(rng: random.Random, run: CrashingRun, how: How) -> Request:
    """Draw a request: another matrix, the model of before, or something that is refused."""
    if rng.random() < 0.1:
        refused = (Biclique((1, 1)), Split(1), Split(2), Matrix(9, 9))
        return Request(model=rng.choice(refused))
    if rng.random() < 0.15:
        return Request(model=run.offset.plan.newest.model)
    return Request(model=draw_model(rng, how))


@dataclass
class AnswersSchedule:
    """A random run of one kind of join."""

    seed: int
    kind: str
    epochs: int = EPOCHS
    has_residual: bool = False
    ends: bool = False
    """Whether the units know at the end that no tuple comes any more, as with ``th.finish``."""
    kept: list[list[oracle.Row]] = field(default_factory=lambda: [[], []])

    def run(self) -> Outcome:
        """Run it, and the same tuples at one unit."""
        rng, how = random.Random(self.seed), KINDS[self.kind]
        query = AnswersQuery(how, rng.choice(WINDOWS), self.has_residual)
        first = Split(1) if rng.random() < 0.1 else draw_model(rng, how)
        rules = Rules(MAX_UNITS, ("hash", "range"), preserved=how.preserved)
        run, finish = query.open(first, lambda spec: CrashingRun(spec, first, rules))
        single, finish_single = query.open(Matrix(1, 1))
        assert isinstance(run, CrashingRun)
        schedule, watermark, late_us, number = Schedule(rng, first), None, None, 0
        run.ends_at_us = single.ends_at_us = END if self.ends else None
        found, expected, beginnings = [], [], set()
        for epoch in range(self.epochs + 2):
            is_last = epoch >= self.epochs
            watermark = END if is_last else watermark
            if epoch in CHANGES or rng.random() < 0.1:
                run.put(draw_request(rng, run, how))
            batches = []
            for side in Side:
                rows = [] if is_last else schedule.draw_rows(10 * epoch, number)
                number += len(rows)
                self.kept[side] += oracle.timely(rows, late_us, "t")
                batches.append(query.batch(side, rows))
            crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
            found.append(query.count(finish(run.attempt(batches, watermark, crashes))))
            expected.append(query.count(finish_single(single.epoch(batches, watermark))))
            beginnings |= {one.since for one in run.offset.plan.membership}
            late_us = watermark
            if rng.random() < 0.8:
                watermark = max(watermark or 0, 10 * epoch - rng.randint(2, 12)) or None
        return Outcome(found, expected, query.expect(*self.kept), len(beginnings) - 1)
