"""A join replayed in one process: exact counters of every unit, and the CPU time each of them took.

The CPU time of the busiest unit bounds what units on cores of their own could do:

    tuples/s <= tuples / max over units of its CPU seconds

It is a bound, not a throughput: no exchange, no state store, no Spark. Its worth is that it does not depend
on how many cores this machine has.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bench.core.internals import Counters, LocalJoin, Model
from bench.core.query import Query


@dataclass
class Step:
    """What an epoch did: its results, and per unit its counters and CPU seconds."""

    volume: int
    """Tuples of both streams so far."""
    results: int
    units: list[Counters]
    cpu_s: list[float]

    def total(self, counter: str) -> int:
        return sum(getattr(unit, counter) for unit in self.units)


def total(steps: Iterable[Step], counter: str) -> int:
    return sum(step.total(counter) for step in steps)


def replay(query: Query, model: Model, epochs: int) -> Iterator[Step]:
    join = LocalJoin(query.unit_spec(), model)
    volume = 0
    for left, right, watermark in query.epochs(epochs):
        results, cpu_s = 0, []
        for number, inbox in enumerate(join.deliver([left, right], watermark)):
            began = time.process_time()
            results += sum(len(columns[0]) for columns in join.run(number, inbox))
            cpu_s.append(time.process_time() - began)
        volume += left.num_rows + right.num_rows
        yield Step(volume, results, list(join.counters), cpu_s)


def until(steps: Iterable[Step], is_over: Callable[[list[Step]], bool]) -> list[Step]:
    """Steps up to the first that ends a run."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if is_over(found):
            break
    return found


def cpu_of_units(replays: list[list[Step]], epochs: range) -> list[float]:
    """CPU seconds of each unit in some epochs; of several replays the least, because what disturbs only
    adds."""
    least = np.min([[steps[epoch].cpu_s for epoch in epochs] for steps in replays], axis=0)
    return [float(seconds) for seconds in least.sum(axis=0)]


def tuples_in(steps: list[Step], epochs: range) -> int:
    return steps[epochs[-1]].volume - steps[epochs[0] - 1].volume


def bound(replays: list[list[Step]], epochs: range) -> dict[str, float]:
    """What the busiest unit allows, and the CPU of all."""
    cpu_s, tuples = cpu_of_units(replays, epochs), tuples_in(replays[0], epochs)
    return {"bound_tuples_per_s": tuples / max(cpu_s), "cpu_us_per_tuple": 1e6 * sum(cpu_s) / tuples}


def held(steps: list[Step]) -> list[int]:
    """Tuples each unit holds after the steps."""
    stored = np.array([[unit.stored - unit.expired for unit in step.units] for step in steps])
    return [int(n) for n in stored.sum(axis=0)]


def bytes_held(step: Step) -> list[int]:
    return [unit.mlv_bytes for unit in step.units]
