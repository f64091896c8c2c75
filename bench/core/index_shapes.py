"""Two conditions that have an index of their own, beside what they would have without it.

overlap    a.start <= b.end AND b.start <= a.end, lengths by a Pareto law: ``intervals`` beside ``sorted``
sphere     points at most 500 metres apart, drawn from the whole Earth: ``grid`` beside ``scan``

``python -m bench index-shapes`` runs one unit in this process, without Spark. Both streams have the same
number of tuples per epoch, and the window holds several epochs. The targets are 5 times the rate for overlap,
and 20 times the rate for sphere. The exit code is 1 if two indexes find different numbers of pairs.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np
import pyarrow as pa

from bench.core import internals as inside
from bench.core.internals import TIME, Bound, Condition, Dimension, Domain, IndexSpec, Key, Side, SideSpec
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn
from thetastream import within_metres
from thetastream.models import Biclique

EPOCH, WINDOW_EPOCHS, EPOCHS = 8_192, 4, 12
METRES = 500
SHOWN = (
    "condition; index; tuples_per_s; candidates_per_tuple|candidates/tuple; pairs_per_tuple|pairs/tuple;"
    " speed_up|times the rate without it; target"
)
Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class Case:
    """A condition, the index that it has, and the index that it would have otherwise."""

    name: str
    condition: Condition
    own: IndexSpec
    other: IndexSpec
    draw: Callable[[np.random.Generator, int], Columns]
    """Draws the keys and the payload of one stream."""
    target: float

    def draw_epochs(self, n: int, seed: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Draw the tuples of both streams, one pair of batches per epoch of ``n`` tuples of a stream."""
        random = np.random.default_rng(seed)
        for epoch in range(EPOCHS):
            times = {"ts": pa.array(np.arange(n) + epoch * n)}
            left, right = (pa.RecordBatch.from_pydict(times | self.draw(random, n)) for _ in Side)
            yield left, right


def list_cases(epoch: int) -> list[Case]:
    """List the cases; the window holds ``WINDOW_EPOCHS`` epochs."""
    return [describe_overlap(epoch), describe_sphere(epoch)]


def describe_overlap(epoch: int) -> Case:
    """Describe the overlap of intervals: most are short, and a few span everything."""
    dimensions = tuple(Dimension(side, 0, None, Bound(1)) for side in Side)
    condition = _make_condition(("start", "end"), Domain.FLOAT, dimensions, epoch)
    own, other = (
        IndexSpec(inside.SHAPES["intervals"], (), (0, 1)),
        IndexSpec(inside.SHAPES["sorted"], (), (0,)),
    )
    return Case("overlap", condition, own, other, _draw_intervals, 5)


def describe_sphere(epoch: int) -> Case:
    """Describe points that are near each other: three bands, and the distance as a Python predicate."""
    *bands, near = within_metres("a.lat", "a.lon", "b.lat", "b.lon", METRES)
    assert isinstance(near, inside.Predicate)
    reach = int(str(bands[0]).rpartition("<=")[2])
    dimensions = tuple(Dimension(Side.LEFT, n, Bound(n, -reach), Bound(n, reach)) for n in range(3))
    point = tuple((name, name) for name in ("lat", "lon"))
    function = near.adapt(lambda alias, name: False)  # no column is a TIMESTAMP
    predicate = inside.PythonPredicate(near.name, function, ("a", "b"), (point, point))
    condition = _make_condition(("x", "y", "z"), Domain.INT, dimensions, epoch, predicate)
    own, other = IndexSpec(inside.SHAPES["grid"], (), (0, 1)), IndexSpec(inside.SHAPES["scan"])
    return Case("sphere", condition, own, other, _draw_points, 20)


def _make_condition(
    names: tuple[str, ...],
    domain: Domain,
    dimensions: tuple[Dimension, ...],
    epoch: int,
    *predicates: inside.PythonPredicate,
) -> Condition:
    keys, time = tuple(Key(name, domain) for name in names), Key("ts", Domain.INT)
    left, right = (SideSpec(alias, ("ts",), names, keys, time) for alias in "ab")
    span = WINDOW_EPOCHS * epoch
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -span), Bound(TIME, span))
    return Condition((left, right), (), dimensions, window, predicates)


def _draw_intervals(random: np.random.Generator, n: int) -> Columns:
    start = random.uniform(0, 1e6, n)
    return {"start": pa.array(start), "end": pa.array(start + 5 * random.pareto(1, n))}


def _draw_points(random: np.random.Generator, n: int) -> Columns:
    lat, lon = np.degrees(np.arcsin(random.uniform(-1, 1, n))), random.uniform(-180, 180, n)
    up, along = np.radians(lat), np.radians(lon + 25)
    axes = np.sin(up), np.cos(up) * np.cos(along), np.cos(up) * np.sin(along)
    keys = np.trunc(round(inside.RADIUS_M * 1000) * np.array(axes)).astype(np.int64)
    values = zip("xyz", keys, strict=True)
    return {"lat": pa.array(lat), "lon": pa.array(lon), **{name: pa.array(axis) for name, axis in values}}


def measure(case: Case, index: IndexSpec, epoch: int, seed: int) -> Row:
    """Run a join; return its rate, its candidates and its pairs in epochs with a full window."""
    period = max(1, WINDOW_EPOCHS * epoch // inside.SUBINDEXES_PER_WINDOW)
    unit = inside.UnitSpec(case.condition, (index, index), period)
    join = inside.LocalJoin(unit, Biclique(1))
    seconds, pairs, candidates = 0.0, 0, 0
    for number, batches in enumerate(case.draw_epochs(epoch, seed)):
        began = process_time()
        found = sum(matches.left.num_rows for matches in join.epoch(*batches, number * epoch))
        if number > WINDOW_EPOCHS:
            seconds += process_time() - began
            pairs += found
            candidates += sum(counters.candidates for counters in join.counters)
    n = 2 * epoch * (EPOCHS - WINDOW_EPOCHS - 1)
    return {
        "tuples_per_s": n / seconds,
        "pairs": pairs,
        "pairs_per_tuple": pairs / n,
        "candidates_per_tuple": candidates / n,
    }


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if two indexes find different numbers of pairs."""
    epoch, rows = asked.epoch or EPOCH, []
    for case in list_cases(epoch):
        indexes = {index.shape.name: index for index in (case.own, case.other)}

        def run(name: str, turn: str, case: Case = case, indexes: dict[str, IndexSpec] = indexes) -> Row:
            row = measure(case, indexes[name], epoch, asked.seed)
            announce(f"{turn}, {case.name}: {row['tuples_per_s']:,.0f} tuples/s")
            return row

        runs = measure_in_turn(indexes, asked.repeat, run)
        medians = {name: find_medians(found) for name, found in runs.items()}
        base = medians[case.other.shape.name]
        for name, median in medians.items():
            is_own = name == case.own.shape.name
            more = {"speed_up": median["tuples_per_s"] / base["tuples_per_s"], "target": case.target}
            rows.append({"condition": case.name, "index": name, **median, **(more if is_own else {})})
        is_equal = len({run["pairs"] for found in runs.values() for run in found}) == 1
        for row in rows[-2:]:
            row["is_correct"] = is_equal
    head = (
        f"One unit in this process: {epoch:,} tuples of a stream in an epoch, windows of {WINDOW_EPOCHS}"
        f" epochs, medians of {asked.repeat}, seed {asked.seed}, by CPU time."
    )
    return publish_table(head, SHOWN, rows, asked)
