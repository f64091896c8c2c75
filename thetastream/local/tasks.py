"""Several join tasks run epoch by epoch in this process: the same code as on Spark, less the exchange."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from thetastream.joiner.clock import BEFORE
from thetastream.joiner.segment import MemoryStore, SegmentStore
from thetastream.joiner.tasks import TasksCounters, TaskSpec, TasksState, TasksUnit
from thetastream.joiner.unit import Matches
from thetastream.local.runner import deliver
from thetastream.models.base import Model


class LocalTasks:
    """State of all tasks at all units, one epoch at a time.

    Parameters
    ----------
    specs : sequence of TaskSpec
        The tasks.
    model : Model
        The router of all of them.
    """

    def __init__(self, specs: Sequence[TaskSpec], model: Model) -> None:
        self._specs = specs
        self._model = model
        self._stores: list[dict[str, SegmentStore]] = [
            {spec.name: MemoryStore() for spec in specs} for _ in range(model.n_units)
        ]
        self._states = [TasksState() for _ in range(model.n_units)]
        self._clock = BEFORE
        self.counters = [TasksCounters() for _ in range(model.n_units)]
        """Per unit, of the last epoch."""

    def epoch(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, watermark_us: int | None = None
    ) -> Iterator[tuple[str, Matches]]:
        """Run one epoch over all units: matches with their task's name; parameters as ``LocalJoin.epoch``."""
        self._clock = self._clock.then(watermark_us)
        for slot, inbox in enumerate(deliver(self._model, (left, right))):
            unit = TasksUnit(self._specs, self._model, slot, self._states[slot], self._stores[slot])
            for number, matches in unit.epoch(inbox, self._clock):
                yield self._specs[number].name, matches
            # As the manifest has it.
            self._states[slot] = TasksState.from_json(unit.state.as_json())
            self.counters[slot] = unit.counters
