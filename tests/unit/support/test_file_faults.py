"""A campaign of file faults. The table of the docs has the counts of its 1,000 cases."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.file_faults import EXACT, run_case
from thetastream.runtime.state import segment_cache

CASES = 1000
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "state.md"
REFUSED = {"MAILBOX_DAMAGED", "MAILBOX_MISSING", "MAILBOX_FOREIGN", "MAILBOX_UNUSABLE"}


@pytest.fixture(autouse=True)
def _read_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files, not the runs that this process keeps; and map more than the largest ones."""
    monkeypatch.setattr(segment_cache, "KEPT_BYTES", 0)
    monkeypatch.setattr(segment_cache, "MAPPED_BYTES", 1 << 12)


def run(tmp_path: Path, seeds: range) -> Counter[tuple[str, str, str]]:
    """Run cases; nothing may be wrong, and only the mailbox may refuse."""
    found: Counter[tuple[str, str, str]] = Counter()
    for seed in seeds:
        place, _, outcome = case = run_case(seed, tmp_path / f"{seed}")
        assert outcome == EXACT or (place != "cache" and outcome in REFUSED), (seed, case)
        found[case] += 1
    return found


def test_fifty_faults(tmp_path: Path) -> None:
    assert run(tmp_path, range(50)).total() == 50


@pytest.mark.slow
def test_the_counts_of_the_docs(tmp_path: Path) -> None:
    found = run(tmp_path, range(CASES))
    table = re.findall(r"^\| (\w+) \| ([^|`]+) \| `?(\w+)`? \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [(*case, str(n)) for case, n in sorted(found.items())]
    assert table == expected, "\n".join(write_row(case, n) for case, n in sorted(found.items()))


def write_row(case: tuple[str, str, str], n: int) -> str:
    place, fault, outcome = case
    return f"| {place} | {fault} | {outcome if outcome == EXACT else f'`{outcome}`'} | {n} |"
