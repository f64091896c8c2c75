"""Controlled runs that crash: an attempt of an epoch ends at some step, and the epoch runs again.

What was written to files before the crash stays: requests, published plans, marks of drained units. What the
state store would have committed is as it was before the epoch. The offset of the epoch is in Spark's log, so
all attempts have the same one.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from tests.support import oracle
from tests.support.controlled_run import ControlledRun
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.core.spans import Rows
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, IndexSpec
from thetastream.models import Biclique, Chain, Matrix, Ring, Split
from thetastream.models.base import Model
from thetastream.runtime.control.change import apply_requests
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.request import Request

WINDOW = 12
COLUMNS = ("id", "t", "k", "v")
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])
SIDES = tuple(
    SideSpec(alias, COLUMNS, keys=(Key("k", Domain.INT), Key("v", Domain.INT)), time=Key("t", Domain.INT))
    for alias in "lr"
)
CONDITION = Condition(
    (SIDES[0], SIDES[1]),
    (Equality(0, 0),),
    (Dimension(Side.LEFT, 1, Bound(1, -4), Bound(1, 4)),),
    Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW), Bound(TIME, WINDOW)),
)
UNIT = UnitSpec(CONDITION, (IndexSpec(Hash(), (0,)),) * 2, 2)
COUNTS = (9, 14)
COUNTED_CONDITION = replace(CONDITION, window=None)
COUNTED_UNIT = replace(UNIT, condition=COUNTED_CONDITION, archive_period_us=None, counts=COUNTS)
MAX_UNITS = 16
LAST_EPOCHS = 1000
"""How many epochs without tuples a schedule may need until no message is in flight. If many units leave, each
of them sends one tuple of each stream in an epoch."""
MOST_MOVED = 7
"""How many tuples of each stream a unit that leaves sends in an epoch at most."""
TIME_WINDOW, COUNT_WINDOW, HANDSHAKE = "time", "count", "handshake"
FULL_HISTORY, ENDLESS_RIGHT, RELOCATION = "full history", "endless right", "relocation"
TASKS, TASKS_ON_A_CHAIN = "tasks", "tasks on a chain"
"""The kinds of schedules: joins with a window of event time, with count windows, on a handshake chain,
without a window, with right tuples that never expire, with rings that move the tuples of a window, and of two
tasks."""
RULES = Rules(MAX_UNITS, ("hash", "range"))
COUNTED_RULES = replace(RULES, counts_tuples=True)
MOVING_CONDITIONS = {
    FULL_HISTORY: COUNTED_CONDITION,
    ENDLESS_RIGHT: replace(CONDITION, window=Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW), None)),
    RELOCATION: CONDITION,
}
"""The conditions whose stored tuples move."""


def make_moving(kind: str, model: Model) -> MovingSpec:
    """Make a query whose stored tuples move, a few in each epoch."""
    condition = MOVING_CONDITIONS[kind]
    period = None if condition.window is None else UNIT.archive_period_us
    unit = replace(UNIT, condition=condition, archive_period_us=period)
    return MovingSpec(TwoStreamSpec(unit, model), MOST_MOVED)


TASK_CONDITIONS = (
    CONDITION,
    replace(CONDITION, window=Dimension(Side.LEFT, TIME, Bound(TIME, -3), Bound(TIME, 5))),
)
"""The conditions of the two tasks."""


def make_tasks(model: Model) -> SharedTasksSpec:
    """Make two tasks with different windows on one exchange."""
    return SharedTasksSpec(
        tuple(
            TaskSpec(name, HandshakeSpec(condition, UNIT.indexes, 2, model))
            if isinstance(model, Chain)
            else TaskSpec(name, TwoStreamSpec(replace(UNIT, condition=condition), model))
            for name, condition in zip(("wide", "narrow"), TASK_CONDITIONS, strict=True)
        )
    )


KINDS: dict[str, tuple[Callable[[Any], EngineSpec], Rules]] = {
    TIME_WINDOW: (partial(TwoStreamSpec, UNIT), RULES),
    COUNT_WINDOW: (partial(TwoStreamSpec, COUNTED_UNIT), COUNTED_RULES),
    HANDSHAKE: (partial(HandshakeSpec, CONDITION, UNIT.indexes, 2), replace(RULES, only_sizes=True)),
    FULL_HISTORY: (
        partial(make_moving, FULL_HISTORY),
        replace(RULES, never_expires=(True, True), moves_tuples=True),
    ),
    ENDLESS_RIGHT: (
        partial(make_moving, ENDLESS_RIGHT),
        replace(RULES, never_expires=(False, True), moves_tuples=True),
    ),
    RELOCATION: (partial(make_moving, RELOCATION), replace(RULES, moves_tuples=True)),
    TASKS: (make_tasks, replace(RULES, routings=())),
    TASKS_ON_A_CHAIN: (make_tasks, replace(RULES, routings=(), only_sizes=True)),
}
"""For each kind, the query under a model, and the rules."""
SAVED = ("states", "members", "_stores", "_clock", "in_flight", "offset", "_notices", "_told", "counters")
"""What the state store and Spark's logs hold, which a crash sets back to the last commit."""


class CrashingRun(ControlledRun):
    """A controlled run whose epochs may be attempted several times."""

    def attempt(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None, crashes: Sequence[int]
    ) -> list[list[pa.Array]]:
        """Run one epoch after attempts that crash, each before the unit of the slot that ``crashes`` names.

        The number of slots means a crash behind the last unit, before the commit.
        """
        after = apply_requests(self.offset, self.requests, self.drained, self._rules, self.arrived)
        for crash in (*crashes, None):
            saved = {} if crash is None else self._save()
            self.read_offset(after)
            found: list[list[pa.Array]] = []
            for slot, inbox in enumerate(self.deliver(batches, watermark_us)):
                if slot == crash:
                    break
                found += self.run(slot, inbox)
            if crash is None:
                return found
            for name, value in saved.items():
                setattr(self, name, value)
        raise AssertionError

    def _save(self) -> dict[str, Any]:
        """Copy what a crash sets back. Runs and blocks never change, so the copy shares them."""
        held = [value for store in self._stores for parts in vars(store).values() for value in parts.values()]
        held += [message.block for message in self.in_flight]
        shared = {id(value): value for value in held}
        return {name: deepcopy(getattr(self, name), dict(shared)) for name in SAVED}


@dataclass
class Schedule:
    """A random run: tuples, watermarks, requests and crashes."""

    rng: random.Random
    first: Model
    epochs: int = 14

    def draw_rows(self, now: int, next_id: int) -> list[dict[str, int]]:
        """Draw the tuples of one stream and epoch: some are out of order, some are late."""
        rng = self.rng
        n = rng.choice((0, 3, 6, 12))
        return [
            {
                "id": next_id + i,
                "t": now + rng.randint(-14, 6),
                "k": rng.randint(0, 2),
                "v": rng.randint(0, 9),
            }
            for i in range(n)
        ]


def draw_model(rng: random.Random, kind: str) -> Model:
    """Draw a model of two streams that may scale."""
    m, n = rng.randint(1, 3), rng.randint(1, 3)
    if kind in (HANDSHAKE, TASKS_ON_A_CHAIN):
        return Chain(m + rng.randint(0, 1), rng.choice((1, 3, "auto")), rng.choice((None, 0, 2)))
    if kind == COUNT_WINDOW:
        return rng.choice((Split(m), Split(m + 1), Ring(m), Ring(m, Rows(n))))
    if kind == TASKS:
        return rng.choice((Biclique((m, n)), Split(m), Matrix(m, n)))
    if kind == RELOCATION and rng.random() < 0.7:
        return Ring(m + n, moves_tuples=True)
    return rng.choice(
        (
            Biclique((m, n)),
            Biclique((m, n)),
            Biclique((m + 1, n), (2, 1)),
            Biclique((m, n + 1), (m, 2), "range"),
            Biclique(((m, n + 1), (n, m + 1))),
            Split(m),
            Matrix(m, n),
            Ring(m),
        )
    )


def draw_request(rng: random.Random, model: Model, kind: str) -> Request:
    """Draw a request: more or fewer units of the model, another model, or something that is refused."""
    # Most other models are refused with count windows.
    may_be_refused = kind in (COUNT_WINDOW, TASKS) and rng.random() < 0.1
    other = draw_model(rng, TIME_WINDOW if may_be_refused else kind)
    if rng.random() < 0.15:
        return Request(sizes={rng.choice(("units", "cores", "nodes")): rng.choice((0, 99, 2))})
    if isinstance(model, Biclique) and rng.random() < 0.3:
        # As a policy scales one subgroup.
        sizes = [len(units) for units in model.groups]
        sizes[rng.randrange(len(sizes))] = rng.randint(1, 3)
        resized = model.resized(sizes)
        chance = random.Random(repr(sizes))
        if chance.random() < 0.5:
            drawn = tuple(chance.choice((1, 1, 2.5, 9)) for _ in range(sum(sizes)))
            resized = replace(resized, capacities=drawn)
        return Request(model=resized)
    if isinstance(model, type(other)) and (isinstance(model, Chain) or rng.random() < 0.6):
        return Request(sizes={name: getattr(other, name) for name in model.sizes})
    return Request(model=other)


def run_schedule(
    seed: int, epochs: int = 14, kind: str = TIME_WINDOW
) -> tuple[Counter[Any], Counter[Any], list[int]]:
    """Run a random schedule of one of ``KINDS``.

    Return the pairs found, the pairs of the nested loop, and the version of the plan after each epoch.
    """
    rng = random.Random(seed)
    first = draw_model(rng, kind)
    schedule = Schedule(rng, first)
    make, rules = KINDS[kind]
    run = CrashingRun(make(first), first, rules)
    found: Counter[Any] = Counter()
    kept: list[list[list[oracle.Row]]] = []
    versions, number, watermark, late_us = [], 0, None, None
    for epoch in range(epochs):
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            run.put(draw_request(rng, run.offset.plan.newest.model, kind))
        if kind == COUNT_WINDOW and epoch == 2:
            run.put(Request(model=Split(5)))  # Most other requests are refused, because few models can count.
        rows = []
        for _ in Side:
            rows.append(schedule.draw_rows(10 * epoch, number))
            number += len(rows[-1])
        kept.append([oracle.timely(one, late_us, "t") for one in rows])
        crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
        batches = [pa.RecordBatch.from_pylist(one, schema=SCHEMA) for one in rows]
        for columns in run.attempt(batches, watermark, crashes):
            found.update(read_results(columns))
        versions.append(run.offset.plan.version)
        late_us = watermark
        if rng.random() < 0.8:
            watermark = max(watermark or 0, 10 * epoch - rng.randint(2, 12)) or None
    for _ in range(LAST_EPOCHS):
        if not (run.in_flight or run._is_waiting):
            return found, find_expected(kept, kind), versions
        for columns in run.attempt([], watermark, [rng.randint(0, MAX_UNITS)]):
            found.update(read_results(columns))
    raise AssertionError("messages never end")


def read_results(columns: Sequence[pa.Array]) -> Iterator[tuple[int, ...]]:
    """Read the results of a unit: the ids of each pair, behind the number of its task if there are tasks."""
    *task, left, _, _, _, right, _, _, _ = columns
    return zip(*(column.to_pylist() for column in (*task, left, right)), strict=True)


def find_expected(epochs: list[list[list[oracle.Row]]], kind: str) -> Counter[Any]:
    """Find the pairs of the tuples that are not late: by a nested loop, or in sequence for count windows."""
    if kind == COUNT_WINDOW:
        meetings = oracle.replay(partial(oracle.holds, COUNTED_CONDITION), epochs, COUNTS, "t")
        return Counter((one.left, one.right) for one in meetings)
    left, right = (list(chain.from_iterable(streams)) for streams in zip(*epochs, strict=True))
    if kind in (TASKS, TASKS_ON_A_CHAIN):
        pairs = [oracle.join(condition, left, right) for condition in TASK_CONDITIONS]
        return Counter({(task, *pair): n for task, each in enumerate(pairs) for pair, n in each.items()})
    return oracle.join(MOVING_CONDITIONS.get(kind, CONDITION), left, right)
