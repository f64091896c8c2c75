"""Loads that units publish: which of them routers of an epoch read, and what a routing step drops by them."""

import json

import numpy as np
import pytest
from pyspark import cloudpickle

from tests.unit.engine.test_shedding import CONDITION, UNIT, make_batch
from thetastream.core import columns
from thetastream.core.columns import BLOCK, HEADER, KIND, ORIGIN, SHED, STREAM
from thetastream.core.columns import UNIT as UNIT_KEY
from thetastream.core.errors import StateError
from thetastream.core.identity import Part
from thetastream.core.shed import Shed
from thetastream.core.sides import Role
from thetastream.engine.inbox import Inbox, ShedReport
from thetastream.engine.semantic_shedding import CELLS, CellCounts
from thetastream.engine.shedding import Shedding
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Biclique
from thetastream.runtime.choice import FittedSpec, find_unit_keys
from thetastream.runtime.epoch import Coordination
from thetastream.runtime.flow import Choice, Fitted
from thetastream.runtime.inbox_rows import COLUMNS, take_in
from thetastream.runtime.routing_step import make_routing_step
from thetastream.runtime.shed_loads import Loads, ShedLoads
from thetastream.runtime.task_facts import TaskFacts


@pytest.fixture
def loads(tmp_path):
    return Loads(str(tmp_path), "loads-q-j")


def test_routers_read_the_newest_load_of_each_unit_before_their_epoch(loads):
    assert loads.find(5) is None
    for unit, epoch, load in [(0, 3, 900), (0, 4, 100), (1, 2, 300), (1, 5, 5000), (0, 5, 7000)]:
        loads.publish(unit, epoch, load)
    assert [loads.find(epoch) for epoch in (2, 3, 4, 5, 6)] == [None, 300, 900, 300, 7000]


def test_the_lag_is_that_of_the_newest_epoch(loads):
    for unit, epoch, load in [(0, 3, 900), (1, 3, 200), (1, 4, 100)]:
        loads.publish(unit, epoch, load)
    assert [loads.find(epoch, of_one_epoch=True) for epoch in (3, 4, 5)] == [None, 900, 100]


def test_pruning_changes_nothing_that_an_epoch_or_its_repetition_reads(loads, tmp_path):
    for epoch in range(6):
        for unit in range(3):
            if (epoch + unit) % 2 == 0:
                loads.publish(unit, epoch, 10 * epoch + unit)
        before = loads.find(epoch), loads.find(epoch + 1)
        loads.prune(epoch)
        assert (loads.find(epoch), loads.find(epoch + 1)) == before
    assert len(list((tmp_path / "loads-q-j").iterdir())) <= 6


def test_routers_read_the_newest_counts_of_cells_before_their_epoch(loads, tmp_path):
    counts = CellCounts.begin()
    for epoch in (2, 4):
        counts = counts.add([ShedReport(0, arrived=[epoch] * CELLS, kept=[1] * CELLS)])
        loads.publish_cells(epoch, counts)
    assert loads.find_cells(2) is None
    assert [loads.find_cells(epoch).arrived[0, 0] for epoch in (3, 4, 5)] == [2, 2, 5.6]
    loads.prune(4)
    assert [loads.find_cells(epoch).arrived[0, 0] for epoch in (4, 5)] == [2, 5.6]
    loads.prune(5)
    assert [path.name for path in (tmp_path / "loads-q-j").iterdir()] == ["cells.4"]
    path = tmp_path / "loads-q-j" / "cells.4"
    path.write_bytes(path.read_bytes().replace(b"5.6", b"5.7"))
    with pytest.raises(StateError, match=r"MAILBOX_DAMAGED.*cells\.4.*Remove it"):
        loads.find_cells(5)


def test_an_epoch_that_runs_again_publishes_the_same(loads, tmp_path):
    for _ in range(2):
        loads.publish(0, 7, -12)
    assert [path.name for path in (tmp_path / "loads-q-j").iterdir()] == ["0.7.-12"]
    assert loads.find(8) == -12


def route(tmp_path, epoch, shed=None, model=Biclique(2)):  # noqa: B008
    """Run a routing step of stream 1 as in a Spark task; return the inboxes of the units."""
    task = TaskFacts("q", epoch)
    shed = None if shed is None else ShedLoads(Shedding(shed, CONDITION.sides), str(tmp_path), "j")
    fitted = FittedSpec(TwoStreamSpec(UNIT, model))
    to_rows = cloudpickle.loads(
        cloudpickle.dumps(
            make_routing_step(fitted, 1, Coordination(shed), is_streaming=False, read_task=lambda: task)
        )
    )
    batches = [make_batch(np.arange(n, n + 1000), np.arange(1000) * 1000) for n in (0, 1000)]
    inboxes = {key: Inbox() for key in find_unit_keys(model.n_units)}
    for rows in to_rows(iter(batches)):
        for row in rows.to_pylist():
            take_in(inboxes[row[UNIT_KEY]], [[row[name] for name in COLUMNS]])
    return list(inboxes.values())


def count(inboxes, role):
    batches = [inbox.batch(1, role) for inbox in inboxes]
    return sum(batch.num_rows for batch in batches if batch is not None)


def test_a_worker_runs_the_spec_of_its_partitions_although_the_driver_has_asked_for_keys():
    def choose(partitions):
        return Fitted(TwoStreamSpec(UNIT, Biclique(partitions)), Part(str(partitions), ""))

    fitted = FittedSpec(choose(2).spec, Choice(2, choose))
    assert len(fitted.keys) == 4
    copy = cloudpickle.loads(cloudpickle.dumps(fitted))
    assert copy.fit(2) == copy.fit(None) == (fitted.planned, fitted.keys, None)
    assert [len(copy.fit(n).keys) for n in (3, 1)] == [6, 2]
    assert copy.fit(3).model == Part("3", "")


def test_a_routing_step_drops_by_the_loads_of_earlier_epochs(tmp_path, loads):
    shed = Shed(1000, 2000, base=0)
    loads.publish(0, 3, 1500)
    whole = route(tmp_path, 3, shed)
    assert (count(whole, Role.STORE), count(whole, Role.PROBE)) == (2000, 4000)
    assert all(not inbox.shed for inbox in whole)
    half = route(tmp_path, 4, shed)
    ((stream, dropped, *rest),) = half[0].shed
    assert (stream, rest) == (1, [0, 0, None, None, None])
    assert count(half, Role.STORE) == 2000 - dropped == pytest.approx(1000, abs=120)
    assert count(half, Role.PROBE) == 2 * (2000 - dropped)
    assert [inbox.shed for inbox in half[1:]] == [[]] * 3
    loads.publish(1, 4, 5000)
    nothing = route(tmp_path, 5, shed)
    assert (count(nothing, Role.STORE), nothing[0].shed) == (0, [ShedReport(1, 2000)])


def test_dropped_probes_are_stored(tmp_path, loads):
    loads.publish(0, 3, 5_000_000)
    shed = Shed("1 s", "9 s", base=0, load="lag", what="probes")
    inboxes = route(tmp_path, 4, shed)
    (report,) = inboxes[0].shed
    assert (report.shed, report.counted, report.median_us) == (0, 2000, 500_000)
    assert count(inboxes, Role.STORE) == 2000
    assert count(inboxes, Role.PROBE) == 2 * (2000 - report.shed_probes) == pytest.approx(2000, abs=240)


def test_a_shedder_needs_the_number_of_the_epoch(tmp_path):
    with pytest.raises(StateError, match="EPOCH_UNKNOWN"):
        route(tmp_path, None, Shed(1000, 2000))


def test_kinds_of_rows_have_different_numbers():
    kinds = [*Role, columns.MESSAGE, columns.ANNOUNCEMENT, columns.EMPTY, columns.NOTICE, columns.SHED]
    assert len({int(kind) for kind in kinds}) == len(kinds)


def test_a_report_travels_as_a_row():
    inbox = Inbox()
    row = {KIND: SHED, STREAM: 1, ORIGIN: 0, HEADER: json.dumps(ShedReport(1, 2, 3, 4, 5)), BLOCK: b""}
    take_in(inbox, [[row[name] for name in COLUMNS]])
    assert inbox.shed == [ShedReport(1, 2, 3, 4, 5)]
    assert inbox.is_quiet
