"""Replays a query over the load curve, with fixed units or with units that a policy adds and removes.

Plans, notices, routers and units are those of a controlled query. The policy sees event time in place of the
clock, because time is compressed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.core.internals import (
    ControlledRun,
    LoadReader,
    Request,
    Rules,
    TwoStreamSpec,
    UnitLoad,
    apply_requests,
)
from bench.core.query import Query
from bench.core.replay import Batches, Step
from bench.papers.bistream.load_curve import EPOCH_S, cut_epochs
from thetastream.models import Biclique
from thetastream.runtime.control.policies import Policy

RULES = Rules(max_units=24)


@dataclass(frozen=True)
class Change:
    """A change of the units for lineitem."""

    asked: int
    """The epoch behind which the policy asked."""
    since: int
    """The first epoch in which the new units stored tuples."""
    added: int
    """The number of units that were added; negative if units were removed."""


@dataclass
class ScaledRun:
    """What was seen of a query, epoch by epoch."""

    steps: list[Step] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    """The number of units that store new tuples of lineitem."""
    asked: list[int] = field(default_factory=list)
    """The epochs behind which the policy asked for other units."""

    def list_changes(self) -> list[Change]:
        """List the changes of the units."""
        found = []
        for asked in self.asked:
            before = self.units[asked]
            later = range(asked + 1, len(self.units))
            since = next(epoch for epoch in later if self.units[epoch] != before)
            found.append(Change(asked, since, self.units[since] - before))
        return found

    def count_stored_again(self) -> int:
        """Count the tuples that were stored more than once, as tuples that move would be."""
        return sum(step.total("stored") for step in self.steps) - self.steps[-1].volume


def replay_curve(query: Query, units: int, policy: Policy | None = None, since: int = 0) -> ScaledRun:
    """Replay the whole curve with one unit for suppliers and ``units`` for lineitem.

    The policy is followed from the epoch ``since`` on. Without a policy, the units are fixed.
    """
    model = Biclique((1, units))
    run = ControlledRun(TwoStreamSpec(query.unit_spec(), model), model, RULES)
    decider = None if policy is None else policy.begin()
    reader, found, volume = LoadReader(), ScaledRun(), 0
    for epoch, (batches, watermark) in enumerate(_list_inputs(query)):
        run.read_offset(apply_requests(run.offset, run.requests, run.drained, RULES))
        volume += sum(batch.num_rows for batch in batches if batch is not None)
        step = Step(volume)
        step.run(run, batches, watermark)
        found.steps.append(step)
        found.units.append(run.plan.newest.model.n_units - 1)
        reports = [
            UnitLoad(slot, unit.mlv_bytes, seconds)
            for slot, (unit, seconds) in enumerate(zip(step.units, step.cpu_s, strict=True))
        ]
        load = reader.read((epoch + 1) * EPOCH_S, reports, run.offset.plan)
        sizes = decider.decide(load) if decider is not None and epoch >= since else None
        if sizes is not None:
            found.asked.append(epoch)
            run.put(Request(sizes={"units": sizes}))
    return found


def _list_inputs(query: Query) -> Iterator[tuple[Batches, int | None]]:
    """Yield the new tuples of each epoch and its watermark, the older one of the newest event times."""
    watermark, streams = None, cut_epochs(query)
    for tables in zip(*streams.values(), strict=True):
        yield (
            [table.combine_chunks().to_batches()[0] if table.num_rows else None for table in tables],
            watermark,
        )
        if all(table.num_rows for table in tables):
            newest = [table.column("ts")[-1].value for table in tables]
            watermark = min(newest) - 1
