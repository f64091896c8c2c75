"""A campaign of faults of control files. The table of the docs has the counts of its cases."""

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.control_faults import EXACT, count_cases
from tests.support.control_runs import Run
from thetastream.models import Biclique, Split
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
    assert run(tmp_path, range(20), monkeypatch).total() == 20


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
