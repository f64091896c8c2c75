"""The experiment of PSP: images match their parameters, answers equal the nested loop, and figures are
written."""

import itertools
import json
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from bench.__main__ import main
from bench.core.replay import total
from bench.papers.psp.growing_ring import GrowingRing
from bench.papers.psp.images import SECOND, START_US, Streams, Workload, alike, difference, pixels
from bench.papers.psp.replay import EPOCH_US, SLICE, Replay, models, replay, run_join
from thetastream.models import Ring

SMALL = Workload(streams=4, tuples=20, per_window=8, selectivity=0.3, pixels=50, seed=3)


def test_the_threshold_gives_the_selectivity():
    streams = Streams(SMALL)
    found = inside = 0
    for left in range(3):
        for i, j in itertools.product(range(20), repeat=2):
            if abs(streams.times[left][i] - streams.times[left + 1][j]) <= SMALL.window_us:
                inside += 1
                apart = np.abs(streams.images[left][i].astype(int) - streams.images[left + 1][j]).mean()
                found += apart <= streams.threshold
    assert found / inside == pytest.approx(SMALL.selectivity, abs=0.01)


def test_the_expected_number_is_that_of_plain_loops():
    streams = Streams(SMALL)
    found = 0
    for row in itertools.product(range(20), repeat=4):
        times = [int(streams.times[n][i]) for n, i in enumerate(row)]
        if max(times) - min(times) <= SMALL.window_us:
            images = [streams.images[n][i][None] for n, i in enumerate(row)]
            found += all(difference(p, q)[0] <= streams.threshold for p, q in itertools.pairwise(images))
    assert streams.expected == found > 20


def test_arrivals_double_in_the_middle():
    streams = Streams(Workload(tuples=3000, pixels=1, doubles=True))
    middle = START_US + 1000 * SECOND
    counts = [np.searchsorted(times, middle) / 3000 for times in streams.times]
    assert counts == pytest.approx([1 / 3] * 3, abs=0.05)
    assert streams.end_us == pytest.approx(START_US + 2000 * SECOND, abs=150 * SECOND)


def test_images_are_read_from_slices():
    images = pa.array([b"\x01\x02", b"\x05\x05", b"\x09\x07"], pa.binary()).slice(1)
    assert pixels(images).tolist() == [[5, 5], [9, 7]]

    class Column:
        img = images

    assert alike("a", "b", 0)(a=Column, b=Column).tolist() == [True, True]


@pytest.mark.parametrize("name", ["Ring", "ATR", "CTR"])
def test_runs_find_all_results_when_they_should(name):
    run = replay(SMALL, models(SMALL, 3)[name])
    assert len(run.found) == run.expected
    assert run.response_epochs == (1 if name == "ATR" else 3)
    assert total(run.epochs, "matched") == run.expected
    stored = total(run.epochs, "stored")
    assert stored == 80 if name == "Ring" else stored > 80


@pytest.mark.parametrize("moves_tuples", [False, True])
def test_a_ring_that_grows_finds_all_results(moves_tuples: bool):
    streams = Streams(Workload(tuples=90, per_window=48, selectivity=0.3, pixels=50))
    ring = GrowingRing(streams, Ring(2, SLICE, moves_tuples=moves_tuples))
    epochs, stored_at = [], []
    for epoch in run_join(streams, ring, count(START_US + EPOCH_US, EPOCH_US)):
        epochs.append(epoch)
        stored_at.append({slot for slot, node in enumerate(epoch.units) if node.held})
        if len(epochs) == 4:
            ring.ask(5)
    run = Replay(epochs, streams.expected)
    assert len(run.found) == run.expected > 100
    assert stored_at[4] == {0, 1}
    # The old nodes still hold the tuples of a window, unless these have moved.
    assert stored_at[6] == ({2, 3, 4, 5, 6} if moves_tuples else set(range(7)))


@pytest.mark.slow
def test_a_figure_is_a_picture_a_table_and_numbers(tmp_path):
    assert main(["psp", "--quick", "--figures", "ring-by-nodes", "--folder", str(tmp_path)]) == 0
    folder = tmp_path / "psp"
    found = json.loads((folder / "ring-by-nodes.json").read_text())
    assert all(check["is_equal"] for check in found["checks"])
    assert (folder / "ring-by-nodes.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "README.md").read_text()
    assert (folder / "ring-by-nodes.md").read_text().strip() in page
    assert "a nested loop's" in page


@pytest.mark.slow
def test_the_ring_that_follows_the_rate_takes_more_nodes(tmp_path):
    name = "response-when-arrivals-double"
    assert main([name, "--quick", "--folder", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "psp" / f"{name}.json").read_text())["rows"]
    for model, most in (("Ring, adaptation on", 4), ("Ring, 2 to 14, tuples move", 14)):
        nodes = {row["share"]: row["nodes_storing"] for row in rows if row["model"] == model}
        assert nodes[0.35] < nodes[0.75] <= most
