"""Several tasks over one inbox: each task equals a join of the tuples that pass its filters, and the nested
loop."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.draws import draw_cases
from tests.support.local import LocalChain, LocalJoin, LocalTasks
from tests.support.strategies import Case, cases, conditions, index_specs
from tests.unit.engine.test_chain import EVERYTHING
from thetastream.core import records
from thetastream.core.blocks import Matches
from thetastream.core.condition import TIME, Bound, Condition, Dimension, PythonPredicate
from thetastream.core.errors import StateError
from thetastream.core.identity import Part
from thetastream.core.sides import Side
from thetastream.engine.handshake.query import HandshakeState
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.shared_tasks import SHARED_COUNTERS, TaskSpec, TasksState
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import IndexSpec, Scan
from thetastream.models import Biclique, Chain, Matrix, Split
from thetastream.models.base import Model
from thetastream.runtime.state.manifest import NOTHING, LastEpoch, Manifest, decode

UNITS = st.integers(1, 3)
MODELS = st.one_of(
    st.builds(Biclique, st.tuples(UNITS, UNITS)), st.builds(Matrix, UNITS, UNITS), st.builds(Split, UNITS)
)
CHAINS = st.builds(Chain, st.integers(1, 4), st.integers(1, 5), st.integers(0, 5))
GUARDS = st.sampled_from([None, None, "p2", "p3"])
"""Boolean columns: ``p2`` is true for ids that 2 divides, and ``p3`` for ids that 3 divides."""


def lower_id(a: Any, b: Any) -> Any:
    return pc.less(a.id, b.id)


PREDICATE = PythonPredicate("lower_id", lower_id, ("a", "b"), ((("id", "id"),),) * 2)


def passes(guard: str | None, row: dict[str, Any]) -> bool:
    return guard is None or row["id"] % int(guard[1:]) == 0


def sent(case: Case, side: Side, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    batch = case.batch(side, rows)
    for guard in ("p2", "p3"):
        batch = batch.append_column(guard, pa.array([passes(guard, row) for row in rows], pa.bool_()))
    return batch


@dataclass(frozen=True)
class DrawnTask:
    """One task without a model."""

    name: str
    unit: UnitSpec
    passes: tuple[str | None, str | None] = (None, None)

    @property
    def condition(self) -> Condition:
        return self.unit.condition

    def under(self, model: Model) -> TaskSpec:
        if isinstance(model, Chain):
            unit = self.unit
            join = HandshakeSpec(unit.condition, unit.indexes, unit.archive_period_us, model)
            return TaskSpec(self.name, join, self.passes)
        return TaskSpec(self.name, TwoStreamSpec(self.unit, model), self.passes)


@st.composite
def task_sets(draw: st.DrawFn) -> tuple[Case, list[DrawnTask]]:
    """Draw two to four tasks over the streams of one case, each with its own condition, indexes and
    filters."""
    case = draw(cases())
    specs = [DrawnTask("t0", UnitSpec(case.condition, case.indexes, case.archive_period_us))]
    for number in range(1, draw(st.integers(2, 4))):
        condition: Condition = draw(conditions(case.condition.sides[0].keys))
        indexes = draw(index_specs(condition)), draw(index_specs(condition))
        period = draw(st.one_of(st.none(), st.integers(1, 8))) if condition.window else None
        if draw(st.booleans()):
            condition = replace(condition, predicates=(PREDICATE,))
        unit = UnitSpec(condition, indexes, period)
        specs.append(DrawnTask(f"t{number}", unit, (draw(GUARDS), draw(GUARDS))))
    return case, specs


def wanted(case: Case, spec: DrawnTask) -> Counter[tuple[int, int]]:
    """Compute the answer of a task by a nested loop over the timely tuples that pass its filters."""
    kept: tuple[list[Any], list[Any]] = ([], [])
    for *streams, late_us in oracle.pair_with_late_watermark(case.epochs):
        for side in Side:
            timely = oracle.timely(streams[side], late_us, "t")
            kept[side].extend(row for row in timely if passes(spec.passes[side], row))
    pairs = oracle.join(spec.condition, *kept)
    if PREDICATE in spec.condition.predicates:
        return Counter({pair: n for pair, n in pairs.items() if pair[0] < pair[1]})
    return pairs


def run(
    case: Case, together: LocalTasks, found: dict[str, Counter[tuple[int, int]]]
) -> Iterator[tuple[list[pa.RecordBatch], int | None]]:
    """Run a case to its end, add the pairs of each task to ``found``, and check the counters.

    Yield the tuples and the watermark of each epoch after it has run.
    """

    def add(pieces: Iterable[tuple[str, Matches]]) -> None:
        for name, (a, b, _) in pieces:
            found[name].update(zip(a["id"].to_pylist(), b["id"].to_pylist(), strict=True))

    late_us, watermark = None, None
    for *streams, watermark in case.epochs:
        batches = [sent(case, side, streams[side]) for side in Side]
        add(together.epoch(*batches, watermark))
        late = sum(len(rows) - len(oracle.timely(rows, late_us, "t")) for rows in streams)
        late_us = watermark
        assert sum(unit.late for unit in together.counters) == late
        for unit in together.counters:
            check_sums(unit)
        yield batches, watermark
    add(together.drain(watermark))


def check_sums(unit: Any) -> None:
    """Check that the counters of a unit are sums over its tasks, where they are not shared."""
    for counter in unit.tasks["t0"]:
        assert getattr(unit, counter) == sum(task[counter] for task in unit.tasks.values())
    assert not set(SHARED_COUNTERS) & set(unit.tasks["t0"])


@draw_cases(20)
@given(task_sets(), MODELS)
def test_each_task_is_its_own_join(drawn: tuple[Case, list[DrawnTask]], model: Model) -> None:
    case, tasks = drawn
    specs = [task.under(model) for task in tasks]
    together = LocalTasks(specs)
    alone = {task.name: LocalJoin(task.unit, model) for task in tasks}
    found: dict[str, Counter[tuple[int, int]]] = {task.name: Counter() for task in tasks}
    for batches, watermark in run(case, together, found):
        # A unit does the same work for a task as for a separate join.
        for spec in specs:
            mine = [spec.select_passing(side, batch) for side, batch in zip(Side, batches, strict=True)]
            matched = sum(len(a) for a, *_ in alone[spec.name].epoch(*mine, watermark))
            assert sum(unit.tasks[spec.name]["matched"] for unit in together.counters) == matched
    assert found == {task.name: wanted(case, task) for task in tasks}


@draw_cases(20)
@given(task_sets(), CHAINS)
def test_each_task_of_a_chain_hands_on_its_own_tuples(
    drawn: tuple[Case, list[DrawnTask]], chain: Chain
) -> None:
    case, tasks = drawn
    found: dict[str, Counter[tuple[int, int]]] = {task.name: Counter() for task in tasks}
    for _ in run(case, LocalTasks([task.under(chain) for task in tasks]), found):
        pass
    assert found == {task.name: wanted(case, task) for task in tasks}


def test_a_task_on_a_chain_works_as_a_chain_of_its_own() -> None:
    """Its blocks follow what its workers measure, so it finds the same pairs in the same epochs."""
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -5), Bound(TIME, 5))
    spec = HandshakeSpec(Condition(EVERYTHING.sides, window=window), (IndexSpec(Scan()),) * 2, 2, Chain(3))
    alone, together = LocalChain(spec), LocalTasks([TaskSpec("one", spec)])
    for now in range(30):
        rows = [pa.RecordBatch.from_pydict({"id": list(range(100)), "t": [now] * 100}) for _ in Side]
        found = [sum(len(a) for a, *_ in alone.epoch(*rows, now - 1))]
        found += [sum(len(a) for _, (a, *_) in together.epoch(*rows, now - 1))]
        assert found[0] == found[1]
    states = [records.decode(HandshakeState, state.tasks["one"]) for state in together.states]
    for task, worker in zip(states, alone.states, strict=True):
        assert task.neighbourhood == worker.neighbourhood
        assert task.neighbourhood.measured


def test_state_of_tasks_and_of_one_join_do_not_mix() -> None:
    query = {"the set of tasks": Part("far, near", "far, near")}
    state = TasksState({"near": {"arrived": [1, 2]}, "far": {}})
    heard = LastEpoch(7, 1_000)
    manifest = Manifest(heard, None, state)
    assert decode(manifest.encode(query), query, TasksState) == manifest
    assert decode(None, query, TasksState) == Manifest(NOTHING, None, TasksState())
    for text, ask in (
        (
            manifest.encode(query),
            lambda text: decode(text, {"the condition": Part("a.x < b.x", "a.x < b.x")}, UnitState),
        ),
        (Manifest(heard, None, UnitState()).encode({}), lambda text: decode(text, query, TasksState)),
    ):
        with pytest.raises(StateError) as refused:
            ask(text)
        assert refused.value.condition == "STATE_OF_ANOTHER_QUERY"
        assert "the set of tasks was " in str(refused.value)
