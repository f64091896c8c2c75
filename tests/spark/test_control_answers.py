"""Units of joins that answer each tuple change while Spark runs them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.controlled_query import WITHIN_S, Controlled

ON = "a.x = b.x AND a.id > b.id AND a.x > 3"
RESIDUAL = "(a.id + b.id) % 5 < 4"
"""A conjunct that Spark evaluates behind the units."""


def find_partners(a: int, n: int) -> list[int]:
    """Find the partners of the left tuple with this id, by the formula of the condition."""
    x = a * 7 % 11
    return [b for b in range(max(0, a - WITHIN_S), min(a, n)) if x > 3 and b * 7 % 11 == x]


def find_answers(how: Any, a: int, n: int) -> list[tuple[int | None, ...]]:
    """Find the answers to this left tuple."""
    partners = find_partners(a, n)
    if how == "anti":
        return [] if partners else [(a,)]
    if how == "left":
        return [(a, b) for b in partners] or [(a, None)]
    return [(a, b) for b in partners[-1:]]


@pytest.mark.slow
def test_units_hand_over_if_second_units_decide(spark: SparkSession, tmp_path: Path) -> None:
    """In a full join, tuples of both streams are copied, and pairs of copies are returned once."""
    run = Controlled(spark, tmp_path, on=f"{ON} AND {RESIDUAL}")
    run.start(th.Matrix(1, 1), how="full", max_units=4)
    run.add()
    th.control(run.query).scale(model=th.Matrix(2, 1, 2, "hash"))
    run.run_until(lambda status: status["generations"][0]["units"] == [1, 2])
    run.add(WITHIN_S + 40)
    run.query.stop()
    ids = range(run.n)
    pairs = [(a, b) for a in ids for b in find_partners(a, run.n) if (a + b) % 5 < 4]
    matched: tuple[set[int], ...] = tuple(set(side) for side in zip(*pairs, strict=True))
    rows = [*pairs, *((a, None) for a in ids if a not in matched[0])]
    rows += [(None, b) for b in ids if b not in matched[1]]
    is_decided = range(run.n - WITHIN_S - 20)
    expected = Counter(row for row in rows if max(id_ for id_ in row if id_ is not None) in is_decided)
    found = {row: n for row, n in run.found.items() if max(i for i in row if i is not None) in is_decided}
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "anti", th.Nearest(1, by="a.ts - b.ts")], ids=repr)
def test_units_hand_over_and_a_restart_changes_nothing(spark: SparkSession, tmp_path: Path, how: Any) -> None:
    run = Controlled(spark, tmp_path, on=ON)
    run.start(th.Matrix(1, 1), how=how, max_units=4)
    run.add()
    handle = th.control(run.query)
    with pytest.raises(th.QueryError, match=r"\[CANNOT_SCALE\].*use th.Matrix"):
        handle.scale(model=th.Biclique((1, 1)))
    # 1. New units get copies.
    handle.scale(rows=2)
    status = run.run_until(lambda status: status["coming"] is not None)
    assert status["coming"]["units"] == [1, 2]
    assert status["coming"]["waits_for"] == [0]
    # 2. Restart before they take over.
    run.query.stop()
    run.start(th.Matrix(1, 1), how=how, max_units=4)
    status = run.run_until(lambda status: len(status["generations"]) == 2)
    assert status["coming"] is None
    # 3. They answer all tuples, and the old unit ends.
    status = run.run_until(lambda status: status["generations"][0]["units"] == [1, 2])
    run.add(WITHIN_S + 40)
    run.query.stop()
    is_decided = range(run.n - WITHIN_S - 20)
    found = Counter({row: n for row, n in run.found.items() if row[0] in is_decided})
    assert found == Counter(row for a in is_decided for row in find_answers(how, a, run.n))
