"""The simulator: a policy under a load curve, the limits of a join, and what the command prints."""

import json

import pytest

from thetastream.app.cli import main
from thetastream.core.errors import QueryError
from thetastream.families.pairs.cost import estimate, estimate_unit_work
from thetastream.index import Sorted
from thetastream.models import Biclique
from thetastream.runtime.control.policies import TwoPhaseScaling
from thetastream.simulator.limits import (
    CORES,
    DRIVER,
    EXCHANGE,
    FIXED,
    INPUT,
    MEMORY,
    RESOURCES,
    RESULTS,
    UNITS,
    Cluster,
    compute_core_parts,
    compute_driver_s,
    compute_uses,
    find_limit,
)
from thetastream.simulator.scaling import BISTREAM, LoadCurve, Setting, read_curve, replay

SETTING, CLUSTER = Setting(), Cluster()


def simulate(policy, curve=BISTREAM, units=(4, 4), **settings):
    return list(replay(policy, curve, Setting(**settings), units))


def list_changes(steps):
    return [(step.time_s / 60, sum(step.units)) for step in steps if step.is_change]


# Policies


def test_two_phase_scaling_repeats_figure_12_of_bistream():
    """4 units are added and 6 are removed, each in one step, and the fluctuation changes nothing."""
    steps = simulate(TwoPhaseScaling())
    assert [units for _, units in list_changes(steps)] == [12, 6]
    (up, _), (down, _) = list_changes(steps)
    assert 10 < up < 22
    assert 36 < down < 50
    # In the steady states, each side uses 0.3 to 0.8 of its capacity.
    for minute in (6, 21, 35, 50):
        step = steps[minute * 6]
        for n_units, nbytes in zip(step.units, step.mlv_bytes, strict=True):
            assert 0.3 < nbytes / (n_units * 1.5e9) < 0.8


def test_without_agreement_the_fluctuation_does_change_units():
    nervous = simulate(TwoPhaseScaling(high=0.65, target=0.55, agree=1, every="10 seconds"))
    assert len([minute for minute, _ in list_changes(nervous) if 22 <= minute <= 33]) > 0


def test_a_change_moves_nothing():
    """A new unit fills with new tuples only; the fullest unit is emptied by expiry, not at once."""
    steps = simulate(TwoPhaseScaling())
    (up, _) = list_changes(steps)[0]
    at = round(up * 6)
    assert steps[at + 1].fullest_bytes > 0.95 * steps[at - 1].fullest_bytes
    span = round(SETTING.span_s / 10) + 2
    assert steps[at + span].fullest_bytes == pytest.approx(sum(steps[at + span].mlv_bytes) / 12)


def test_a_steady_load_is_the_state_that_the_cost_model_estimates():
    curve = LoadCurve(((0, 100_000), (5, 100_000)))
    steps = simulate(TwoPhaseScaling(low=0), curve, (2, 3))
    found = estimate(Biclique((2, 3)), SETTING.build_workload(100_000), 5)
    assert steps[-1].fullest_bytes == pytest.approx(found.mlv_bytes, rel=0.04)
    assert sum(steps[-1].mlv_bytes) == pytest.approx(found.memory_bytes, rel=0.04)


def test_a_capacity_in_time_scales_by_work():
    policy = TwoPhaseScaling(capacity=0.6, every="10 seconds", agree=1)
    steps = simulate(policy, LoadCurve(((0, 400_000), (5, 400_000))), (1, 1))
    assert steps[0].busiest > 0.8 * 0.6
    assert len(list_changes(steps)) in (1, 2, 3)
    assert steps[-1].busiest < 0.8 * 0.6


# Limits


def test_the_resource_that_binds_first_is_fully_used_and_no_other_is():
    for n_units in (2, 8, 64):
        limit = find_limit("biclique", n_units, SETTING, CLUSTER)
        uses = compute_uses(limit.model, SETTING, CLUSTER, limit.rate)
        assert uses[limit.resource] == pytest.approx(1, abs=2e-3)
        assert max(uses.values()) == uses[limit.resource]
        assert set(uses) == set(RESOURCES)


def test_memory_binds_few_units_cores_bind_random_routing_and_the_driver_binds_a_thousand():
    binding = {n: find_limit("biclique", n, SETTING, CLUSTER).resource for n in (2, 64, 1000)}
    assert binding == {2: MEMORY, 64: CORES, 1000: DRIVER}


def test_routing_by_content_scales_on():
    random, by_content = (
        find_limit("biclique", 256, Setting(index=index), CLUSTER).rate for index in ("sorted", "hash_sorted")
    )
    assert by_content > 10 * random


@pytest.mark.parametrize("name", ["biclique", "matrix", "split"])
def test_more_memory_or_longer_epochs_never_lower_a_limit(name):
    plain = find_limit(name, 16, SETTING, CLUSTER).rate
    assert find_limit(name, 16, SETTING, Cluster(memory_per_core=2**40)).rate >= plain
    assert find_limit(name, 16, SETTING, Cluster(epoch_s=60)).rate >= 0.999 * plain


def test_each_part_of_a_core_grows_with_its_own_cause():
    def find_parts(rate=50_000, cluster=CLUSTER, **settings):
        return compute_core_parts(Biclique(2), Setting(**settings), cluster, rate)

    plain = find_parts()
    assert sum(plain.values()) == compute_uses(Biclique(2), SETTING, CLUSTER, 50_000)[CORES]
    for grown, parts in (
        (find_parts(results=2.0), {RESULTS}),
        (find_parts(candidates=100.0), {UNITS}),
        (find_parts(sent_bytes=120.0), {EXCHANGE, UNITS, RESULTS}),
        (find_parts(cluster=Cluster(epoch_s=5.0)), {FIXED}),
        (find_parts(cluster=Cluster(router_tasks=40)), {FIXED}),
        (find_parts(rate=100_000), {INPUT, EXCHANGE, UNITS, RESULTS}),
    ):
        assert {part for part in plain if grown[part] > plain[part]} == parts
        assert {part for part in plain if grown[part] < plain[part]} == set()


def test_the_driver_starts_a_task_for_each_router_and_partition():
    few, many = (compute_driver_s(n, CLUSTER) for n in (10, 20))
    assert many - few == pytest.approx(few - compute_driver_s(0, CLUSTER))
    one_file = Cluster(router_tasks=1)
    assert (compute_driver_s(20, one_file) - compute_driver_s(10, one_file)) * 3 == pytest.approx(many - few)


def test_a_limit_names_the_largest_part_of_cores_and_what_to_change():
    many = find_limit("biclique", 64, Setting(results=1_000.0), CLUSTER)
    assert (many.resource, many.part, many.binding) == (CORES, RESULTS, "cores: results")
    assert many.advice == RESULTS.advice
    few = find_limit("biclique", 2, SETTING, Cluster(memory_per_core=2**20))
    assert (few.resource, few.part, few.binding, few.advice) == (MEMORY, None, "memory", MEMORY.advice)


def test_the_work_of_units_is_what_a_cost_charges():
    work = SETTING.build_workload(10_000)
    assert isinstance(work.index, Sorted)
    busiest = estimate_unit_work(Biclique(2), work).max()
    found = estimate(Biclique(2), work, 4)
    assert found.cost == pytest.approx(4 * busiest + found.sent_bytes_per_s * 5e-9)


# Curves and the command


def test_a_curve_is_read_from_csv():
    assert read_curve("0,5\n\n2,7\n").points == ((0.0, 5.0), (2.0, 7.0))
    for text in (
        "",
        "minute,rate\n",
        "0,5\n0\n",
        "1,5\n0,5\n",
        "0,-1\n",
        "0,many\n",
        "-3,5\n",
        "nan,5\n",
        "0,nan\n",
        "inf,5\n",
    ):
        with pytest.raises(QueryError, match="LOAD_CURVE"):
            read_curve(text)


def test_the_command_draws_a_replay(capsys, tmp_path):
    assert main(["simulate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines if line.endswith("units change")] == ["6+6", "3+3"]
    assert len(lines) < 70
    curve = tmp_path / "curve.csv"
    curve.write_text("minute,rate\n0,1000\n3,1000\n")
    settings = ["--set", "capacity=1 MB", "--set", "agree=1", "--curve", str(curve), "--units", "1,2"]
    assert main(["simulate", "--json", *settings]) == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert steps[0]["units"] == [1, 2]
    # 500 tuples/s of 100 bytes for 315 s, in units of 1 MB that are filled to at most 0.8
    assert steps[-1]["units"] == [27, 27]
    assert main(["simulate", "--set", "hihg=1"]) == 1
    assert "two-phase-scaling has no setting 'hihg'" in capsys.readouterr().err
    assert main(["simulate", "--curve", str(tmp_path / "absent.csv")]) == 1
    assert "[LOAD_CURVE]" in capsys.readouterr().err


def test_the_command_shows_limits(capsys):
    assert main(["simulate", "--limits", "--json", "--index", "hash"]) == 0
    limits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [limit["units"] for limit in limits] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    assert limits[-1]["binds_first"] == "driver"
    assert limits[-1]["advice"] == DRIVER.advice
    assert sum(limits[0]["core_parts"].values()) == pytest.approx(limits[0]["uses"]["cores"], abs=1e-3)
    assert main(["simulate", "--limits", "--results", "1000"]) == 0
    assert f"cores: results first: {RESULTS.advice}" in capsys.readouterr().out
    assert main(["simulate", "--limits", "--model", "split"]) == 0
    assert "driver first: make epochs longer" in capsys.readouterr().out


def test_the_command_plots(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["simulate", "--plot", str(tmp_path / "figure.svg")]) == 0
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    for refused in ("figure.abc", "absent/figure.svg"):
        assert main(["simulate", "--plot", str(tmp_path / refused)]) == 1
        assert "[BAD_VALUE]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--units", "4"], ["--units", "0,1"], ["--set", "x"], ["--window-s", "0"]]
)
def test_wrong_arguments_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    assert ended.value.code == 2
