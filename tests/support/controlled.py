"""Controlled runs that crash: an attempt of an epoch ends at some step, and the epoch runs again.

What was written to files before the crash stays: requests, published plans, marks of drained units. What the
state store would have committed is as it was before the epoch. The offset of the epoch is in Spark's log, so
all attempts have the same one.
"""

import random
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.support import oracle
from thetastream.control.change import Rules
from thetastream.control.offset import fold
from thetastream.control.request import Request
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, IndexSpec
from thetastream.local.controlled import ControlledRun
from thetastream.models import Biclique, Matrix, Ring, Split
from thetastream.models.base import Model

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
MAX_UNITS = 16
RULES = Rules(MAX_UNITS, ("hash", "range"))
SAVED = ("states", "members", "_stores", "_clock", "in_flight", "offset", "_notices", "counters")
"""What the state store and Spark's logs hold, which a crash sets back to the last commit."""


class CrashingRun(ControlledRun):
    """A controlled run whose epochs may be attempted several times."""

    def attempt(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None, crashes: Sequence[int]
    ) -> list[list[pa.Array]]:
        """Run one epoch after attempts that crash, each before the unit of the slot that ``crashes`` names.

        The number of slots means a crash behind the last unit, before the commit.
        """
        after = fold(self.offset, self.requests, self.drained, self._rules)
        for crash in (*crashes, None):
            saved = {name: deepcopy(getattr(self, name)) for name in SAVED}
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


def draw_model(rng: random.Random) -> Model:
    """Draw a model of two streams that may scale."""
    m, n = rng.randint(1, 3), rng.randint(1, 3)
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


def draw_request(rng: random.Random, model: Model) -> Request:
    """Draw a request: more or fewer units of the model, another model, or something that is refused."""
    other = draw_model(rng)
    if rng.random() < 0.15:
        return Request(sizes={rng.choice(("units", "cores", "nodes")): rng.choice((0, 99, 2))})
    if rng.random() < 0.6 and isinstance(model, type(other)):
        return Request(sizes={name: getattr(other, name) for name in model.sizes})
    return Request(model=other)


def run_schedule(seed: int, epochs: int = 14) -> tuple[Counter[Any], Counter[Any], list[int]]:
    """Run a random schedule.

    Return the pairs found, the pairs of the nested loop, and the version of the plan after each epoch.
    """
    rng = random.Random(seed)
    first = draw_model(rng)
    schedule = Schedule(rng, first)
    run = CrashingRun(TwoStreamSpec(UNIT, first), first, RULES)
    found: Counter[Any] = Counter()
    kept: tuple[list[Any], list[Any]] = ([], [])
    versions, number, watermark, late_us = [], 0, None, None
    for epoch in range(epochs):
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            run.put(draw_request(rng, run.offset.plan.newest.model))
        rows = []
        for side in Side:
            rows.append(schedule.draw_rows(10 * epoch, number))
            number += len(rows[-1])
            kept[side].extend(oracle.timely(rows[-1], late_us, "t"))
        crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
        batches = [pa.RecordBatch.from_pylist(one, schema=SCHEMA) for one in rows]
        for columns in run.attempt(batches, watermark, crashes):
            found.update(zip(columns[0].to_pylist(), columns[len(COLUMNS)].to_pylist(), strict=True))
        versions.append(run.offset.plan.version)
        late_us = watermark
        if rng.random() < 0.8:
            watermark = max(watermark or 0, 10 * epoch - rng.randint(2, 12)) or None
    return found, oracle.join(CONDITION, *kept), versions
