"""The figure of full memory: what does not fit is read again, and the slowest unit counts."""

from pathlib import Path

import pytest

from bench.core.replay import replay, run_epochs
from bench.core.rows import Rows
from bench.papers import inputs
from bench.papers.bistream import bounded_memory, throughput_when_full
from bench.papers.bistream.bounded_memory import BoundedJoin
from tests.support.figures import write_small
from thetastream.models import Biclique


@pytest.mark.slow
def test_the_figure_of_full_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput_when_full, "TUPLES_PER_GB", 500)  # 32 epochs.
    write_small("throughput-when-full", 0.1, tmp_path)


def test_a_unit_reads_what_does_not_fit_in_its_memory_once_an_epoch() -> None:
    query, model = inputs.handshake(2_000, 1, reach=500), Biclique(1)
    free, unbounded = BoundedJoin(query.unit_spec(), model, 1e12), list(replay(query, model, 8))
    for (step, _), plain in zip(run_epochs(free, query, 8), unbounded, strict=True):
        assert step.results == plain.results
    assert free.disk_bytes == [0, 0]
    memory = unbounded[3].units[0].mlv_bytes
    join, before, was_full = BoundedJoin(query.unit_spec(), model, memory), [0.0, 0.0], False
    for number, (step, _) in enumerate(run_epochs(join, query, 8)):
        assert step.results == unbounded[number].results
        rest = unbounded[number].units[0].mlv_bytes - memory
        spent, before = join.disk_bytes[0] - before[0], join.disk_bytes
        assert (spent > 0) == (rest > 0)
        if was_full:  # It reads the rest of the epoch before, and writes or merges what is new.
            assert spent >= unbounded[number - 1].units[0].mlv_bytes - memory
        was_full = rest > 0
    assert was_full


def test_the_slowest_unit_decides_how_long_an_epoch_lasts() -> None:
    step = next(iter(replay(inputs.handshake(100, 1), Biclique(1), 2)))
    step.cpu_s = [1.0, 2.0]
    assert bounded_memory.last_s(step, [300.0, 50.0], 100.0) == 4.0


@pytest.mark.parametrize(
    ("faster", "matrix_full_at", "agrees"),
    [(4, 60, "agrees"), (2, 60, "agrees in part"), (1, 60, "does not agree"), (4, 90, "does not agree")],
)
def test_the_matrix_must_be_full_first_and_fall_behind(
    faster: float, matrix_full_at: int, agrees: str
) -> None:
    rows = Rows()
    for setting in throughput_when_full.MODELS:
        for gb in throughput_when_full.GB:
            rate = 1.0 if setting == "JM16" else float(faster)
            full_at = matrix_full_at if setting == "JM16" else None
            row = {"query": "equality", "setting": setting, "gb": gb, "volume": gb, "full_at": full_at}
            rows.append({**row, "bound_tuples_per_s": rate})
    assert throughput_when_full.judge(rows).agrees == agrees
