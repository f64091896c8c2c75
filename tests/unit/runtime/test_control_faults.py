"""A campaign of faults of control files. The table of the docs has the counts of its cases."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control_faults import EXACT, count_cases
from tests.support.control_runs import AntiRun, Epochs, MultiwayRun, Run
from thetastream.core.errors import StateError
from thetastream.models import Biclique, Matrix, Ring, Split
from thetastream.models.base import Model
from thetastream.runtime.control.request import Request

CASES = 100
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "state.md"
REFUSED = {"CONTROL_MISSING", "CONTROL_TWICE", "CONTROL_UNUSABLE"}


def run(folder: Path, seeds: range, patch: pytest.MonkeyPatch) -> Counter[tuple[str, str, str]]:
    """Run cases; each of them must be exact, or refused by name and exact when the files are back."""
    found = count_cases(seeds, folder, patch)
    assert not {case for case in found if case[2] not in {EXACT, *REFUSED}}
    return found


def test_some_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, range(8), monkeypatch).total() == 8


def test_a_plan_that_goes_after_the_driver_has_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a mark takes the place of a plan, and the query starts again, which removes the marks."""
    assert run(tmp_path, range(1032, 1033), monkeypatch).total() == 1


OLDER: dict[str, tuple[Callable[..., Epochs], Model, list[Request], int]] = {
    "no unit leaves": (Run, Biclique((1, 1)), [Request(model=Biclique((2, 1)))], 0),
    "all units leave": (Run, Biclique((1, 1)), [Request(model=Matrix(1, 2))], 0),
    "the older units have ended": (Run, Biclique((1, 1)), [Request(model=Matrix(1, 2))], 8),
    "two changes": (Run, Split(2), [Request(sizes={"cores": 3}), Request(sizes={"cores": 2})], 1),
    "a handover": (AntiRun, Matrix(2, 1), [Request(sizes={"rows": 3})], 0),
    "a ring": (MultiwayRun, Ring(2), [Request(sizes={"nodes": 3})], 0),
}
"""The run, its model, the requests that the older folder does not know, and the epochs after them."""


@pytest.mark.parametrize("name", OLDER)
def test_a_folder_that_is_older_than_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The epoch that a crash has interrupted runs again before the driver looks into the folder."""
    make_run, model, requests, n_later = OLDER[name]
    run = make_run(tmp_path, monkeypatch, model)
    run.run()
    run.run()
    plans = Path(run.spark.control.locate("plans"))
    before = set(plans.glob("*"))
    for request in requests:
        run.spark.control.put_request(request.write())
        run.run()
    for _ in range(n_later):
        run.run()
    batches = run.draw(8)
    run.spark.log_offset()
    run.spark.start()
    kept = {path: path.read_bytes() for path in plans.glob("*") if path not in before}
    assert kept
    for path in kept:
        path.unlink()
    with pytest.raises(StateError, match="CONTROL_MISSING"):
        run.spark.run(batches, run.watermark)
    for path, data in kept.items():
        path.write_bytes(data)
    run.end_epoch(run.spark.run(batches, run.watermark))
    for number in range(8):
        run.run(n=8 if number < 4 else 0)
    run.check()


@pytest.mark.slow
def test_the_counts_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path, range(CASES), monkeypatch)
    section = PAGE.read_text().partition("## Faults of control files")[2].partition("\n## ")[0]
    counts = Counter({outcome: 0 for *_, outcome in found})
    for (_, _, outcome), n in found.items():
        counts[outcome] += n
    table = dict(re.findall(r"^\| `?(\w+)`? \| (\d+) \|$", section, re.MULTILINE))
    assert table == {outcome: str(n) for outcome, n in counts.items()}


def test_a_clock_that_jumps_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the host, and the beginning of an epoch that Spark tells, jump by up to a day."""
    chance, now_s = random.Random(1), time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + chance.uniform(-86_400, 86_400))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    changes = {1: Request(model=Split(2)), 4: Request(sizes={"cores": 3}), 7: Request(model=Biclique((2, 1)))}
    for number in range(12):
        if number in changes:
            run.spark.control.put_request(changes[number].write())
        if number % 5 == 3:
            run.spark.start()
        run.spark.began_ms = int(time.time() * 1000)
        run.run()
    assert run.spark.plan.newest.model == Biclique((2, 1))
    run.check()
