"""Load shedders of joins whose units change, with a crash at every step, and requests that drop a share."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.control_runs import RULES, Run
from thetastream.core.shed import Shed
from thetastream.models import Biclique, Split
from thetastream.runtime.control.request import Request

SHEDDERS = {
    "state": Shed("300 B", "1200 B", base=0.2),
    "lag": Shed("1 ms", "30 ms", load="lag"),
    "probes": Shed("1 ms", "30 ms", load="lag", what="probes"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shed", "crash"),
    [
        # A run crashes at this step and at the next one, so every second step is enough here.
        pytest.param(shed, crash, marks=[pytest.mark.slow] * ((number + crash) % 2), id=f"{name}-{crash}")
        for number, (name, shed) in enumerate(SHEDDERS.items())
        for crash in range(6)
    ],
)
def test_a_shedder_drops_the_same_tuples_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shed: Shed, crash: int
) -> None:
    """A run with crashes and one without have the same results and counts, also while units change."""
    outcomes = []
    for name, crashes in (("calm", ()), ("crashing", (crash, crash + 1))):
        run = Run(tmp_path / name, monkeypatch, Biclique((2, 1)), seed=crash, shed=shed)
        shed_tuples = shed_probes = arrived = 0
        for epoch in range(10):
            run.spark.began_ms = 10 * epoch + 12 + epoch % 3
            if epoch == 4:
                run.spark.control.put_request(Request(sizes={"units": (1, 3)}).write())
            most = len(run.spark.offsets and run.spark.plan.slots) + 1
            run.run(n=20, crashes=tuple(min(step, most) for step in crashes))
            shed_tuples += sum(unit["shed"] for unit in run.counters)
            shed_probes += sum(unit["shed_probes"] for unit in run.counters)
            arrived += sum(unit["left"] + unit["right"] + unit["late"] for unit in run.counters)
        assert shed_tuples + arrived == 2 * 20 * 10
        outcomes.append((run.found, shed_tuples, shed_probes))
        assert run.spark.plan.newest.model == Biclique((1, 3))
        assert run.found < oracle.join(run.spark.spec.unit.condition, *run.kept)
    assert outcomes[0] == outcomes[1]
    found, shed_tuples, shed_probes = outcomes[0]
    assert found.total() > 50
    assert (shed_tuples > 20, shed_probes > 20) == (not shed.sheds_probes, shed.sheds_probes)


def test_a_request_drops_a_share_whatever_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, Split(2), shed=Shed("1 GB", "2 GB"))
    run.spark.rules = replace(RULES, can_shed=True)
    run.spark.start()
    counts = []
    for epoch in range(9):
        if epoch in (1, 5):
            factor = {1: 0.5, 5: 0.0}[epoch]
            run.spark.control.put_request(Request(shed_factor=factor).write())
        run.run(n=100, crashes=(1, 2))
        counts.append(sum(unit["shed"] for unit in run.counters))
    # A request holds from the epoch after the one that reads it.
    assert [n > 0 for n in counts] == [False, False, True, True, True, True, False, False, False]
    assert sum(counts) / 800 == pytest.approx(0.5, abs=0.08)
    name = run.spark.control.put_request('{"format": 1, "shed_factor": 2}')
    run.run()
    assert "must be a number from 0 to 1" in run.spark.offsets[-1]["control"]["outcomes"][name]


def test_a_join_without_a_shedder_drops_nothing_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    run.run()
    name = run.spark.control.put_request(Request(shed_factor=0.5).write())
    run.run()
    assert (
        "[BAD_REQUEST] only a join that was started with shed"
        in (run.spark.offsets[-1]["control"]["outcomes"][name])
    )
