"""Hypothesis strategies for m-way joins, and their nested-loop oracle."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.local import LocalMultiway
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.multiway.graph import OPEN, Edge, Ends, GraphPredicate, JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.families.hops.graph import HopOrders, build_multiway_spec
from thetastream.models import Multiway

Row = dict[str, Any]
N_KEYS = 2


@dataclass(frozen=True)
class GraphCase:
    """A graph, a hop order per stream, and epochs of (rows by stream, watermark)."""

    graph: JoinGraph
    orders: HopOrders
    archive_period_us: int | None
    epochs: tuple[tuple[tuple[list[Row], ...], int | None], ...]

    def batch(self, stream: int, rows: Sequence[Row]) -> pa.RecordBatch:
        """Convert rows to a block of a stream."""
        columns = self.graph.sides[stream].columns
        return pa.RecordBatch.from_pylist(
            [{f"s{stream}{name}": value for name, value in row.items()} for row in rows],
            schema=pa.schema([(name, pa.int64()) for name in columns]),
        )


def modulus(**streams: Any) -> Any:
    """A predicate over any streams that is true if the sum of their first keys is even."""
    return [sum(values) % 2 == 0 for values in zip(*(s.x.to_pylist() for s in streams.values()), strict=True)]


def side(stream: int) -> SideSpec:
    """Build the side of a stream, which has an id, an event time and keys, all of them int64."""
    columns = tuple(f"s{stream}{name}" for name in ("id", "t", *(f"k{n}" for n in range(N_KEYS))))
    keys = tuple(Key(f"s{stream}k{n}", Domain.INT) for n in range(N_KEYS))
    return SideSpec("abcde"[stream], columns, (), keys, Key(f"s{stream}t", Domain.INT))


@st.composite
def edges(draw: st.DrawFn) -> Edge:
    """Draw an edge with up to one equality and two dimensions."""
    key = st.integers(0, N_KEYS - 1)
    equalities = draw(st.lists(st.builds(Equality, key, key), max_size=1))
    bound = st.one_of(st.none(), st.builds(Bound, key, st.integers(-3, 3), st.booleans()))
    dimensions = draw(
        st.lists(st.builds(Dimension, st.sampled_from(Side), key, bound, bound), max_size=2).map(
            lambda found: [d for d in found if d.low is not None or d.high is not None]
        )
    )
    return Edge(tuple(equalities), tuple(dimensions))


@st.composite
def graphs(draw: st.DrawFn, least: int = 2, most: int = 4) -> JoinGraph:
    """Draw a path, a star, a clique or any other graph, with or without windows and predicates."""
    m = draw(st.integers(least, most))
    pairs = list(combinations(range(m), 2))
    kind = draw(st.sampled_from(["path", "star", "clique", "any"]))
    chosen = {
        "path": [(n, n + 1) for n in range(m - 1)],
        "star": [(0, n) for n in range(1, m)],
        "clique": pairs,
        "any": draw(st.lists(st.sampled_from(pairs), unique=True)),
    }[kind]
    found = {pair: draw(edges()) for pair in chosen}
    if draw(st.booleans()):
        spans = [draw(st.integers(0, 12)) for _ in range(m)]
        for left, right in pairs:
            edge = found.get((left, right), Edge())
            found[left, right] = Edge(edge.equalities, edge.dimensions, Ends(-spans[left], spans[right]))
    read = draw(st.lists(st.lists(st.integers(0, m - 1), min_size=2, unique=True), max_size=1))
    predicates = [
        GraphPredicate(
            "modulus", modulus, tuple((n, "abcde"[n], (("x", f"s{n}k0"),)) for n in sorted(streams))
        )
        for streams in read
    ]
    return JoinGraph(tuple(side(n) for n in range(m)), found, tuple(predicates))


def count_windows(graph: JoinGraph, counts: Sequence[int]) -> JoinGraph:
    """Replace the time windows of a graph by count windows."""
    edges = {pair: replace(edge, window=OPEN) for pair, edge in graph.edges.items()}
    return replace(graph, edges=edges, counts=tuple(counts))


@st.composite
def counted_cases(draw: st.DrawFn) -> GraphCase:
    """Draw a whole run under count windows."""
    case = draw(graph_cases(least=3))
    counts = [draw(st.integers(1, 5)) for _ in case.graph.sides]
    return replace(case, graph=count_windows(case.graph, counts), archive_period_us=None)


@st.composite
def graph_cases(draw: st.DrawFn, least: int = 2, most: int = 4) -> GraphCase:
    """Draw a whole run: watermarks only rise, and tuples are early, late and out of order."""
    graph = draw(graphs(least, most))
    m = len(graph.sides)
    orders = tuple(tuple(draw(st.permutations([n for n in range(m) if n != origin]))) for origin in range(m))
    identity = iter(range(10_000))
    value = st.integers(-3, 3)

    def row() -> Row:
        return {
            "id": next(identity),
            "t": draw(st.integers(-5, 30)),
            **{f"k{n}": draw(value) for n in range(N_KEYS)},
        }

    epochs = []
    watermark: int | None = None
    for _ in range(draw(st.integers(1, 4))):
        rows = tuple([row() for _ in range(draw(st.integers(0, 4)))] for _ in range(m))
        epochs.append((rows, watermark))
        rise = draw(st.integers(0, 8))
        watermark = rise if watermark is None and rise else (watermark + rise if watermark else None)
    period = draw(st.one_of(st.none(), st.integers(1, 8)))
    return GraphCase(graph, orders, period, tuple(epochs))


def run_multiway(
    case: GraphCase, model: Multiway, refinement: Refinement | None = None, *, has_messages: bool = True
) -> Counter[tuple[int, ...]]:
    """Compute the bag of ids that the nodes find, and check the number of tuples in flight after each
    epoch. ``has_messages`` says whether there may be any."""
    join = LocalMultiway(
        build_multiway_spec(case.graph, case.orders, model, case.archive_period_us, refinement)
    )
    found: Counter[tuple[int, ...]] = Counter()
    ids = [side.columns.index(f"s{n}id") + (2 + N_KEYS) * n for n, side in enumerate(case.graph.sides)]

    def take(results: Iterable[list[pa.Array]]) -> None:
        for columns in results:
            found.update(zip(*(columns[n].to_pylist() for n in ids), strict=True))

    watermark = None
    for rows, watermark in case.epochs:
        take(join.epoch([case.batch(n, part) for n, part in enumerate(rows)], watermark))
        assert has_messages or not join.in_flight
        in_flight = {
            (partial.origin, row)
            for partial in join.partial_results
            for row in partial.block[f"s{partial.origin}id"].to_pylist()
        }
        if model.in_flight is not None and len(in_flight) > model.in_flight:
            raise AssertionError(f"{len(in_flight)} tuples are in flight, and the limit is {model.in_flight}")
    take(join.drain(watermark))
    return found


def answer(case: GraphCase) -> Counter[tuple[int, ...]]:
    """Compute the bag of ids by nested loops over all timely rows."""
    m = len(case.graph.sides)
    kept: list[list[Row]] = [[] for _ in range(m)]
    arrivals: list[tuple[int, int]] = []
    """The stream and the id of each row, in order of arrival."""
    for rows, late_us in oracle.pair_with_late_watermark(case.epochs):
        timely = [oracle.timely(rows[stream], late_us, "t") for stream in range(m)]
        for stream in range(m):
            kept[stream] += timely[stream]  # type: ignore[arg-type]
        arrived = [(row["t"], stream, row["id"]) for stream in range(m) for row in timely[stream]]
        arrivals += [found[1:] for found in sorted(arrived, key=lambda found: found[:2])]
    found: list[tuple[Row, ...]] = [()]
    for stream in range(m):
        found = [(*rows, row) for rows in found for row in kept[stream] if _fits(case.graph, rows, row)]
    if case.graph.counts is not None:
        found = [rows for rows in found if _are_counted(case.graph.counts, arrivals, rows)]
    return Counter(tuple(row["id"] for row in rows) for rows in found)


def _are_counted(counts: Sequence[int], arrivals: list[tuple[int, int]], rows: Sequence[Row]) -> bool:
    """Whether each row is among the last of its stream when the last of the rows arrives."""
    own = [(stream, row["id"]) for stream, row in enumerate(rows)]
    last = max(own, key=arrivals.index)
    before = arrivals[: arrivals.index(last)]
    return all(
        one in [each for each in before if each[0] == one[0]][-counts[one[0]] :] for one in own if one != last
    )


def _fits(graph: JoinGraph, rows: Sequence[Row], row: Row) -> bool:
    joined = [*rows, row]
    last = len(rows)
    return all(_holds(graph, n, last, joined) for n in range(last)) and all(
        _is_true(predicate, joined) for predicate in graph.predicates if max(predicate.streams) == last
    )


def _holds(graph: JoinGraph, left: int, right: int, rows: Sequence[Mapping[str, Any]]) -> bool:
    edge = graph.edges.get((left, right), Edge())
    low, high = (None if end is None else Bound(TIME, end) for end in edge.window)
    window = None if low is None and high is None else Dimension(Side.LEFT, TIME, low, high)
    condition = Condition((graph.sides[left], graph.sides[right]), edge.equalities, edge.dimensions, window)
    return oracle.holds(condition, *({f"s{n}{k}": v for k, v in rows[n].items()} for n in (left, right)))


def _is_true(predicate: GraphPredicate, rows: Sequence[Mapping[str, Any]]) -> bool:
    arguments = {
        alias: SimpleNamespace(**{name: pa.array([rows[n][block[2:]]]) for name, block in columns})
        for n, alias, columns in predicate.columns
    }
    return bool(predicate.function(**arguments)[0])
