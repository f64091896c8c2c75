"""Runs of controlled queries as Spark runs them: some tuples in each epoch, requests, and the nested loop."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.support import oracle
from tests.support.answers import answers
from tests.support.controlled import CONDITION, SCHEMA, UNIT
from tests.support.graphs import GraphCase, answer, side
from tests.support.spark_epochs import Crash, SparkEpochs, count_results
from thetastream.core.condition import TIME, Bound, Dimension, Domain, Equality
from thetastream.core.how import HOWS
from thetastream.core.shed import Shed
from thetastream.core.sides import Side
from thetastream.engine.answers.spec import AnswersSpec
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.running_tasks import ColumnTest, WrittenIndex, WrittenJoin
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.shedding import Shedding
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import Chain, Ring
from thetastream.runtime.control.plan import Rules, TaskRules

RULES = Rules(9, ("hash", "range"))
STEP_US = 1000
"""Spark's watermark has milliseconds."""
WINDOW_MS = 12
"""The window of the condition in the time of these tests: one unit of ``t`` is a millisecond."""
COLUMNS_OF_A_TUPLE = 4


def scaled_unit() -> Any:
    """Return the query of the random schedules, with event times in milliseconds."""
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW_MS * STEP_US), Bound(TIME, WINDOW_MS * STEP_US))
    condition = replace(CONDITION, window=window)
    return replace(UNIT, condition=condition, archive_period_us=2 * STEP_US)


class Epochs:
    """Epochs with some tuples each, and the results that they find."""

    def __init__(self, spark: SparkEpochs, n_streams: int, seed: int) -> None:
        self.spark, self.n_streams = spark, n_streams
        self.counters: list[dict[str, Any]] = []
        self.rng = random.Random(seed)
        self.found: Counter[Any] = Counter()
        self.epoch = 0
        self.watermark: int | None = None
        self.late: int | None = None

    def draw(self, n: int) -> Sequence[pa.RecordBatch]:
        """Draw the tuples of the next epoch, ``n`` of each stream, and remember them."""
        raise NotImplementedError

    def draw_rows(self, n: int, *keys: tuple[str, int]) -> list[list[dict[str, int]]]:
        """Draw ``n`` rows of each stream, with keys from 0 to some number."""
        return [
            [
                {
                    "id": 1000 * self.epoch + 100 * stream + i,
                    "t": (10 * self.epoch + self.rng.randint(-9, 5)) * STEP_US,
                    **{name: self.rng.randint(0, most) for name, most in keys},
                }
                for i in range(n)
            ]
            for stream in range(self.n_streams)
        ]

    def run(self, n: int = 8, crashes: tuple[int, ...] = ()) -> None:
        """Run an epoch with ``n`` tuples of each stream, after attempts that crash before these steps."""
        batches = self.draw(n)
        self.spark.log_offset()
        for crash in crashes:
            with pytest.raises(Crash):
                self.spark.run(batches, self.watermark, crash)
            self.spark.start()
        self.end_epoch(self.spark.run(batches, self.watermark))

    def run_in(self, checkpoint: Path) -> None:
        """Run an epoch, whose offsets a checkpoint has then."""
        self.run()
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        text = "\n".join(["v1", "{}", json.dumps(self.spark.offsets[-1])])
        (checkpoint / "offsets" / str(self.epoch)).write_text(text)

    def end_epoch(self, results: list[pa.RecordBatch]) -> None:
        """Count the results of an epoch, and move the watermark on."""
        self.counters = [
            json.loads(text) for one in results for text in one.column(-1).to_pylist() if text is not None
        ]
        n_labels = len(self.spark.labels)
        ids = range(n_labels, n_labels + self.spark.width, COLUMNS_OF_A_TUPLE)
        self.found += count_results(results, *range(n_labels), *ids)
        self.late = self.watermark
        self.epoch += 1
        self.watermark = max(self.watermark or 0, (10 * self.epoch - 15) * STEP_US) or None


class Run(Epochs):
    """A join of two streams whose units send no messages."""

    rules: ClassVar[Rules] = RULES
    width: ClassVar[int] = 2 * COLUMNS_OF_A_TUPLE
    """The number of columns of a result."""
    largest_key: ClassVar[int] = 2
    labels: ClassVar[Sequence[pa.Field]] = ()
    """The columns of a result before those of its tuples."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, model: Any, seed: int = 1, shed: Shed | None = None
    ) -> None:
        self.condition = scaled_unit().condition
        shedding = None if shed is None else Shedding(shed, self.condition.sides)
        spec = self.build(model)
        spark = SparkEpochs(spec, model, self.rules, folder, patch, shedding, self.width, self.labels)
        super().__init__(spark, 2, seed)
        self.kept: tuple[list[Any], list[Any]] = ([], [])
        self.read: list[tuple[int, ...]] = []
        """How many timely tuples of each stream have arrived by the end of each epoch, if it is known."""

    def build(self, model: Any) -> EngineSpec:
        """Build the query under a model."""
        return TwoStreamSpec(scaled_unit(), model)

    def draw(self, n: int) -> Sequence[pa.RecordBatch]:
        drawn = self.draw_rows(n, ("k", self.largest_key), ("v", 9))
        for kept, rows in zip(self.kept, drawn, strict=True):
            kept += oracle.timely(rows, self.late, "t")
        return [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in drawn]

    def check(self) -> None:
        """Compare the results with the nested loop."""
        assert self.found == oracle.join(self.condition, *self.kept)
        assert len(self.found) > 50


class AntiRun(Run):
    """An anti join, whose tuples are answered when they are decided."""

    rules = replace(RULES, preserved=(Side.LEFT,))
    width = COLUMNS_OF_A_TUPLE
    largest_key = 9

    def build(self, model: Any) -> EngineSpec:
        return AnswersSpec(TwoStreamSpec(scaled_unit(), model), HOWS["anti"])

    def check(self) -> None:
        """Decide all tuples, and compare the results with the nested loop."""
        for _ in range(4):
            self.run(n=0)
        expected = answers("anti", partial(oracle.holds, self.condition), *self.kept)
        assert self.found == Counter((left,) for left, _ in expected.elements())
        assert len(self.found) > 5


class FullHistoryRun(Run):
    """A join without event times, whose stored tuples never expire. A unit sends few of them in an epoch."""

    rules = replace(RULES, never_expires=(True, True), moves_tuples=True)

    def build(self, model: Any) -> EngineSpec:
        sides = tuple(replace(side, time=None) for side in self.condition.sides)
        self.condition = replace(self.condition, sides=(sides[0], sides[1]), window=None)
        unit = replace(scaled_unit(), condition=self.condition, archive_period_us=None)
        return MovingSpec(TwoStreamSpec(unit, model), 7)

    def draw(self, n: int) -> Sequence[pa.RecordBatch]:
        self.late = None  # Without event times, no tuple is late.
        return super().draw(n)


class TasksRun(Run):
    """A program with the task "both", and tasks that are added. The model is a biclique or a chain."""

    labels: ClassVar[Sequence[pa.Field]] = (pa.field("task", pa.string()),)
    rules = replace(
        RULES,
        routings=(),
        tasks=TaskRules(3, ("both",), (tuple(SCHEMA.names),) * 2, (tuple(SCHEMA.names),) * 2),
    )

    def build(self, model: Any) -> EngineSpec:
        unit = scaled_unit()
        if isinstance(model, Chain):
            join: Any = HandshakeSpec(unit.condition, unit.indexes, unit.archive_period_us, model)
        else:
            join = TwoStreamSpec(unit, model)
        return SharedTasksSpec((TaskSpec("both", join),), is_open=True)

    def write_task(self, most_ms: int) -> WrittenJoin:
        """Write a task with the equality of "both", a shorter window, and a filter of right tuples."""
        window = Dimension(Side.LEFT, TIME, Bound(TIME, -most_ms * STEP_US), Bound(TIME, most_ms * STEP_US))
        left, right = self.condition.sides
        index, test = WrittenIndex("hash", (0,)), ColumnTest("v", ">", Domain.INT, 3)
        equalities = self.condition.equalities
        return WrittenJoin(
            "drawn",
            (left, right),
            (index, index),
            equalities,
            window=window,
            archive_period_us=STEP_US,
            tests=((), ((test,),)),
        )

    def draw(self, n: int) -> Sequence[pa.RecordBatch]:
        batches = super().draw(n)
        self.read.append(tuple(map(len, self.kept)))
        return batches

    def find_pairs(self, join: WrittenJoin | None, began: int, ended: int | None) -> Counter[Any]:
        """Find the pairs of a task whose tuples have arrived in the epochs [began, ended)."""
        condition = self.condition if join is None else join.condition
        first = self.read[began - 1] if began else (0, 0)
        last = (None, None) if ended is None else self.read[ended - 1]
        left, right = (self.kept[side][first[side] : last[side]] for side in Side)
        return oracle.join(condition, left, [row for row in right if join is None or row["v"] > 3])


class MovingRingRun(Run):
    """A ring of two streams that moves the tuples of a window. A node sends few of them in an epoch."""

    rules = replace(RULES, moves_tuples=True)

    def build(self, model: Any) -> EngineSpec:
        return MovingSpec(TwoStreamSpec(scaled_unit(), model), 7)


class ChainRun(Run):
    """A join on a handshake chain."""

    rules = replace(RULES, only_sizes=True)

    def build(self, model: Any) -> EngineSpec:
        unit = scaled_unit()
        return HandshakeSpec(unit.condition, unit.indexes, unit.archive_period_us, model)


class MultiwayRun(Epochs):
    """A join of three streams hop by hop. Under a ring, hop orders follow what is measured."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, model: Any, seed: int = 1) -> None:
        window = Ends(-WINDOW_MS * STEP_US, WINDOW_MS * STEP_US)
        edges = {pair: Edge(window=window) for pair in combinations(range(3), 2)}
        edges |= {pair: Edge((Equality(0, 0),), window=window) for pair in ((0, 1), (1, 2))}
        graph = JoinGraph(tuple(map(side, range(3))), edges)
        lifetimes = tuple(map(graph.lifetime_us, range(3)))
        free = Refinement((True,) * 3, ((0b011, 0.5), (0b110, 0.5)), lifetimes)
        refinement = free if isinstance(model, Ring) else None
        orders = ((1, 2), (2, 0), (1, 0))
        spec = build_multiway_spec(graph, orders, model, 2 * STEP_US, refinement)
        rules = replace(RULES, only_sizes=True)
        spark = SparkEpochs(spec, model, rules, folder, patch, width=3 * COLUMNS_OF_A_TUPLE)
        super().__init__(spark, 3, seed)
        self.case = GraphCase(graph, orders, None, ())
        self.read: list[Any] = []

    def draw(self, n: int) -> Sequence[pa.RecordBatch]:
        drawn = self.draw_rows(n, ("k0", 3), ("k1", 3))
        self.read.append((tuple(drawn), self.watermark))
        return [self.case.batch(stream, rows) for stream, rows in enumerate(drawn)]

    def check(self) -> None:
        """Compare the results with the nested loop."""
        assert self.found == answer(replace(self.case, epochs=tuple(self.read)))
        assert len(self.found) > 50
