"""The figure of units that change: streams follow the load curve, and the verdict names missed targets."""

from dataclasses import replace

import pyarrow as pa
import pytest

from bench.core.query import Query, keys
from bench.core.rows import Rows
from bench.papers.bistream import scaling
from bench.papers.bistream.load_curve import EPOCHS, WINDOW_EPOCHS, cut_epochs, spread_over_curve
from bench.papers.bistream.scaled_replay import Change
from bench.papers.bistream.scaling import FIXED, FULL, SCALED

CHANGES = [Change(24, 26, 4), Change(80, 82, -6)]


def rows(slower: float) -> Rows:
    """Make the rows of a run whose epochs take longer while units change."""
    found = Rows()
    for name in (FIXED, SCALED):
        for epoch in range(EPOCHS):
            is_changing = any(one.asked < epoch <= one.since + WINDOW_EPOCHS for one in CHANGES)
            ms = 10 * slower if name == SCALED and is_changing else 10.0
            found.append({"setting": name, "minute": epoch / 2, "cpu_ms": ms, "fullest": 0.5})
    return found


@pytest.mark.parametrize(
    ("slower", "changes", "stored_again", "agrees"),
    [
        (1.1, CHANGES, 0, "agrees"),
        (1.3, CHANGES, 0, "agrees in part"),
        (1.1, CHANGES, 1, "does not agree"),
        (1.1, [replace(CHANGES[0], since=28), CHANGES[1]], 0, "does not agree"),
        (1.1, [*CHANGES, Change(90, 92, 1)], 0, "does not agree"),
        (1.1, [], 0, "does not agree"),
    ],
)
def test_the_verdict(slower: float, changes: list[Change], stored_again: int, agrees: str) -> None:
    assert scaling.judge(rows(slower), changes, stored_again).agrees == agrees


def test_streams_follow_the_curve() -> None:
    tables = tuple(pa.table({"ts": pa.array([0] * n, pa.timestamp("us", tz="UTC"))}) for n in (200, 20_000))
    query = spread_over_curve(Query("curve", ("s", "l"), tables, "", keys()))
    suppliers, lines = ([table.num_rows for table in parts] for parts in cut_epochs(query).values())
    assert suppliers == [2] * EPOCHS
    assert sum(lines) == 20_000
    # The rates are 216,000, 460,000 and 165,000 tuples/s in minutes 5, 24 and 45.
    assert lines[48] / lines[10] == pytest.approx(460 / 216, rel=0.02)
    assert lines[90] / lines[10] == pytest.approx(165 / 216, rel=0.02)
    assert FULL < 14  # The load rises in minute 7.
