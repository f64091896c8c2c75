"""Cases of joins over changelogs that Apache Flink publishes: the table after each event.

They are those of ``StreamingJoinOperatorTest`` (``flink-table-runtime``): orders are joined with the ways in
which their lines are shipped, on the number of the line. Rows are events (stream, row, kind), and an update
names only the new row of its key. After each event, Flink's output adds up to a table. Here, its pairs are
there after the epoch of the event, and its rows with NULL when they are decided; with ``outer="early"``, the
whole table is there after each epoch.

`docs/reference/comparison.md` has a table of these cases.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.support.changes import Change, Row
from tests.unit.engine import test_changes as changes
from tests.unit.engine import test_changes_of_answers as answers
from thetastream.core.how import HOWS
from thetastream.models import Biclique, Matrix

LEFT, RIGHT = 0, 1
AIR, SHIP, TRUCK, RAIL = range(1, 5)
"""The ways to ship a line."""
FIRST, SECOND = 7, 8
"""The addresses of an order."""
Answer = tuple[Row | None, Row | None]


class Event(NamedTuple):
    """An event, and the table after it: pairs of an address and a way, by the number of their line."""

    stream: int
    line: int
    value: int
    is_delete: bool
    table: set[tuple[int, int | None, int | None]]


def insert(stream: int, line: int, value: int, *table: tuple[int, int | None, int | None]) -> Event:
    """An insert, or an update: in both cases, the row is the present one of its line."""
    return Event(stream, line, value, False, set(table))


def delete(stream: int, line: int, value: int, *table: tuple[int, int | None, int | None]) -> Event:
    return Event(stream, line, value, True, set(table))


CASES = {
    "InnerJoinWithStateRetentionDisabled": (
        "inner",
        [
            insert(LEFT, 1, FIRST),
            insert(LEFT, 2, FIRST),
            insert(RIGHT, 2, AIR, (2, FIRST, AIR)),
            insert(LEFT, 2, SECOND, (2, SECOND, AIR)),
            insert(RIGHT, 2, SHIP, (2, SECOND, SHIP)),
            insert(RIGHT, 1, TRUCK, (1, FIRST, TRUCK), (2, SECOND, SHIP)),
            delete(RIGHT, 2, SHIP, (1, FIRST, TRUCK)),
            insert(RIGHT, 2, RAIL, (1, FIRST, TRUCK), (2, SECOND, RAIL)),
        ],
    ),
    "LeftOuterJoinInnerSideUpdateAfterThenDelete": (
        "left",
        [
            insert(LEFT, 1, FIRST, (1, FIRST, None)),
            insert(RIGHT, 1, AIR, (1, FIRST, AIR)),
            insert(RIGHT, 1, SHIP, (1, FIRST, SHIP)),
            delete(RIGHT, 1, SHIP, (1, FIRST, None)),
        ],
    ),
    "LeftOuterJoinInnerSideDuplicateInsertThenDelete": (
        "left",
        [
            insert(LEFT, 1, FIRST, (1, FIRST, None)),
            insert(RIGHT, 1, AIR, (1, FIRST, AIR)),
            insert(RIGHT, 1, AIR, (1, FIRST, AIR)),
            delete(RIGHT, 1, AIR, (1, FIRST, None)),
        ],
    ),
    "RightOuterJoinInnerSideUpdateAfterThenDelete": (
        "right",
        [
            insert(RIGHT, 1, AIR, (1, None, AIR)),
            insert(LEFT, 1, FIRST, (1, FIRST, AIR)),
            insert(LEFT, 1, SECOND, (1, SECOND, AIR)),
            delete(LEFT, 1, SECOND, (1, None, AIR)),
        ],
    ),
    "FullOuterJoinRightSideUpdateAfterThenDelete": (
        "full",
        [
            insert(LEFT, 1, FIRST, (1, FIRST, None)),
            insert(RIGHT, 1, AIR, (1, FIRST, AIR)),
            insert(RIGHT, 1, SHIP, (1, FIRST, SHIP)),
            delete(RIGHT, 1, SHIP, (1, FIRST, None)),
        ],
    ),
    "FullOuterJoinLeftSideUpdateAfterThenDelete": (
        "full",
        [
            insert(RIGHT, 1, AIR, (1, None, AIR)),
            insert(LEFT, 1, FIRST, (1, FIRST, AIR)),
            insert(LEFT, 1, SECOND, (1, SECOND, AIR)),
            delete(LEFT, 1, SECOND, (1, None, AIR)),
        ],
    ),
}


def make_row(line: int, value: int) -> Row:
    """Make a row with the columns of the other tests: id, t, k and v."""
    return (value, 100, line, 0)


def show(rows: Answer) -> tuple[int, int | None, int | None]:
    left, right = rows
    there = left or right
    assert there is not None
    return there[2], left and left[0], right and right[0]


OUTER = [name for name, (how, _) in CASES.items() if how != "inner"]


@pytest.mark.parametrize(
    ("name", "is_early"), [*((name, False) for name in CASES), *((name, True) for name in OUTER)]
)
def test_the_table_after_each_event(name: str, is_early: bool) -> None:
    how, events = CASES[name]
    run: changes.Run | answers.Run = (
        changes.Run(changes.IN_WINDOW, Biclique(2))
        if how == "inner"
        else answers.Run(replace(HOWS[how], is_early=is_early), Matrix(1, 1))
    )
    present: dict[tuple[int, int], Row] = {}
    for event in events:
        # Upserts name no old row; units that keep the latest rows find it.
        row, key = make_row(event.line, event.value), (event.stream, event.line)
        new = [] if event.is_delete else [Change(row, 1)]
        old = [Change(present.pop(key), -1)] if key in present else []
        both: tuple[list[Change], list[Change]] = ([], [])
        both[event.stream].extend([*old, *new])
        run.epoch(*both)
        present |= {key: row} if new else {}
        lines = {line for line in event.table if is_early or None not in line}
        assert {show(rows): n for rows, n in run.output.items()} == dict.fromkeys(lines, 1)
    run.epoch([], [], answers.ALL_DECIDED)
    assert {show(rows): n for rows, n in run.output.items()} == dict.fromkeys(events[-1].table, 1)
