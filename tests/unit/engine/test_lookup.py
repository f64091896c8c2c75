"""A lookup in a table finds what the nested loop finds, for every kind of join and every index shape."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.support.requests import PlainResolver, make_request
from thetastream.core.columns import PASSES
from thetastream.core.how import HOWS
from thetastream.core.sides import Side
from thetastream.engine import lookup as lookups
from thetastream.engine.counters import Counters
from thetastream.engine.lookup import TableRuns
from thetastream.engine.store import probing
from thetastream.engine.store.run import build
from thetastream.families.lookups import LookupPlan, plan_lookup
from thetastream.lowering.physical import SidePlan

ROWS = [(n, n * 7 % 13, n * 5 % 11) for n in range(60)]
TABLE = [(n, n % 12, n % 12 + n % 4 - 1) for n in range(30)]
"""Ranges from k to x. Some of them are empty."""
NULLS = [(60, None, 3), (61, 4, None)]
CONDITIONS = {
    "a.k <= b.k": lambda a, b: a[1] <= b[1],
    "a.k >= b.k AND a.k < b.x": lambda a, b: b[1] <= a[1] < b[2],
    "a.k = b.k AND a.x > b.x": lambda a, b: a[1] == b[1] and a[2] > b[2],
    "a.k BETWEEN b.k AND b.x AND a.x > 3": lambda a, b: b[1] <= a[1] <= b[2] and a[2] > 3,
}


def holds(on: str, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    read = [a[1], b[1], *([a[2]] if "a.x" in on else []), *([b[2]] if "b.x" in on else [])]
    return None not in read and bool(CONDITIONS[on](a, b))  # type: ignore[no-untyped-call]


def expect(on: str, how: str, rows: list[Any], table: list[Any]) -> Counter[Any]:
    pairs = [(a[0], b[0]) for a in rows for b in table if holds(on, a, b)]
    matched = {a for a, _ in pairs}
    alone = [(a[0], None) for a in rows if a[0] not in matched]
    if how == "semi":
        return Counter((a,) for a in matched)
    if how == "anti":
        return Counter((a,) for a, _ in alone)
    return Counter(pairs + (alone if how == "left" else []))


def plan(on: str, how: str) -> LookupPlan:
    request = make_request(on, how=how)
    stream, table = request.streams
    inputs = stream, table
    planned = plan_lookup(inputs, request.conjuncts, (), HOWS[how], PlainResolver(inputs), table=Side.RIGHT)
    assert isinstance(planned, LookupPlan)
    return planned


def make_block(side: SidePlan, rows: list[Any], is_table: bool) -> pa.RecordBatch:
    """Make the block of a side as Spark does: filters, payload and computed columns."""
    by_name = {"id": 0, "k": 1, "x": 2}
    texts = [one.text for one in side.filters]
    kept = [row for row in rows if all(passes(text, row) for text in texts)]
    columns = {
        one.block_column: pa.array(
            [None if one.field == "ts" else row[by_name[one.field]] for row in kept],
            {"bigint": pa.int64(), "int": pa.int32()}[one.block_type],
        )
        for one in side.carried
    }
    for name, text in side.computed:
        assert name == PASSES, text
        guards = [guard.split(" THEN")[0] for guard in text.split("CASE WHEN ")[1:]]
        values = [1 if all(passes(guard, row) for guard in guards) else None for row in kept]
        columns[name] = pa.array(values, pa.int32())
    assert is_table or len(columns) >= len(side.carried)
    return pa.RecordBatch.from_pydict(columns)


def passes(text: str, row: tuple[Any, ...]) -> bool:
    column = {"k": 1, "x": 2}["k" if ".k" in text else "x"]
    if text.endswith("IS NOT NULL"):
        return row[column] is not None
    assert text == "(a.x) > (3)"
    return row[2] is not None and row[2] > 3


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_a_lookup_finds_what_the_nested_loop_finds(
    on: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(on, how)
    flow = planned.flow()
    rows, table = ROWS + NULLS, [*TABLE, (30, None, 5), (31, 5, None)]
    blocks = make_block(flow.sides[Side.RIGHT], table, True)
    cuts = [0, *sorted(random.Random(on + how).sample(range(1, blocks.num_rows), 2)), blocks.num_rows]
    parts = [blocks.slice(start, end - start) for start, end in pairwise(cuts)]
    payload = pa.schema([blocks.schema.field(one.block_column) for one in flow.sides[Side.RIGHT].carried])
    runs = TableRuns([build(flow.lookup.plan, part) for part in parts], payload)
    found: Counter[Any] = Counter()
    batch = make_block(flow.sides[Side.LEFT], rows, False)
    for start in range(0, batch.num_rows, 7):
        for columns in flow.lookup.answer(batch.slice(start, 7), runs):
            assert len(columns) == len(flow.output.columns)
            ids = [columns[0].to_pylist()] + ([columns[4].to_pylist()] if how in ("inner", "left") else [])
            found.update(zip(*ids, strict=True))
            if how == "left":
                assert columns[-1].to_pylist() == [one is not None for one in ids[1]]
    assert found == expect(on, how, rows, table)


@pytest.mark.parametrize("how", ["inner", "left", "anti"])
def test_the_pairs_that_are_found_are_counted_and_not_the_results(how: str) -> None:
    """A left join counted its tuples without partners as matches, and an anti join counted nothing else."""
    flow = plan("a.k BETWEEN b.k AND b.x", how).flow()
    table = make_block(flow.sides[Side.RIGHT], [(1, 0, 9), (2, 20, 29)], True)
    runs = TableRuns([build(flow.lookup.plan, table)], table.schema)
    counters = Counters()
    batch = make_block(flow.sides[Side.LEFT], [(1, 5, 0), (2, 25, 0), (3, 99, 0), (4, 98, 0)], False)
    list(flow.lookup.answer(batch, runs, 0, counters))
    assert counters.matched == 2
    kinds = {} if how == "inner" else {"the kind of join": how}
    assert flow.words == {"the condition": "a.k BETWEEN b.k AND b.x", **kinds}


@pytest.mark.parametrize("on", ["a.k >= b.k AND a.k < b.x", "abs(a.k - b.k) <= 1"])
def test_a_tuple_is_searched_only_in_runs_that_its_partners_can_be_in(
    on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = plan(on, "inner").flow()
    table = make_block(flow.sides[Side.RIGHT], [(n, 10 * n, 10 * n + 5) for n in range(400)], True)
    runs = TableRuns(
        [build(flow.lookup.plan, table.slice(start, 100)) for start in range(0, 400, 100)], table.schema
    )
    searched = [0] * 4
    search = probing.search

    def count(plan: Any, run: Any, box: Any, *more: Any) -> Any:
        number = next(n for n, one in enumerate(runs.runs) if one is run)
        searched[number] += box.n_probes
        return search(plan, run, box, *more)

    monkeypatch.setattr(probing, "search", count)
    batch = make_block(flow.sides[Side.LEFT], [(n, 40 * n + 1, 0) for n in range(100)], False)
    found = [one for columns in flow.lookup.answer(batch, runs) for one in columns[4].to_pylist()]
    assert sorted(found) == list(range(0, 400, 4))
    assert searched == [25, 25, 25, 25]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_an_empty_table_answers_at_once(how: str) -> None:
    flow = plan("a.k <= b.k", how).flow()
    payload = pa.schema([(one.block_column, pa.int64()) for one in flow.sides[Side.RIGHT].carried])
    batch = make_block(flow.sides[Side.LEFT], ROWS, False)
    answers = list(flow.lookup.answer(batch, TableRuns([], payload)))
    assert sum(len(columns[0]) for columns in answers) == (len(ROWS) if how in ("left", "anti") else 0)


def test_lookups_are_left_to_spark_where_an_index_does_not_help() -> None:
    request = make_request("a.k = b.k")
    stream, table = request.streams
    inputs = stream, table
    for on, how, why in (
        ("a.k = b.k", "inner", "no inequality"),
        ("a.k > 3", "inner", "nothing compares"),
    ):
        asked = make_request(on, how=how)
        planned = plan_lookup(inputs, asked.conjuncts, (), HOWS[how], PlainResolver(inputs), table=Side.RIGHT)
        assert isinstance(planned, str)
        assert why in planned
    assert lookups.PROBES_AT_ONCE > 1000
