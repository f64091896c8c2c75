"""The campaign of faults: a few points on Spark, and how a campaign goes on after an interruption."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.support import campaign
from tests.support.campaign import STOOD_STILL, WENT_ON, Case, run_campaign, run_case, strike, write_table
from tests.support.faults import Job
from tests.support.live_faults import Target


@pytest.mark.slow
@pytest.mark.parametrize("job", [*campaign.JOBS])
def test_faults_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    monkeypatch.setattr(campaign, "JOBS", {job: campaign.JOBS[job]})
    case = run_case(1, tmp_path, files=15)
    assert case.points
    assert case.is_exact, case


def test_an_interrupted_campaign_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def run(seed: int, folder: Path) -> Case:
        assert not [*folder.iterdir()]
        (folder / "log").touch()
        seeds.append(seed)
        if seed == 2 and seeds.count(2) == 1:
            raise KeyboardInterrupt
        points = [("driver killed", "killed"), ("Python worker killed", WENT_ON)]
        return Case(seed, "inner", points, is_exact=seed != 3)

    monkeypatch.setattr(campaign, "run_case", run)
    with pytest.raises(KeyboardInterrupt):
        run_campaign(tmp_path, 7)
    cases = run_campaign(tmp_path, 7)
    assert seeds == [0, 1, 2, 2, 3]
    assert [case.is_exact for case in cases] == [True, True, True, False]
    assert "| driver killed | killed | 4 |" in write_table(cases)
    assert [path.name for path in tmp_path.glob("case*")] == ["case3"], "files of a wrong case stay"


def test_processes_share_a_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, folder: Path) -> Case:
        if seed == 0:  # Another process runs the campaign while this one is in its first case.
            others.extend(case.seed for case in run_campaign(tmp_path, 3))
        return Case(seed, "inner", [("driver killed", "killed")], is_exact=True)

    others: list[int] = []
    monkeypatch.setattr(campaign, "run_case", run)
    cases = run_campaign(tmp_path, 4)
    assert others == [1, 2, 3]
    assert [case.seed for case in cases] == [1, 2, 3, 0]


def test_a_join_that_neither_goes_on_nor_ends_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "PATIENCE_S", 0.3)
    monkeypatch.setitem(campaign.FAULTS, "clock jumps", lambda target: True)
    monkeypatch.setattr(campaign, "epochs", lambda folder, log: 0)
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    target = Target(Job(str(tmp_path)), process, StrikesEarly())
    assert strike(target, {"clock jumps": 1}, 0.0) == [("clock jumps", STOOD_STILL)]
    assert process.poll() == -9


class StrikesEarly(random.Random):
    def random(self) -> float:
        return 0.0
