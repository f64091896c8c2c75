"""The steps of a Spark task that looks tuples up in a staged table.

tuples -> partition of each tuple -+    only if the table is larger than the cache of a host
             exchange <------------+
tuples -> lookup in the runs that they touch -> results, or candidates -> answers
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.columns import PARTITION
from thetastream.engine.counters import Counters
from thetastream.engine.decided_lookup import LookupDecider
from thetastream.engine.lookup import PROBES_AT_ONCE, Lookup, select_passing
from thetastream.engine.table_partitions import Partitioning
from thetastream.lowering.physical import SidePlan
from thetastream.runtime.emit import build_counters_batch, count_emitted, gather_batches
from thetastream.runtime.flow import Output
from thetastream.runtime.opened_table import open_table, read_extents
from thetastream.runtime.table_epochs import StagedTable, choose_version
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import EpochVersion
from thetastream.runtime.task_facts import ReadTask

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class LookupFlow:
    """A planned lookup of a stream in a table."""

    name: str
    """The name of the join in a query. It stays the same when the query starts again."""
    lookup: Lookup
    sides: tuple[SidePlan, SidePlan]
    """How the tuples of the stream, and the rows of the table, become blocks."""
    output: Output
    """The columns of results, and those that the user gets."""
    candidates: Output | None = None
    """The candidate pairs that leave the lookup, if Spark evaluates a part of the condition behind it, and
    tuples are answered."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What the user wrote, by the names of the parts of an identity."""

    @property
    def table(self) -> SidePlan:
        """How the rows of the table become blocks."""
        return self.sides[self.lookup.side.other]

    @property
    def stream(self) -> SidePlan:
        """How the tuples of the stream become blocks."""
        return self.sides[self.lookup.side]


@dataclass
class LookupCounters(Counters):
    """The work of a task that looks tuples up. It receives each tuple once, and stores none."""

    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    """By alias, the version of the table that the task read."""

    def read_table(self, chosen: EpochVersion) -> None:
        """Count a table."""
        self.tables[chosen.alias] = {
            "version": chosen.version.number,
            "rows": chosen.version.n_rows,
            "bytes": chosen.version.nbytes,
            "staged_s": chosen.version.staged_s,
            "age_s": round(max(0.0, time.time() - chosen.fresh_s), 3),
            "refused": chosen.refused,
            "used_bytes": 0,
        }

    def receive(self, batch: pa.RecordBatch) -> None:
        """Count tuples that are looked up."""
        self.received += batch.num_rows
        self.received_bytes += batch.nbytes
        self.probed += batch.num_rows

    def count_used(self, alias: str, nbytes: int) -> None:
        """Count the bytes of the runs of a table in which tuples of the task were searched."""
        self.tables[alias]["used_bytes"] = nbytes


def make_partition_step(
    flow: LookupFlow, folder: TableFolder, own: StagedTable, *, read_task: ReadTask
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that adds the column ``PARTITION`` to tuples: where they are looked up.

    It is NULL for tuples that can have no partner. All tasks of an epoch read one version, so they divide the
    tuples alike, also if the epoch runs again.
    """
    plan, partitioning = flow.lookup.plan, Partitioning.of(flow.lookup.plan)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        tuples = map(drop_fillers, batches)
        first = next(tuples, None)
        if first is None:
            return
        version = choose_version(folder, read_task(), flow.name, flow.table.alias, own).version
        extents, edges = read_extents(version, plan), np.zeros(0, dtype=np.int64)
        if partitioning is not None and extents is not None:
            edges = partitioning.find_edges(extents, own.n_partitions)
        for batch in chain([first], tuples):
            chosen, has_partition = np.zeros(batch.num_rows, np.int32), np.zeros(batch.num_rows, np.bool_)
            passing, places = select_passing(batch)
            if partitioning is not None and extents is not None:
                chosen[places] = partitioning.choose(plan, passing, edges)
                has_partition[places] = True
            yield batch.append_column(pa.field(PARTITION, pa.int32()), pa.array(chosen, mask=~has_partition))

    return run


def make_lookup_step(
    flow: LookupFlow,
    folder: TableFolder,
    own: StagedTable,
    payload: pa.Schema,
    results: pa.Schema,
    *,
    read_task: ReadTask,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that looks tuples of a stream up in a table.

    The last row that a task returns has its counters.

    Parameters
    ----------
    flow : LookupFlow
    folder : TableFolder
    own : StagedTable
        The table as it was when the query was built.
    payload, results : pyarrow.Schema
        The columns of the table, and those of results, of which the last one has counters.
    read_task : callable
        Reads the facts of the Spark task that runs the step.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        tuples = gather(map(drop_fillers, batches), PROBES_AT_ONCE)
        first = next(tuples, None)
        if first is None:
            return
        task, counters = read_task(), LookupCounters()
        chosen = choose_version(folder, task, flow.name, flow.table.alias, own)
        counters.read_table(chosen)
        table = open_table(folder, chosen.version, flow.lookup.plan, payload, own.n_partitions > 1)
        for batch in chain([first], tuples):
            runs = table.meet(flow.lookup, batch)
            pieces = count_emitted(flow.lookup.answer(batch, runs, counters.probed, counters), counters)
            counters.receive(batch)
            yield from gather_batches(pieces, results)
        counters.count_used(chosen.alias, table.used_bytes)
        yield build_counters_batch(task.partition, counters, results)

    return run


def make_deciding_step(flow: LookupFlow, results: pa.Schema) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that answers tuples, from the candidate rows that Spark has left.

    Parameters
    ----------
    flow : LookupFlow
        One with candidates.
    results : pyarrow.Schema
        The columns of results.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        decider = LookupDecider(flow.lookup)
        pieces = (columns for rows in map(drop_fillers, batches) for columns in decider.answer(rows))
        return gather_batches(pieces, results)

    return run
