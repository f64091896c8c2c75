"""The nearest rows of a table are those of the nested loop, whatever is NULL, tied, or in another run."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.requests import PlainResolver, make_request
from thetastream.core.columns import PASSES, RANKED
from thetastream.core.how import Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.engine import lookup
from thetastream.engine.counters import Counters
from thetastream.engine.lookup import TableRuns
from thetastream.engine.store import ranked_run
from thetastream.engine.store.run import build
from thetastream.families.lookups import LookupPlan, plan_lookup
from thetastream.lowering.physical import SidePlan

Row = tuple[int, int | None, int | None]
"""Number, k and x."""
CONDITIONS = {
    "a.k >= b.k": lambda a, b: a[1] >= b[1],
    "a.k = b.k AND a.x >= b.x": lambda a, b: a[1] == b[1] and a[2] >= b[2],
    "a.k = b.k": lambda a, b: a[1] == b[1],
    "a.x <= b.k AND a.k >= b.x": lambda a, b: a[2] <= b[1] and a[1] >= b[2],
}
VALUES = {
    "abs(a.x - b.x)": lambda a, b: abs(a - b),
    "a.x - b.x": lambda a, b: a - b,
    "b.x - a.x": lambda a, b: b - a,
    "b.x": lambda a, b: b,
    "b.x DESC": lambda a, b: -b,
    "a.x - b.x DESC": lambda a, b: b - a,
    "abs(a.x - b.x) DESC": lambda a, b: -abs(a - b),
    "b.x NULLS FIRST": lambda a, b: b,
}
LAST = 10**9


def holds(on: str, a: Row, b: Row) -> bool:
    read = {"a.k": a[1], "b.k": b[1], "a.x": a[2], "b.x": b[2]}
    return all(value is not None for name, value in read.items() if name in on) and bool(
        CONDITIONS[on](a, b)  # type: ignore[no-untyped-call]
    )


def rank(by: str, a: Row, b: Row) -> int:
    if (b[2] is None and "b.x" in by) or (a[2] is None and "a.x" in by):
        return -LAST if "NULLS FIRST" in by else LAST
    return int(VALUES[by](a[2], b[2]))  # type: ignore[no-untyped-call]


def expect(on: str, by: str, k: int, rows: list[Row], table: list[Row], keep_unmatched: bool) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for a in rows:
        partners = sorted((rank(by, a, b), b[0]) for b in table if holds(on, a, b))
        worst = partners[min(k, len(partners)) - 1][0] if partners else 0
        alone = [(a[0], None)] * keep_unmatched
        found.update([(a[0], n) for value, n in partners if value <= worst] or alone)
    return found


def plan(on: str, by: str, k: int, keep_unmatched: bool = True) -> LookupPlan:
    how = find_nearest(Nearest(k, by, keep_unmatched=keep_unmatched))
    request = make_request(on, how=how)
    stream, table = request.streams
    inputs = stream, table
    planned = plan_lookup(inputs, request.conjuncts, (), how, PlainResolver(inputs), table=Side.RIGHT)
    assert isinstance(planned, LookupPlan)
    return planned


def make_block(side: SidePlan, rows: list[Row]) -> pa.RecordBatch:
    """Make the block of a side as Spark does: filters, payload and computed columns."""

    def passes(text: str, row: Row) -> bool:
        assert text.endswith("IS NOT NULL"), text
        return row[1 if ".k" in text else 2] is not None

    kept = [row for row in rows if all(passes(one.text, row) for one in side.filters)]
    names = {"id": 0, "k": 1, "x": 2}
    kinds = {"bigint": pa.int64(), "int": pa.int32()}
    columns = {}
    for one in side.carried:
        payload = [row[names[one.field]] if one.field in names else None for row in kept]
        columns[one.block_column] = pa.array(payload, kinds[one.block_type])
    for name, text in side.computed:
        assert name in (PASSES, RANKED), text
        guards = [guard.split(" THEN")[0] for guard in text.split("CASE WHEN ")[1:]]
        passing = [all(passes(guard, row) for guard in guards) for row in kept]
        values = [row[2] if name == RANKED else 1 for row in kept]
        columns[name] = pa.array(values, pa.int64(), mask=~np.array(passing))
    return pa.RecordBatch.from_pydict(columns)


def draw(random: random.Random, n: int, has_nulls: bool) -> list[Row]:
    def value(most: int) -> int | None:
        return None if has_nulls and random.random() < 0.1 else random.randrange(most)

    return [(number, value(4), value(random.choice([5, 40]))) for number in range(n)]


@pytest.mark.parametrize("by", VALUES)
@pytest.mark.parametrize("on", CONDITIONS)
def test_the_nearest_rows_are_those_of_the_nested_loop(
    on: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked_run, "PAIRS_AT_ONCE", 64)
    monkeypatch.setattr(lookup, "_PRUNE_PAIRS", 50)
    monkeypatch.setattr(lookup, "SEARCHED", 0)
    chance = random.Random(on + by)
    for k, has_nulls in ((1, False), (1, True), (3, True)):
        flow = plan(on, by, k, has_nulls).flow()
        rows, table = draw(chance, 40, has_nulls), draw(chance, 70, has_nulls)
        block = make_block(flow.sides[Side.RIGHT], table)
        cuts = [0, *sorted(chance.sample(range(1, block.num_rows), 2)), block.num_rows]
        parts = [block.slice(start, end - start) for start, end in pairwise(cuts)]
        payload = pa.schema([block.schema.field(one.block_column) for one in flow.sides[Side.RIGHT].carried])
        runs = TableRuns([build(flow.lookup.plan, part) for part in parts], payload)
        found: Counter[Any] = Counter()
        counters = Counters()
        for columns in flow.lookup.answer(make_block(flow.sides[Side.LEFT], rows), runs, 0, counters):
            found.update(zip(columns[0].to_pylist(), columns[4].to_pylist(), strict=True))
        assert found == expect(on, by, k, rows, table, has_nulls), (k, has_nulls)
        assert counters.matched == sum(n for (_, partner), n in found.items() if partner is not None)


def test_a_search_looks_at_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An as-of join of 500 tuples with 20,000 rows ranks some pairs of each tuple, and not all of them."""
    ranked = []
    flow = plan("a.k >= b.k", "a.k - b.k", 1).flow()
    kind = type(flow.lookup.ranking)
    rank_keys = kind.rank_keys
    monkeypatch.setattr(
        kind, "rank_keys", lambda self, *both: ranked.append(len(both[1])) or rank_keys(self, *both)
    )
    table = [(n, n * 2, n * 2) for n in range(20_000)]
    rows = [(n, n * 77, n * 77) for n in range(500)]
    block = make_block(flow.sides[Side.RIGHT], table)
    runs = TableRuns([build(flow.lookup.plan, block)], block.schema)
    batch = make_block(flow.sides[Side.LEFT], rows)
    found = [row for columns in flow.lookup.answer(batch, runs) for row in columns[4].to_pylist()]
    assert sorted(found) == [min(n * 77 // 2, 19_999) for n in range(500)]
    assert sum(ranked) < 10_000
