"""An aggregate that only the registry of the driver knows: plan, explain, batch and stream, against Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import replay
from thetastream.aggregates import REGISTRY, Aggregate, Measure, MeasureFunction, NotFoldable
from thetastream.aggregates.base import Accumulator, AggregateCall, Column
from thetastream.aggregates.operands import SideColumn
from thetastream.core.blocks import Matches
from thetastream.core.sides import Side
from thetastream.core.spark_types import is_integral
from thetastream.engine.views import Fold, LocalView

ROWS = 40
ON, WITHIN = "abs(a.id - b.id) <= 5", "20 seconds"
AGGREGATES = {
    "x": "bit_xor(b.v)",
    "y": "1 + bit_xor(a.n) FILTER (WHERE a.k < 2)",
    "s": "sum(b.v)",
}


@pytest.fixture
def bit_xor() -> Iterator[Aggregate]:
    # Classes of a function are pickled by value, as those of a notebook are: workers cannot import them.
    class Folded(Accumulator):
        def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
            values = found[0].combine_chunks()
            lists = [[value for value in group if value is not None] for group in values.to_pylist()]
            made = [int(np.bitwise_xor.reduce(group)) if group else None for group in lists]
            return [pa.array(made, values.type.value_type)]

        merge = count

    class Xor(MeasureFunction):
        """The bits that an odd number of values has."""

        name = "xor"

        def types(self, type_: str) -> Sequence[str | None]:
            return (None,)

        def build_accumulator(self, name: str) -> Accumulator:
            return Folded(name, "list", "list")

    class BitXor(Aggregate):
        """``bit_xor(x)``."""

        names = ("BIT_XOR",)

        def merge(self, call: AggregateCall) -> str:
            if not is_integral(call.type):
                raise NotFoldable(f"{call.type} has no bits")
            (bits,) = call.measure(Xor(), call.value)
            return f"bit_xor({bits})"

    REGISTRY["BIT_XOR"] = BitXor()
    yield REGISTRY["BIT_XOR"]
    del REGISTRY["BIT_XOR"]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return spark.sql(
        f"SELECT id, id % 4 AS k, CAST(if(id % 5 = 0, NULL, id * 37 % 100) AS INT) AS v, id * 1000003 AS n, "
        f"timestamp_seconds(1700000000 + id) AS ts FROM range({ROWS})"
    ).localCheckpoint()


def answer_of(table: DataFrame) -> set[tuple[int, ...]]:
    """The groups as Spark computes them."""
    a, b = table.alias("a"), table.alias("b")
    pairs = a.crossJoin(b).where(f"{ON} AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= 20")
    found = pairs.groupBy("a.k").agg(*(F.expr(text).alias(name) for name, text in AGGREGATES.items()))
    return {tuple(row) for row in found.collect()}


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_a_registered_aggregate_is_planned_explained_and_run(
    bit_xor: Aggregate, spark: SparkSession, table: DataFrame, tmp_path: Path
) -> None:
    wanted = answer_of(table)
    assert len(wanted) == 4
    items = ", ".join(f"{text} AS {name}" for name, text in AGGREGATES.items())
    # 1. Plan and explain: units fold it, unless it reads both streams in a way that they do not calculate.
    text = f"SELECT ONLINE a.k, {items} FROM a, b WHERE {ON} WITHIN {WITHIN} GROUP BY a.k"
    explained = th.sql(spark, f"EXPLAIN {text}", {"a": table, "b": table}).collect()[0][0]
    assert "units fold xor((b.v)), xor(CASE WHEN (a.k < 2) THEN (a.n) END), sum((b.v)) by a.k" in explained
    other = text.replace("bit_xor(b.v)", "bit_xor(b.v | a.v)")
    explained = th.sql(spark, f"EXPLAIN {other}", {"a": table, "b": table}).collect()[0][0]
    assert "pairs leave the units" in explained
    # 2. Batch and stream, in workers that have not seen the registry.
    rows = th.sql(spark, text, {"a": table, "b": table}).collect()
    assert {tuple(row) for row in rows} == wanted
    epochs = [range(20), range(20, ROWS)]
    streams = {alias: replay(table, epochs, tmp_path).withWatermark("ts", "5 seconds") for alias in "ab"}
    latest: dict[int, tuple[int, ...]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        latest.update({row[0]: tuple(row) for row in batch.collect()})

    updates = th.aggregate(streams, ON, WITHIN, "a.k", AGGREGATES, model=th.Biclique((1, 2)))
    writer = updates.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert set(latest.values()) == wanted


def test_without_its_registration_the_same_text_runs_over_pairs(
    spark: SparkSession, table: DataFrame
) -> None:
    text = f"SELECT ONLINE a.k, bit_xor(b.v) AS x FROM a, b WHERE {ON} WITHIN {WITHIN} GROUP BY a.k"
    explained = th.sql(spark, f"EXPLAIN {text}", {"a": table, "b": table}).collect()[0][0]
    assert "pairs leave the units" in explained


def test_views_of_a_registered_aggregate_merge(bit_xor: Aggregate) -> None:
    class Call:
        name, is_every_match, value, presence, type = "BIT_XOR", False, "b.v", "b.v", "bigint"
        options: Sequence[str] = ()
        functions: list[MeasureFunction]

        def __init__(self) -> None:
            self.functions = []

        def measure(self, function: MeasureFunction, text: str | None = None) -> tuple[str, ...]:
            self.functions.append(function)
            return function.columns("m0")

        def type_of(self, text: str) -> str | None:
            return "bigint"

    call = Call()
    assert bit_xor.merge(call) == "bit_xor(m0)"
    view = LocalView(Fold(((Side.LEFT, "k"),), (Measure(call.functions[0], SideColumn(Side.RIGHT, "v")),)))
    pieces = [([1, 2, 1], [5, None, 3]), ([2, 1], [None, 9]), ([3, 2], [4, 12])]
    for keys, values in pieces:
        left, right = (
            pa.RecordBatch.from_pydict({"k": keys}),
            pa.RecordBatch.from_pydict({"v": pa.array(values, pa.int64())}),
        )
        view.add(Matches(left, right))
    found = {row["g0"]: row["m0"] for batch in view.rows() for row in batch.to_pylist()}
    assert found == {1: 5 ^ 3 ^ 9, 2: 12, 3: 4}
