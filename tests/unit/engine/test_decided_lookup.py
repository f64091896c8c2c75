"""A lookup is exact if Spark drops candidate pairs between it and the answers, however rows are cut.

{ (a, b) : a.k >= b.k AND a.id IN (b.id, 7) }, of which Spark evaluates the second conjunct
"""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.support.requests import PlainResolver, make_request
from tests.unit.engine.test_nearest_rows import Row, draw, make_block, rank
from thetastream.core.columns import DECIDED
from thetastream.core.how import HOWS, How, Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.engine import decided_lookup
from thetastream.engine.lookup import TableRuns
from thetastream.engine.store.run import build
from thetastream.families.lookups import LookupPlan, plan_lookup
from thetastream.runtime.lookup_steps import LookupFlow, make_deciding_step

ON = "a.k >= b.k AND a.id IN (b.id, 7)"
BY = "abs(a.x - b.x)"
KINDS = {"bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}


def holds(a: Row, b: Row) -> bool:
    return a[1] is not None and b[1] is not None and a[1] >= b[1] and a[0] in (b[0], 7)


def choose_how(name: str) -> How:
    ranked = {"nearest": False, "nearest left": True}
    return find_nearest(Nearest(2, BY, keep_unmatched=ranked[name])) if name in ranked else HOWS[name]


def plan(how: How, table: Side) -> LookupFlow:
    on = ON if table is Side.RIGHT else "b.k >= a.k AND b.id IN (a.id, 7)"
    request = make_request(on, how=how)
    left, right = request.streams
    inputs = left, right
    planned = plan_lookup(inputs, request.conjuncts, (), how, PlainResolver(inputs), table=table)
    assert isinstance(planned, LookupPlan)
    evaluated = request.conjuncts[-1].text
    assert planned.describe().endswith(f"; Spark evaluates {evaluated} for the pairs that it finds")
    flow = planned.flow()
    assert flow.candidates is not None
    assert flow.candidates.residual
    return flow


def expect(how: str, rows: list[Row], table: list[Row]) -> Counter[Any]:
    partners = {a[0]: [b for b in table if holds(a, b)] for a in rows}
    if "nearest" in how:
        for a in rows:
            ranks = sorted(rank(BY, a, b) for b in partners[a[0]])
            worst = ranks[:2][-1] if ranks else 0
            partners[a[0]] = [b for b in partners[a[0]] if rank(BY, a, b) <= worst]
    if how == "semi":
        return Counter((n,) for n, found in partners.items() if found)
    if how == "anti":
        return Counter((n,) for n, found in partners.items() if not found)
    alone = [(n, None) for n, found in partners.items() if not found and how != "nearest"]
    return Counter([(n, b[0]) for n, found in partners.items() for b in found] + alone)


def find_id(flow: LookupFlow, side: Side) -> str:
    """Find the block column of the column ``id``."""
    return next(one.block_column for one in flow.sides[side].carried if one.field == "id")


def drop_pairs(batch: pa.RecordBatch, flow: LookupFlow) -> pa.RecordBatch:
    """Evaluate the residual, as Spark does."""
    side = flow.lookup.side
    mine, theirs = (batch.column(find_id(flow, one)).to_pylist() for one in (side, side.other))
    decided = batch.column(DECIDED).to_pylist()
    kept = [
        n
        for n, (d, x, y) in enumerate(zip(decided, mine, theirs, strict=True))
        if d is not None or x in (y, 7)
    ]
    return batch.take(pa.array(kept, pa.int64()))


def answer(flow: LookupFlow, batch: pa.RecordBatch, runs: TableRuns, size: int) -> Counter[Any]:
    """Look tuples up, evaluate the residual on batches of some rows, and return the ids of the answers."""
    assert flow.candidates is not None
    names = [column.split()[0].strip("`") for column in flow.candidates.columns]
    pieces = [
        pa.RecordBatch.from_arrays(columns, names=names)
        for start in range(0, batch.num_rows, 17)
        for columns in flow.lookup.answer(batch.slice(start, 17), runs, start)
    ]
    schema = pa.unify_schemas([piece.schema for piece in pieces], promote_options="permissive")
    whole = pa.Table.from_batches([piece.cast(schema) for piece in pieces]).combine_chunks()
    left = (drop_pairs(one, flow) for one in whole.to_batches(size))
    result = pa.schema([(name, KINDS[kind]) for name, kind in map(str.split, flow.output.columns)])
    shown = [side for side in (flow.lookup.side, flow.lookup.side.other) if side in flow.lookup.how.shown]
    found: Counter[Any] = Counter()
    for answers in make_deciding_step(flow, result)(left):
        ids = [answers.column(find_id(flow, side)).to_pylist() for side in shown]
        found.update(zip(*ids, strict=True))
    return found


@pytest.mark.parametrize("how", ["left", "anti"])
def test_beside_an_empty_table_each_tuple_is_alone(how: str) -> None:
    flow, rows = plan(HOWS[how], Side.RIGHT), draw(random.Random(how), 20, True)
    table = make_block(flow.sides[Side.RIGHT], [])
    found = answer(flow, make_block(flow.sides[Side.LEFT], rows), TableRuns([], table.schema), 9)
    assert found == expect(how, rows, [])
    assert len(found) == 20


@pytest.mark.parametrize("how", ["left", "semi", "anti", "nearest", "nearest left"])
def test_tuples_of_two_batches_differ_if_spark_drops_all_pairs_of_the_second_one(how: str) -> None:
    rows: list[Row] = [(n, 5, 1) for n in range(34)]
    flow, table = plan(choose_how(how), Side.RIGHT), [(1000, 1, 1)]
    block = make_block(flow.sides[Side.RIGHT], table)
    runs = TableRuns([build(flow.lookup.plan, block)], block.schema)
    assert answer(flow, make_block(flow.sides[Side.LEFT], rows), runs, 1000) == expect(how, rows, table)


@pytest.mark.parametrize("how", ["left", "right", "semi", "anti", "nearest", "nearest left"])
@pytest.mark.parametrize("size", [3, 1000])
def test_answers_behind_spark_are_those_of_the_nested_loop(
    how: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decided_lookup, "PRUNE_ROWS", 5)
    chance = random.Random(f"{how} {size}")
    for has_nulls in (False, True):
        flow = plan(choose_how(how), Side.LEFT if how == "right" else Side.RIGHT)
        stored, probing = flow.lookup.side.other, flow.lookup.side
        rows, table = draw(chance, 50, has_nulls), draw(chance, 60, has_nulls)
        block = make_block(flow.sides[stored], table)
        runs = TableRuns(
            [build(flow.lookup.plan, block.slice(0, 20)), build(flow.lookup.plan, block.slice(20))],
            block.schema,
        )
        found = answer(flow, make_block(flow.sides[probing], rows), runs, size)
        assert found == expect("left" if how == "right" else how, rows, table)
        assert found
