"""Figures of SplitJoin's stages: windows are those of a nested loop, and the stages of an epoch add up."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bench.papers.splitjoin import staged_replay
from bench.papers.splitjoin.staged_replay import (
    EPOCHS,
    WARMUP,
    Setting,
    measure_setting,
    run_chain,
    run_split,
)
from tests.support.figures import write_small
from thetastream.models import Chain, Split

STAGED = (
    "splitjoin-baseline",
    "splitjoin-visiting",
    "splitjoin-stages",
    "splitjoin-count-throughput",
    "splitjoin-count-latency",
)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", STAGED)
@pytest.mark.slow
def test_figures_of_stages(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = (import_module(f"bench.papers.splitjoin.{one.replace('-', '_')}") for one in STAGED)
    for module in (staged_replay, *modules):
        monkeypatch.setattr(module, "CORES", (1, 2), raising=False)
    write_small(name, 0.01, tmp_path)


def find_pairs(setting: Setting) -> int:
    """Count the pairs of a count window by a nested loop over the tuples in the order of arrival."""
    query = setting.make_query()
    (x, y), (a, b) = (
        [table.column(name).to_numpy().astype(float) for name in names]
        for table, names in zip(query.tables, (("x", "y"), ("a", "b")), strict=True)
    )
    reach = query.dimensions[0].high.delta  # type: ignore[union-attr]
    found, n = 0, setting.window
    for row in range(len(x)):
        # The left tuple comes first, and meets the last n right tuples; then the right one of the same time.
        for mine, others in (
            ((x[row], y[row]), (a[max(0, row - n) : row], b[max(0, row - n) : row])),
            ((a[row], b[row]), (x[max(0, row + 1 - n) : row + 1], y[max(0, row + 1 - n) : row + 1])),
        ):
            near = [np.abs(one - many) <= reach for one, many in zip(mine, others, strict=True)]
            found += int((near[0] & near[1]).sum())
    return found


@pytest.mark.parametrize("cores", [1, 3])
def test_count_windows_of_the_replay_are_those_of_a_nested_loop(cores: int) -> None:
    setting = Setting(Split(cores), window=50, per_epoch=20, seed=3, is_counted=True)
    assert sum(step.results for step in run_split(setting)) == find_pairs(setting) == setting.expected() > 0


def test_a_chain_that_hands_on_finds_pairs_later() -> None:
    epochs = {}
    for model, run in ((Split(3), run_split), (Chain(3), run_chain)):
        setting = Setting(model, window=160, per_epoch=20, seed=3)
        steps = run(setting)
        assert sum(step.results for step in steps) == setting.expected() > 0
        epochs[type(model)] = staged_replay.respond_to(steps, setting)["response_epochs"]
        if setting.hands_on:  # Epochs without input, until no block is in flight.
            assert len(steps) > setting.epochs == EPOCHS + 3
            assert setting.measured[0] == WARMUP + 3
    assert epochs[Split] == 1
    assert epochs[Chain] > 2


def test_stages_of_an_epoch_add_up() -> None:
    found, _ = measure_setting(Setting(Split(2), window=160, per_epoch=20, seed=3))
    row = dict(found)
    parts = ("routing_ms", "exe_ms", "straggling_ms", "gathering_ms")
    assert all(row[name] > 0 for name in parts)
    assert row["ete_ms"] == pytest.approx(row["waiting_ms"] + sum(row[name] for name in parts))
