"""Local runs of every engine for tests. They yield pairs of batches instead of lists of columns."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tests.support.local_run import LocalRun
from thetastream.core.blocks import Matches
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.handshake.worker import HandshakeWorker
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models.base import Model


def as_matches(columns: list[pa.Array], names: tuple[Sequence[str], Sequence[str]]) -> Matches:
    """Convert columns of results to a batch of left tuples and a batch of right tuples."""
    left, right = names
    n = len(left)
    return Matches(
        pa.RecordBatch.from_arrays(columns[:n], names=list(left)),
        pa.RecordBatch.from_arrays(columns[n:], names=list(right)),
    )


def names_of(unit: UnitSpec) -> tuple[list[str], list[str]]:
    """List the columns of the matches of a two-stream query."""
    left, right = ([*side.columns, *(["o"] if unit.is_ordered else [])] for side in unit.condition.sides)
    return left, right


class LocalJoin(LocalRun):
    """A two-stream join that runs in this process."""

    def __init__(self, unit: UnitSpec, model: Model) -> None:
        super().__init__(TwoStreamSpec(unit, model))
        self._names = names_of(unit)

    def epoch(  # type: ignore[override]
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, watermark_us: int | None = None
    ) -> Iterator[Matches]:
        for columns in super().epoch([left, right], watermark_us):
            yield as_matches(columns, self._names)


class LocalChain(LocalRun):
    """A handshake chain that runs in this process."""

    def __init__(self, spec: HandshakeSpec) -> None:
        super().__init__(spec)
        left, right = spec.condition.sides
        self._names = left.columns, right.columns
        self.blocks = [0] * spec.n_units
        """For each worker, its block size in the last epoch."""

    def open(self, slot: int) -> HandshakeWorker:
        worker = super().open(slot)
        assert isinstance(worker, HandshakeWorker)
        self.blocks[slot] = worker.block
        return worker

    def epoch(  # type: ignore[override]
        self,
        left: pa.RecordBatch | None = None,
        right: pa.RecordBatch | None = None,
        watermark_us: int | None = None,
    ) -> Iterator[Matches]:
        for columns in super().epoch([left, right], watermark_us):
            yield as_matches(columns, self._names)

    def drain(self, watermark_us: int | None = None) -> Iterator[Matches]:  # type: ignore[override]
        while self.in_flight or self._is_waiting:
            yield from self.epoch(None, None, watermark_us)


class LocalMultiway(LocalRun):
    """A multi-way join that runs in this process."""

    @property
    def partial_results(self) -> list[PartialResults]:
        """The partial results in flight."""
        return [PartialResults.from_message(message) for message in self.in_flight]


class LocalTasks(LocalRun):
    """Several join tasks that run in this process."""

    def __init__(self, specs: Sequence[TaskSpec]) -> None:
        super().__init__(SharedTasksSpec(tuple(specs)))
        self._tasks = specs

    def epoch(  # type: ignore[override]
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, watermark_us: int | None = None
    ) -> Iterator[tuple[str, Matches]]:
        for number, *columns in super().epoch([left, right], watermark_us):
            task = self._tasks[number[0].as_py()]
            left, right = task.join.condition.sides
            yield task.name, as_matches(columns, (left.columns, right.columns))

    def drain(  # type: ignore[override]
        self, watermark_us: int | None = None
    ) -> Iterator[tuple[str, Matches]]:
        while self.in_flight or self._is_waiting:
            yield from self.epoch(None, None, watermark_us)


__all__ = ["LocalChain", "LocalJoin", "LocalMultiway", "LocalTasks"]
