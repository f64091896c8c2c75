"""The overload benchmark: the pairs that it expects, and the figures of a run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bench.core.overload import WINDOW_S, count_pairs, describe, describe_run, write_second
from tests.support.metric_entries import make_entry

PER_SECOND, SECONDS = 3000, 14


def test_the_expected_pairs_are_those_of_the_files(tmp_path: Path) -> None:
    rng, streams = np.random.default_rng(5), {}
    for alias in "ab":
        (tmp_path / alias).mkdir()
    for second in range(SECONDS):
        write_second(tmp_path, second, 1_767_600_000 + second, PER_SECOND, rng)
    for alias in "ab":
        frame = pq.read_table(tmp_path / alias).to_pandas()
        streams[alias] = frame.assign(us=frame["ts"].astype("int64"))
    found = 0
    for step in (-1, 0, 1):
        right = streams["b"].assign(x=streams["b"]["x"] + step)
        both = pd.merge(streams["a"], right, on="x", suffixes=("_a", "_b"))
        seconds = (both["ts_a"] - both["ts_b"]).dt.total_seconds().abs()
        found += int(((both["y_a"] > both["y_b"]) & (seconds <= WINDOW_S)).sum())
    expected = count_pairs(PER_SECOND, SECONDS)
    assert abs(found - expected) < 5 * expected**0.5


def test_figures_of_a_run() -> None:
    entries = [make_entry(number, shed=20) for number in range(10)]
    for entry in entries:
        entry["streams"] = {alias: {"timely": 40, "late": 0, "shed": 10, "lag_s": 2.0} for alias in "ab"}
    run = describe_run("shedder", entries, [900.0, 1000.0], 100, is_complete=True)
    assert (run.shed, run.lag_s, run.memory_mb) == (0.2, 2.0, (1000.0, 1000.0))
    assert round(run.analytic, 6) == 0.64
    assert run.epoch_s_p50 == run.epoch_s_max == 0.8
    assert run.recall == sum(entry["matched"] for entry in entries) / count_pairs(100, 3)
    assert describe_run("no shedder", entries, [1.0], 100, is_complete=False).recall is None
    assert "| shedder | 3 | 0.80 | 0.80 | 2.0 | 20.0% |" in describe(1000, 1.0, 2000, [run])
