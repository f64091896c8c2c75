"""Following a policy: the load that it sees, what it asks for, and the units that change, without Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import thetastream as th
from tests.support.control_runs import AntiRun, Run
from tests.support.spark_epochs import QUERY
from thetastream.core.identity import digest
from thetastream.models import REGISTRY, Biclique, Matrix, Ring, Split
from thetastream.runtime.control.plan import ControlPlan, Generation
from thetastream.runtime.control.policies import GroupLoad, TwoPhaseScaling
from thetastream.runtime.control.policies.load import LoadReader

JOIN = digest(QUERY)


def make_entry(second: int, duration_ms: int, **units: tuple[int, int]) -> dict[str, Any]:
    """Make the counters of an epoch: for each unit its MLV and its work in milliseconds."""
    return {
        "began": datetime.fromtimestamp(second, UTC).isoformat(),
        "durations_ms": {"triggerExecution": duration_ms},
        "units": [
            {"unit": int(slot[1:]), "mlv_bytes": nbytes, "busy_ms": busy_ms}
            for slot, (nbytes, busy_ms) in units.items()
        ],
    }


# The load


def test_groups_are_sides_and_subgroups_and_idle_units_keep_their_state() -> None:
    plan = ControlPlan.begin(Biclique((3, 1), subgroups=(2, 1)))
    reader = LoadReader()
    first = reader.read(make_entry(100, 500, u0=(10, 1), u1=(20, 2), u2=(30, 4), u3=(50, 8)), plan)
    assert first.groups == (GroupLoad(2, 40, 0.005), GroupLoad(1, 20, 0.002), GroupLoad(1, 50, 0.008))
    second = reader.read(make_entry(104, 1500, u0=(70, 1)), plan)
    assert second.groups == (GroupLoad(2, 100, 0.001), GroupLoad(1, 20, 0), GroupLoad(1, 50, 0))
    assert (second.time_s - first.time_s, second.epoch_s) == (5, 5)


def test_units_that_leave_count_for_the_side_that_they_store() -> None:
    old, new = Generation(0, Biclique((1, 2)), (0, 1, 2)), Generation(1, Biclique((2, 1)), (0, 3, 1))
    plan = ControlPlan(1, (old, new), leaving={2: 1})
    load = LoadReader().read(make_entry(0, 1, u0=(1, 0), u1=(10, 0), u2=(100, 0), u3=(1000, 0)), plan)
    assert load.groups == (GroupLoad(2, 1001), GroupLoad(1, 110))
    # Units of a model that stores both sides count for both, in equal parts. What has ended counts no more.
    matrix = Generation(0, Matrix(1, 1), (4,))
    reader = LoadReader()
    after = ControlPlan(1, (matrix, new), leaving={4: 1})
    entry = make_entry(0, 1, u0=(1, 0), u1=(10, 0), u3=(1000, 0), u4=(8, 0))
    assert reader.read(entry, after).groups == (GroupLoad(2, 1005), GroupLoad(1, 14))
    ended = ControlPlan(2, (new,))
    assert reader.read(make_entry(1, 1), ended).groups == (GroupLoad(2, 1001), GroupLoad(1, 10))


def test_a_full_subgroup_gets_units_and_the_others_do_not() -> None:
    plan = ControlPlan.begin(Biclique((2, 2), (2, 2), "hash"))
    reader, decider = LoadReader(), TwoPhaseScaling(capacity="1 kB", every="1 s", agree=1).begin()
    loads = [
        reader.read(make_entry(second, 1, u0=(1800, 0), u1=(500, 0), u2=(400, 0), u3=(600, 0)), plan)
        for second in (0, 2)
    ]
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


class Followed(Run):
    """A controlled run, and the query that a handle sees."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.query = SimpleNamespace(isActive=True, id="q", lastProgress=None, recentProgress=[])

    def run(self, n: int = 8, crashes: tuple[int, ...] = ()) -> None:
        super().run(n, crashes)
        self.query.lastProgress = {
            "batchId": self.epoch,
            "timestamp": datetime.fromtimestamp(10 * self.epoch, UTC).isoformat(),
            "durationMs": {"triggerExecution": 10},
            "observedMetrics": {f"thetastream_{JOIN}_1": {"units": list(map(json.dumps, self.counters))}},
            "sources": [{"endOffset": json.dumps(self.spark.offsets[-1])}],
        }


def test_a_policy_adds_units_under_load_and_removes_them_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Followed(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run(n=4)
    policy = TwoPhaseScaling(capacity="1 kB", every="10 seconds", agree=2)
    follower = th.control(run.query).follow(policy)
    follower.stop()  # The test calls it after each epoch in place of the thread.
    sizes = []
    for n in [12] * 8 + [2] * 10:
        run.run(n)
        follower.look()
        follower.look()  # An epoch that was seen is not counted again.
        sizes.append(run.spark.plan.newest.model.n_units)
    run.check()
    assert max(sizes[:10]) >= 4
    assert sizes[-1] == 2
    assert follower.refused == []
    assert 2 <= len(follower.requests) <= 6


class FollowedAnti(Followed, AntiRun):
    """A controlled run of an anti join, whose units hand over."""


def test_a_policy_waits_until_a_coming_generation_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FollowedAnti(tmp_path, monkeypatch, Matrix(2, 1))
    run.run(n=4)
    follower = th.control(run.query).follow(TwoPhaseScaling(capacity="2 kB", every="10 seconds", agree=1))
    follower.stop()
    had_coming = []
    for _ in range(8):
        run.run(n=12)
        n_asked, is_coming = len(follower.requests) + len(follower.refused), run.spark.plan.coming is not None
        follower.look()
        had_coming.append(is_coming)
        assert not is_coming or n_asked == len(follower.requests) + len(follower.refused)
    assert True in had_coming
    newest = run.spark.plan.newest.model
    assert isinstance(newest, Matrix)
    assert (newest.rows > 2, newest.columns) == (True, 1)
    run.check()


def test_a_refused_request_is_kept_and_the_policy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Followed(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    follower = th.control(run.query).follow(TwoPhaseScaling(capacity="20 B", every="10 seconds", agree=1))
    follower.stop()
    for _ in range(3):
        run.run()
        follower.look()
    assert {error.condition for error in follower.refused} == {"MAX_UNITS"}
    assert len(follower.refused) >= 2


def test_what_cannot_be_followed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Followed(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    with pytest.raises(th.QueryError, match=r"\[POLICY\] follow needs a policy"):
        th.control(run.query).follow("two-phase")  # type: ignore[arg-type]
    checkpoint = tmp_path / "c"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(run.spark.offsets[-1])]))
    with pytest.raises(th.QueryError, match=r"\[POLICY\] follow needs the running query"):
        th.control(checkpoint).follow(TwoPhaseScaling())
    run.query.isActive = False
    with pytest.raises(th.QueryError, match=r"\[POLICY\].*query q has ended"):
        th.control(run.query).follow(TwoPhaseScaling())


def test_a_request_to_a_query_that_has_ended_waits_until_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Followed(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.query.isActive = False
    name = th.control(run.query).scale(units=(2, 1))
    assert run.spark.control.list_requests() == [name]
    run.spark.start()
    for _ in range(8):
        run.run()
    assert run.spark.offsets[-1]["control"]["outcomes"] == {name: ""}
    assert run.spark.plan.newest.model == Biclique((2, 1))
    run.check()
