"""Small runs of ESJ's experiments: counts equal those of plain loops, figures are written, bounds are in
order."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.core import drawing
from bench.core.figure import Run
from bench.core.internals import BlockCost, LocalJoin, brute_force, by_hash, by_range, matches
from bench.core.page import sentence
from bench.core.response import FILE, number, respond
from bench.papers.esj import cost_by_block, efficiency_by_window, latency_by_model, load_over_time
from bench.papers.esj.inputs import REACH, SELECTIVITY, make_join
from bench.papers.esj.latency_by_model import MOMENTS, Plan
from bench.papers.esj.letters import letter_cost
from bench.papers.esj.replay import replay
from bench.papers.esj.steps import count_steps
from thetastream.models import Chain, Split

LOCAL = ("efficiency-by-window", "load-over-time")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("esj")
    assert main(["esj", "--figures", ",".join(LOCAL), "--quick", "--folder", str(folder)]) == 0
    return folder / "esj"


def test_the_expected_number_is_that_of_plain_loops() -> None:
    query = make_join(300, 80, seed=5)
    left, right = (
        list(zip(*(table[name].cast("int64").to_pylist() for name in ("k", "v", "ts")), strict=True))
        for table in query.tables
    )
    found = sum(
        k == m and abs(v - w) <= REACH and abs(t - u) <= query.window_us
        for k, v, t in left
        for m, w, u in right
    )
    assert query.expected == found > 0


def test_a_random_pair_matches_as_often_as_it_says() -> None:
    query = make_join(3000, 3000, seed=2)
    assert query.expected / 3000**2 == pytest.approx(SELECTIVITY, rel=0.1)


def test_bounds_order_the_indexes() -> None:
    found, window = matches(SELECTIVITY, 2**14), 2**14
    bounds = [efficiency_by_window.bound(kind, window) for kind in ("scan", "hash", "sorted", "hash_sorted")]
    assert bounds == sorted(bounds)
    assert bounds[0] == brute_force(SELECTIVITY) == pytest.approx(by_hash(found, window))
    assert by_range(found, 1) == pytest.approx(1)


def test_steps_are_those_of_a_loop() -> None:
    from thetastream.kernels.walk import lower_bound

    assert lower_bound(np.arange(9).reshape(-1, 1), 0, 0, 9, 4) == 4
    query = make_join(64, 64, 1).by("sorted")
    (left,), (right,) = (list(query.cut(side, 1)) for side in (0, 1))
    join = LocalJoin(query.unit_spec(), Split(1))
    with count_steps() as steps:
        list(join.epoch(left, None))
        assert steps() == 0
        list(join.epoch(None, right))
    # Every right tuple bisects the subindexes that its window touches. They have at most 64 tuples: 7 steps
    # each.
    assert 0 < steps() <= 64 * 7 * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_a_figure_is_a_picture_a_table_and_numbers(folder: Path, name: str) -> None:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["checks"]
    assert all(check["is_equal"] for check in found["checks"])
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{name}.md").read_text().strip() in (folder / "README.md").read_text()


@pytest.mark.slow
def test_an_index_looks_at_less_and_finds_the_same(folder: Path) -> None:
    rows = json.loads((folder / "efficiency-by-window.json").read_text())["rows"]
    window = max(row["window"] for row in rows if row["index"] == "scan")
    at = {row["index"]: row for row in rows if row["window"] == window}
    assert set(at) == set(efficiency_by_window.INDEXES)
    assert len({row["matches_per_probe"] for row in at.values()}) == 1
    seen = [at[kind]["candidates_per_probe"] for kind in ("scan", "hash", "sorted", "hash_sorted")]
    assert seen == sorted(seen, reverse=True)
    assert all(row["rho_searched"] <= row["rho"] <= 1 for row in rows)


@pytest.mark.slow
def test_silence_balances_the_loads(folder: Path) -> None:
    rows = json.loads((folder / "load-over-time.json").read_text())["rows"]
    by = {row["phase"]: row for row in rows if "phase" in row}
    assert list(by) == [phase.name for phase in load_over_time.PHASES]
    assert by["silence"]["within"] == 1
    assert by["burst"]["apart_most"] > by["silence"]["apart_most"]


@pytest.mark.parametrize("block", [8, "auto"])
def test_letters_through_a_mailbox_change_nothing(block: int | str) -> None:
    query = make_join(600, 200, 3).by("hash")
    steps = list(replay(query, Chain(3, block), query.epochs(6)))
    assert sum(step.results for step in steps) == query.expected > 0
    assert [step.is_draining for step in steps[:7]] == [False] * 6 + [True]
    assert all(len(step.cpu_s) == len(step.loads) == 3 for step in steps)


@pytest.mark.slow
def test_cost_by_block_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_by_block, "BLOCKS", (64, 256, 1024))
    monkeypatch.setattr(cost_by_block, "REPLAYS", 1)
    monkeypatch.setattr(cost_by_block, "letter_cost", lambda: letter_cost(repeat=1))
    run = Run(0.05, 1, 1, lambda text: None, None)
    found = drawing.write("cost-by-block", run, cost_by_block.measure(run), 1.0, tmp_path)
    assert len(found["checks"]) == 5
    assert all(check["is_equal"] for check in found["checks"])
    settings = {"measured", "auto", "auto, alpha 0.9", "predicted", "found"}
    assert {row["setting"] for row in found["rows"]} == settings


def test_the_mean_of_costs_is_term_by_term() -> None:
    costs = [BlockCost(1, 2, 0.1, 24), BlockCost(3, 4, 0.3, 24)]
    assert cost_by_block.mean_cost(costs) == BlockCost(2, 3, pytest.approx(0.2), 24)


def test_response_counts_from_the_arrival_of_the_later_tuple() -> None:
    # Epochs of 100, 10, 20 ms; three pairs of file 1 in its own epoch, one in the next.
    found = respond([100.0, 10.0, 20.0], np.array([[0], [3], [1]]), 1, MOMENTS)
    assert found["response_ms"] == pytest.approx((3 * 60 + 80) / 4)
    assert (found["response_epochs"], found["at_once"]) == (1.25, 0.75)
    assert found["response_ms_p99"] > found["response_ms_p50"]


def test_tuples_know_their_file() -> None:
    files = make_join(10, 5, 1).files(4)["r"]
    assert [table[FILE].to_pylist() for table in number(files)] == [[n] * len(files[n]) for n in range(4)]
    assert sum(map(len, files)) == 10


def test_tuples_may_arrive_at_the_end_of_the_epoch_before() -> None:
    found = respond([100.0, 10.0, 20.0], np.array([[2, 0], [0, 0], [1, 1]]), 0, np.ones(1))
    assert found["response_ms"] == pytest.approx((2 * 100 + 130 + 30) / 4)
    assert found["response_epochs"] == pytest.approx((2 * 1 + 3 + 2) / 4)


def test_latency_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(run: Run, query: object, model: object, plan: Plan) -> dict:
        slow = 10.0 if model == Chain(latency_by_model.UNITS) else 1.0
        names = ("response_ms", "response_ms_p50", "response_ms_p99", "response_epochs", "at_once")
        run.check(repr(model), 1, 1)
        return dict.fromkeys((*names, "epoch_ms", "tuples_per_s", "epochs", "load_before"), slow)

    monkeypatch.setattr(latency_by_model, "run_once", stand_in)
    run = Run(0.01, 1, 1, lambda text: None, None)
    found = drawing.write("latency-by-model", run, latency_by_model.measure(run), 1.0, tmp_path)
    assert found["verdict"]["agrees"] == "agrees"
    assert "10.00" in sentence(found)
