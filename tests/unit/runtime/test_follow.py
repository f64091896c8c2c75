"""Following a policy: the load that it sees, what it asks for, and the units that change, without Spark."""

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

import thetastream as th
from tests.support.control_runs import AntiRun, Run
from thetastream.models import REGISTRY, Biclique, Matrix, Ring, Split
from thetastream.runtime.control.plan import ControlPlan, Generation
from thetastream.runtime.control.policies import (
    GroupLoad,
    Load,
    TwoPhaseScaling,
    UnitLoad,
    list_policies,
    registry,
)
from thetastream.runtime.control.policies.load import LoadReader
from thetastream.runtime.control.request import Request
from thetastream.spark.sources import control as source

# The load


def report(*nbytes: int, **slots: int) -> list[UnitLoad]:
    """Make reports of the units 0, 1, ..., or of those that are named u0, u1, ..."""
    named = {int(name[1:]): n for name, n in slots.items()}
    return [UnitLoad(slot, n) for slot, n in {**dict(enumerate(nbytes)), **named}.items()]


def test_groups_are_sides_and_subgroups_and_idle_units_keep_their_state() -> None:
    plan = ControlPlan.begin(Biclique((3, 1), subgroups=(2, 1)))
    reader = LoadReader()
    units = [UnitLoad(0, 10, 0.001), UnitLoad(1, 20, 0.002), UnitLoad(2, 30, 0.004), UnitLoad(3, 50, 0.008)]
    first = reader.read(100, units, plan)
    assert first.groups == (GroupLoad(2, 40, 0.005), GroupLoad(1, 20, 0.002), GroupLoad(1, 50, 0.008))
    # The reports of two epochs: the last one says what a unit stores, and both say how long it worked.
    second = reader.read(105, [UnitLoad(0, 60, 0.002), UnitLoad(0, 70, 0.001)], plan)
    assert second.groups == (GroupLoad(2, 100, 0.003), GroupLoad(1, 20, 0), GroupLoad(1, 50, 0))
    assert (second.time_s - first.time_s, second.epoch_s) == (5, 5)


def test_units_that_leave_count_for_the_side_that_they_store() -> None:
    old, new = Generation(0, Biclique((1, 2)), (0, 1, 2)), Generation(1, Biclique((2, 1)), (0, 3, 1))
    plan = ControlPlan(1, (old, new), leaving={2: 1})
    load = LoadReader().read(0, report(1, 10, 100, 1000), plan)
    assert load.groups == (GroupLoad(2, 1001), GroupLoad(1, 110))
    # Units of a model that stores both sides count for both, in equal parts. What has ended counts no more.
    matrix = Generation(0, Matrix(1, 1), (4,))
    reader = LoadReader()
    after = ControlPlan(1, (matrix, new), leaving={4: 1})
    reports = report(1, 10, u3=1000, u4=8)
    assert reader.read(0, reports, after).groups == (GroupLoad(2, 1005), GroupLoad(1, 14))
    ended = ControlPlan(2, (new,))
    assert reader.read(1, [], ended).groups == (GroupLoad(2, 1001), GroupLoad(1, 10))


def test_a_full_subgroup_gets_units_and_the_others_do_not() -> None:
    plan = ControlPlan.begin(Biclique((2, 2), (2, 2), "hash"))
    reader, decider = LoadReader(), TwoPhaseScaling(capacity="1 kB", every="1 s", agree=1).begin()
    loads = [reader.read(second, report(1800, 500, 400, 600), plan) for second in (0, 2)]
    _, sizes = map(decider.decide, loads)
    assert sizes == (3, 1, 1, 1)
    assert plan.newest.model.resized(sizes) == Biclique(((3, 1), (1, 1)), routing="hash")


@pytest.mark.parametrize(
    "model",
    [Biclique((3, 2)), Biclique((5, 4), subgroups=(2, 4)), Split(3), Matrix(2, 3), Ring(4)],
    ids=repr,
)
def test_a_model_is_resized_so_that_no_group_has_fewer_units(model: Any) -> None:
    groups = model.groups
    assert sorted(unit for units in groups for unit in units) == list(range(model.n_units))
    for wanted in ([1] * len(groups), [7] * len(groups), list(range(1, len(groups) + 1))):
        resized = model.resized(wanted)
        assert all(len(units) >= n for units, n in zip(resized.groups, wanted, strict=True))
        assert list_changes(model, resized) <= set(model.sizes)


def list_changes(model: Any, resized: Any) -> set[str]:
    """List the fields of a model that differ."""
    return {name for name, value in vars(model).items() if getattr(resized, name) != value}


def test_every_model_that_scales_can_be_resized() -> None:
    for name, kind in REGISTRY.items():
        if kind.sizes:
            model: Any = kind(1)  # type: ignore[call-arg]
            assert list_changes(model, model.resized([2, 2])), name
            assert list_changes(model, model.resized([2, 2])) <= set(kind.sizes)


# A query


class Clock:
    """A clock that the control source reads: an epoch takes ten seconds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        patch.setattr(source, "read_clock", self.read)

    def read(self) -> float:
        self.now_s += 10
        return self.now_s


class FollowedAnti(AntiRun):
    """A controlled run of an anti join, whose units hand over."""


def write_checkpoint(run: Run, folder: Path) -> Path:
    """Write the newest offset into the checkpoint of a query, from which any process makes a handle."""
    (folder / "c" / "offsets").mkdir(parents=True, exist_ok=True)
    text = "\n".join(["v1", "{}", json.dumps(run.spark.offsets[-1])])
    (folder / "c" / "offsets" / str(run.epoch)).write_text(text)
    return folder / "c"


def follow(run: Run, folder: Path, policy: TwoPhaseScaling | None) -> None:
    """Ask the query for a policy by its checkpoint."""
    th.control(write_checkpoint(run, folder)).follow(policy)


def start_following(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: TwoPhaseScaling, n: int = 8
) -> Run:
    """Start a query with one unit a side and an epoch of ``n`` tuples, and ask it for a policy."""
    Clock(monkeypatch)
    run = Run(folder, monkeypatch, Biclique((1, 1)))
    run.run(n)
    follow(run, folder, policy)
    return run


def test_a_policy_adds_units_under_load_and_removes_them_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query follows the policy by itself, also when it starts again, and in epochs that crash."""
    run = start_following(
        tmp_path, monkeypatch, TwoPhaseScaling(capacity="1.4 kB", every="10 seconds", agree=2), n=4
    )
    sizes = []
    for number, n in enumerate([12] * 10 + [2] * 14):
        run.run(n, crashes=(1, 3) if number in (2, 14) else ())
        sizes.append(run.spark.plan.newest.model.n_units)
    run.check()
    assert max(sizes[:12]) >= 4
    assert sizes[-1] == 2
    status = th.control(write_checkpoint(run, tmp_path)).status()
    assert status["policy"] == {
        "name": "two-phase-scaling", "capacity": "1.4 kB", "every": "10 seconds", "agree": 2
    }  # fmt: skip
    asked = {name: outcome for name, outcome in status["requests"].items() if name.startswith("policy-")}
    assert 2 <= len(asked) <= 7
    assert set(asked.values()) == {"accepted"}
    # Reports that were read are gone.
    assert {epoch for epoch, *_ in run.spark.control.list_loads()} == {run.epoch - 1}


def test_a_query_that_follows_no_policy_any_more_reports_no_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_following(
        tmp_path, monkeypatch, TwoPhaseScaling(capacity="1 kB", every="10 seconds", agree=9)
    )
    for _ in range(3):
        run.run()
    assert run.spark.control.list_files("loads")
    follow(run, tmp_path, None)
    for _ in range(3):
        run.run()
    assert run.spark.plan.policy is None
    assert run.spark.control.list_files("loads") == {}


def test_a_policy_waits_until_a_coming_generation_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    run = FollowedAnti(tmp_path, monkeypatch, Matrix(2, 1))
    run.run(n=4)
    follow(run, tmp_path, TwoPhaseScaling(capacity="2 kB", every="10 seconds", agree=1))
    had_coming = []
    for _ in range(9):
        before = run.spark.plan
        run.run(n=12)
        had_coming.append(before.coming is not None)
        assert before.coming in (None, run.spark.plan.coming, run.spark.plan.newest)
    assert True in had_coming
    newest = run.spark.plan.newest.model
    assert isinstance(newest, Matrix)
    assert (newest.rows > 2, newest.columns) == (True, 1)
    run.check()


def test_a_refused_request_is_kept_and_a_request_of_a_user_counts_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_following(
        tmp_path, monkeypatch, TwoPhaseScaling(capacity="20 B", every="10 seconds", agree=1)
    )
    for _ in range(8):
        run.run()
    outcomes = run.spark.offsets[-1]["control"]["outcomes"]
    refused = [text for name, text in outcomes.items() if name.startswith("policy-")]
    assert refused
    assert all(text.startswith("[MAX_UNITS]") for text in refused)
    assert len(set(refused)) == len(refused), "an offset with the same refusal again would make an epoch"
    th.control(write_checkpoint(run, tmp_path)).scale(Split(2))
    n_refused = len(refused)
    run.run()
    assert run.spark.plan.newest.model == Split(2)
    outcomes = run.spark.offsets[-1]["control"]["outcomes"]
    assert len([name for name in outcomes if name.startswith("policy-")]) == n_refused
    run.check()


@dataclass(frozen=True)
class Wrong:
    """The policy of another package, which fails."""

    name: ClassVar[str] = "wrong"

    def begin(self) -> "Wrong":
        return self

    def decide(self, load: Load) -> None:
        raise ZeroDivisionError("no units")


def test_a_policy_that_fails_does_not_end_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"wrong": EntryPoint("wrong", f"{__name__}:Wrong", "thetastream.policies")}

    def list_points(group: str, name: str = "wrong") -> list[EntryPoint]:
        return [points[name]] if name in points else []

    monkeypatch.setattr(registry, "entry_points", list_points)
    assert list_policies() == ["two-phase-scaling", "load-balancing", "wrong"]
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    follow(run, tmp_path, Wrong())
    for _ in range(6):
        run.run()
    points.clear()  # The package is not installed any more, and the query starts again.
    run.spark.start()
    for _ in range(3):
        run.run()
    outcomes = run.spark.offsets[-1]["control"]["outcomes"]
    found = [text for name, text in outcomes.items() if name.startswith("policy-")]
    assert [text.partition(":")[0] for text in found] == [
        "[POLICY] the policy 'wrong' has failed",
        "[POLICY] the name of the policy ('wrong') must be one of two-phase-scaling, load-balancing",
    ]
    run.check()


def test_what_cannot_be_followed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(TwoPhaseScaling):
        pass

    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    handle = th.control(write_checkpoint(run, tmp_path))
    with pytest.raises(th.QueryError, match=r"\[POLICY\] a policy is needed"):
        handle.follow("two-phase")  # type: ignore[arg-type]
    with pytest.raises(th.QueryError, match=r"\[POLICY\] Mine is not the policy that 'two-phase"):
        handle.follow(Mine())
    for policy, message in (
        ({"capacity": "1 GB"}, "must have a name"),
        ({"name": "tps"}, "must be one of two-phase-scaling"),
        ({"name": "two-phase-scaling", "hihg": 1}, "did you mean 'high'"),
        ({"name": "two-phase-scaling", "high": 0.1}, "low < target < high"),
    ):
        with pytest.raises(th.QueryError, match=rf"\[POLICY\].*{message}"):
            Request.read(json.dumps({"format": 1, "policy": policy}))
    assert run.spark.control.list_requests() == []
