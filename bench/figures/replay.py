"""A join replayed in one process: exact counters of every unit, and the CPU time each of them took.

The CPU time of the busiest unit bounds what units on cores of their own could do:

    tuples/s <= tuples / max over units of its CPU seconds

It is a bound, not a throughput: no exchange, no state store, no Spark. Its worth is that it does not depend
on how many cores this machine has.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.figures.query import Query
from thetastream.joiner.unit import Counters
from thetastream.local import LocalJoin
from thetastream.models.base import Model
from thetastream.types import Side


@dataclass(frozen=True)
class Step:
    """The state of things after an epoch."""

    volume: int
    """Tuples of both streams so far."""
    results: int
    """Of this epoch."""
    units: list[Counters]
    cpu_s: list[float]
    """Per unit, of this epoch."""

    def total(self, counter: str) -> int:
        """A counter over all units."""
        return sum(getattr(unit, counter) for unit in self.units)


def replay(query: Query, model: Model, epochs: int, counts: tuple[int, int] | None = None) -> Iterator[Step]:
    """Run a query in ``epochs`` equal parts, with the watermark that streams in order have."""
    join = LocalJoin(query.unit_spec(counts), model)
    volume, watermark = 0, None
    for left, right in zip(*(query.cut(side, epochs) for side in Side), strict=True):
        results, cpu_s = 0, []
        for number, inbox in enumerate(join.deliver(left, right)):
            began = time.process_time()
            for matches in join.run(number, inbox, watermark):
                results += matches.left.num_rows
            cpu_s.append(time.process_time() - began)
        volume += left.num_rows + right.num_rows
        watermark = query.watermark_us(left, right, watermark)
        yield Step(volume, results, list(join.counters), cpu_s)


def cpu_of_units(replays: list[list[Step]], epochs: range) -> list[float]:
    """CPU seconds of each unit in some epochs; of several replays the least, because what disturbs only
    adds."""
    n_units = len(replays[0][0].units)
    return [
        sum(min(steps[epoch].cpu_s[unit] for steps in replays) for epoch in epochs) for unit in range(n_units)
    ]


def held(steps: list[Step]) -> list[int]:
    """Tuples each unit holds after the steps."""
    stored = np.array([[unit.stored - unit.expired for unit in step.units] for step in steps])
    return [int(n) for n in stored.sum(axis=0)]
