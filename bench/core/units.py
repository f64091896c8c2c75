"""Measures the units of the workloads alone, without Spark: ``python -m bench units``.

One unit of each stream runs in this process, over the tuples and with the index that the workload has on
Spark. Tuples are routed, pairs are found and the window is kept. No state is written, and no row goes to
Spark. The measured epochs begin when the window is full and the kernels are compiled. The exit code is 1 if
an epoch has another number of pairs than DuckDB counts in it.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import process_time

import pyarrow as pa
import pyarrow.compute as pc

from bench.core import check, data
from bench.core.data import FIRST_TS_US, Shape
from bench.core.internals import (
    SUBINDEXES_PER_WINDOW,
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    LocalRun,
    Side,
    SideSpec,
    TwoStreamSpec,
    UnitSpec,
    choose_index,
)
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.core.workloads import WORKLOADS
from thetastream.models import Biclique

EPOCHS, SETTLE = 8, 3
"""Measured epochs, and the epochs before them in which the window is full already."""
SHOWN = (
    "workload; index; window|tuples in the window; epoch|tuples of a stream in an epoch; cpu_us|CPU us/tuple;"
    " candidates_per_tuple|candidates/tuple; pairs_per_tuple|pairs/tuple; is_correct|as many as DuckDB's"
)


@dataclass(frozen=True)
class Box:
    """The condition of a workload as a unit sees it, without the window."""

    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()


X, Y = Key("x", Domain.INT), Key("y", Domain.FLOAT)
LOW, HIGH = Key("b", Domain.FLOAT, -10), Key("b", Domain.FLOAT, +10)
SYMBOL, PRICE = Key("number", Domain.INT), Key("price", Domain.FLOAT)
BOXES: Mapping[str, Box] = {
    "handshake": Box(
        ((X, Y), (Key("a", Domain.INT), LOW, HIGH)),
        dimensions=(
            Dimension(Side.LEFT, 0, Bound(0, -10), Bound(0, +10)),
            Dimension(Side.LEFT, 1, Bound(1), Bound(2)),
        ),
    ),
    "equi": Box(((Key("k", Domain.INT),),) * 2, (Equality(0, 0),)),
    "stock": Box(((SYMBOL, PRICE),) * 2, (Equality(0, 0),), (Dimension(Side.LEFT, 1, Bound(1), None),)),
    "inequality": Box(
        ((Key("v", Domain.FLOAT),),) * 2, dimensions=(Dimension(Side.LEFT, 0, None, Bound(0, 0, True)),)
    ),
}
"""What Catalyst makes of the condition of each workload."""


def make_spec(shape: Shape) -> TwoStreamSpec:
    """Build the join of a workload, with one unit of each stream."""
    box, span, time = BOXES[shape.workload], shape.window_us, Key("ts", Domain.INT)
    one = replace(shape, epoch=1)
    columns = [tuple(data.draw_epoch(one, side, 0).column_names) for side in (0, 1)]
    left, right = (
        SideSpec(alias, names, (SYMBOL.column,) if SYMBOL in keys else (), keys, time)
        for alias, names, keys in zip(shape.spec.aliases, columns, box.keys, strict=True)
    )
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -span), Bound(TIME, span))
    condition = Condition((left, right), box.equalities, box.dimensions, window)
    index, _ = choose_index(condition)
    return TwoStreamSpec(
        UnitSpec(condition, (index, index), -(-span // SUBINDEXES_PER_WINDOW)), Biclique((1, 1))
    )


def read_epoch(shape: Shape, side: int, epoch: int) -> pa.RecordBatch:
    """Draw the tuples of an epoch. Symbols get a number, in place of Spark's hash."""
    (batch,) = data.draw_epoch(shape, side, epoch).combine_chunks().to_batches()
    if shape.workload == "stock":
        number = pc.cast(pc.utf8_slice_codeunits(batch["symbol"], 1), pa.int64())
        batch = batch.append_column(SYMBOL.column, number)
    return batch


def run_epochs(shape: Shape) -> Iterator[Row]:
    """Run all epochs of a shape; yield the CPU time, the candidates and the pairs of each."""
    tuples = 2 * shape.epoch
    run = LocalRun(make_spec(shape))
    for epoch in range(shape.epochs):
        batches = [read_epoch(shape, side, epoch) for side in (0, 1)]
        watermark = FIRST_TS_US + max(0, epoch * shape.epoch - 1) * shape.spec.tick_us
        began = process_time()
        pairs = sum(len(columns[0]) for columns in run.epoch(batches, watermark))
        yield {
            "cpu_us": 1e6 * (process_time() - began) / tuples,
            "candidates_per_tuple": sum(counters.candidates for counters in run.counters) / tuples,
            "pairs": pairs,
        }


def measure(shape: Shape, announce: Callable[[str], None]) -> Row:
    """Run a workload; return the medians of its measured epochs, and whether all epochs had the right
    pairs."""
    data.ensure(shape)
    epochs = list(run_epochs(shape))
    found = [epoch.pop("pairs") for epoch in epochs]
    measured = find_medians(epochs[-EPOCHS:])
    return {
        **measured,
        "pairs_per_tuple": statistics.mean(found[-EPOCHS:]) / (2 * shape.epoch),
        "is_correct": found == check.expected(shape, shape.epochs, announce),
    }


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count of pairs is wrong."""
    shapes = {}
    for name in BOXES:
        workload = WORKLOADS[name]
        window, epoch = asked.window or workload.window, asked.epoch or workload.epoch
        shapes[name] = Shape(name, window, epoch, -(-window // epoch) + SETTLE + EPOCHS, asked.seed)

    def run(name: str, turn: str) -> Row:
        row = measure(shapes[name], announce)
        announce(f"{turn}: {row['cpu_us']:.2f} us of CPU time a tuple")
        return row

    rows = []
    for name, runs in measure_in_turn(shapes, asked.repeat, run).items():
        shape = shapes[name]
        index = make_spec(shape).unit.indexes[0].shape.name
        shown = {"workload": name, "index": index, "window": shape.window, "epoch": shape.epoch}
        is_correct = all(row["is_correct"] for row in runs)
        rows.append({**shown, **find_medians(runs), "is_correct": is_correct})
    head = (
        "One unit of each stream in this process, without Spark: medians of"
        f" {EPOCHS} epochs with a full window and of {asked.repeat} runs, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
