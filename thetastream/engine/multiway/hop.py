"""A hop: partial results of an m-way join look for partners among the stored tuples of one more stream.

In PSP (EDBT 2009), a tuple visits the slices of the other streams in turn, and carries the tuples that it has
been joined with. For the index, a partial result is a probing tuple that has the keys of all its members.
Therefore a hop is a binary condition with the members on the left and the stored stream on the right. It has
two more dimensions:

*Time.* Every member m bounds the stored event time t by low <= m.ts - t <= high. The box has the intersection
of these intervals, from the latest lower end to the earliest upper end.

*Global order.* A partial result meets only tuples that come before its origin in the global order, even if
later tuples have been stored in the meantime. The origin is the tuple with which the partial result began. In
the global order, epochs follow each other, and inside an epoch the streams follow each other. So every
combination is found once: by its last tuple. This is the visibility of PSP-I (StateStart, StateEnd),
expressed as a dimension on the column ``born``.

*Count windows.* The origin meets the last n tuples of each stream that arrived before it. The numbers of
these tuples are an interval, which takes the place of the interval of event times
(``thetastream.engine.arrival``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import read_signs
from thetastream.core.columns import BORN, EARLIEST, LATEST, SEQUENCE, SIGN, name_seen_column
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, encode, shift
from thetastream.core.sides import Side
from thetastream.engine.multiway.graph import OPEN, Edge, GraphPredicate, JoinGraph
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.index.base import IndexSpec
from thetastream.index.scan import Scan
from thetastream.index.sorted import Sorted

Clock = tuple[Key, int | None, int | None]
"""The key of an event time, and low and high of the difference between it and the stored event time."""


def list_member_columns(graph: JoinGraph, members: Sequence[int]) -> list[str]:
    """List the block columns of a partial result: payload and computed keys of its members, and its sign.

    The sign is the product of the signs of its members. It is not there if no member has deletes.
    """
    sides = [graph.sides[i] for i in members]
    columns = [column for side in sides for column in (*side.columns, *side.computed) if column != SIGN]
    return columns + [SIGN] * any(side.has_deletes for side in sides)


@dataclass(frozen=True)
class Hop:
    """Partial results over ``members`` meet the stored tuples of ``target``."""

    members: tuple[int, ...]
    target: int
    plan: IndexPlan
    clocks: tuple[Clock, ...]
    """A clock for each member that bounds the stored event time. In a count window, the times are numbers of
    tuples, and the origin bounds them."""

    def prepare_probes(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """Add the interval of stored event times to partial results, and encode their key rows."""
        earliest, latest = self.find_interval(batch)
        batch = batch.append_column(EARLIEST, pa.array(earliest)).append_column(LATEST, pa.array(latest))
        return batch, encode_key_rows(Side.LEFT, self.plan.condition, batch)

    def find_interval(self, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Find the earliest and the latest event time of the stored tuples that partial results may meet."""
        earliest = np.full(batch.num_rows, LOWEST)
        latest = np.full(batch.num_rows, HIGHEST)
        for key, low, high in self.clocks:
            times = encode(batch.column(key.column), key.domain)
            for end, towards in ((high, -1), (low, +1)):
                if end is None:
                    continue
                ends, void = shift(times, -end, Domain.INT, towards)
                if towards < 0:
                    earliest = np.maximum(earliest, ends)
                else:
                    latest = np.minimum(latest, ends)
                if void is not None:  # no event time satisfies a void bound, so the interval is empty
                    earliest, latest = np.where(void, HIGHEST, earliest), np.where(void, LOWEST, latest)
        return earliest, latest


def join_columns(
    graph: JoinGraph, hop: Hop, members: pa.RecordBatch, target: pa.RecordBatch
) -> dict[str, pa.Array]:
    """Combine the block columns of the tuples that a hop has joined. ``born`` is the place of the origin."""
    theirs = list_member_columns(graph, [hop.target])
    columns = dict(zip(members.schema.names, members.columns, strict=True)) | {
        name: target.column(name) for name in theirs
    }
    signs, their_signs = read_signs(members), read_signs(target)
    if signs is not None and their_signs is not None:
        columns[SIGN] = pa.array(signs * their_signs)
    return columns


def describe_stored_side(graph: JoinGraph, stream: int) -> SideSpec:
    """Describe the stored tuples of a stream: their last key is the place in the global order.

    In a count window, the number of a tuple takes the place of its event time.
    """
    side = graph.sides[stream]
    time = side.time if graph.counts is None else Key(SEQUENCE, Domain.INT)
    return replace(side, keys=(*side.keys, Key(BORN, Domain.INT)), time=time)


def build_hop_condition(graph: JoinGraph, members: Sequence[int], target: int) -> Condition:
    """Build the condition between partial results over ``members`` and the stored tuples of ``target``."""
    # 1. Concatenate the keys of the members, the interval of event times, and the place of the origin.
    keys: list[Key] = []
    edges: list[Edge] = []
    for member in members:
        edges.append(graph.edge(member, target).shift_left_keys(len(keys)))
        keys += graph.sides[member].keys
    earliest, latest, born = range(len(keys), len(keys) + 3)
    keys += [Key(name, Domain.INT) for name in (EARLIEST, LATEST, BORN)]
    probing = SideSpec(
        "+".join(graph.sides[i].alias for i in members),
        tuple(list_member_columns(graph, members)),
        keys=tuple(keys),
    )
    # 2. Combine the edges of all members.
    is_timed = graph.counts is not None or any(edge.window != OPEN for edge in edges)
    before = Dimension(
        Side.RIGHT, len(graph.sides[target].keys), None, Bound(born, is_strict=True), "comes before"
    )
    found = [p for p in graph.predicates if target in p.streams and p.streams <= {*members, target}]
    return Condition(
        (probing, describe_stored_side(graph, target)),
        tuple(equality for edge in edges for equality in edge.equalities),
        (*(dimension for edge in edges for dimension in edge.dimensions), before),
        Dimension(Side.RIGHT, TIME, Bound(earliest), Bound(latest), "window") if is_timed else None,
        tuple(_over_members(predicate, members, target) for predicate in found),
        tuple(columns for edge in edges for columns in edge.same),
    )


def list_clocks(graph: JoinGraph, members: Sequence[int], target: int) -> tuple[Clock, ...]:
    """List the clocks of the hop from partial results over ``members`` to ``target``."""
    clocks: list[Clock] = []
    if graph.counts is not None:
        clocks.append((Key(name_seen_column(target), Domain.INT), 1, graph.counts[target]))
    for member in members:
        time, window = graph.sides[member].time, graph.edge(member, target).window
        if time is not None and window != (None, None):
            clocks.append((time, *window))
    return tuple(clocks)


def find_window_us(graph: JoinGraph, members: Sequence[int], target: int) -> int | None:
    """Find the longest interval of stored event times that a hop may look at; None if it may have an open
    end."""
    clocks = list_clocks(graph, members, target)
    return min((high - low for _, low, high in clocks if low is not None and high is not None), default=None)


def plan_hop(graph: JoinGraph, members: Sequence[int], target: int, stored: IndexPlan | None = None) -> Hop:
    """Plan the hop from partial results over ``members`` to ``target``, which is indexed as in ``stored``."""
    condition = build_hop_condition(graph, members, target)
    index = IndexSpec(Scan()) if stored is None else adapt_index(stored, condition)
    plan = IndexPlan(condition, Side.RIGHT, index)
    return Hop(tuple(members), target, plan, list_clocks(graph, members, target))


def adapt_index(stored: IndexPlan, condition: Condition) -> IndexSpec:
    """Adapt the index of stored tuples to the condition of a hop; fall back to a scan.

    The hop can use the index if its condition compares the indexed columns in the same way. If several
    members have a key that must equal the stored key, the first of them is used.
    """
    equalities = []
    for column in stored.access.group:
        keys = [n for n, e in enumerate(condition.equalities) if e.right + 1 == column]
        equalities += keys[:1]
    places = [*range(len(condition.dimensions) - 1), *([TIME] if condition.window is not None else [])]
    ranges = []
    for column, width in zip(stored.access.ranges, stored.widths, strict=True):
        for place in places:
            plan = IndexPlan(condition, Side.RIGHT, IndexSpec(Sorted(), (), (place,)))
            if plan.access.ranges == (column,) and plan.widths == (width,):
                ranges.append(place)
                break
    has_group, has_ranges = (
        len(found) == len(asked)
        for found, asked in ((equalities, stored.access.group), (ranges, stored.access.ranges))
    )
    if has_group and has_ranges:
        index = replace(stored.index, equalities=tuple(equalities), dimensions=tuple(ranges))
        if IndexPlan(condition, Side.RIGHT, index).access == stored.access:
            return index
    buckets = stored.index.shape.layout.bucket_shape
    if has_group and stored.access.group and buckets is not None:
        return IndexSpec(
            buckets, tuple(equalities)
        )  # the hop uses the buckets of the index, but not their order
    return IndexSpec(Scan())


def _over_members(predicate: GraphPredicate, members: Sequence[int], target: int) -> PythonPredicate:
    """Convert a predicate over several streams to a predicate over the two sides of a hop."""
    mine = tuple((alias, columns) for stream, alias, columns in predicate.columns if stream in members)
    theirs = next((alias, columns) for stream, alias, columns in predicate.columns if stream == target)
    function, probing = predicate.function, mine[0]
    if len(mine) > 1:
        flat = tuple((f"{alias}.{name}", block) for alias, columns in mine for name, block in columns)
        mine = tuple(
            (alias, tuple((name, f"{alias}.{name}") for name, _ in columns)) for alias, columns in mine
        )
        joined = "_".join((*(alias for alias, _ in mine), theirs[0]))  # longer than the alias of the target
        function = Regrouped(predicate.name, predicate.function, joined, mine)
        probing = (joined, flat)
    return PythonPredicate(
        predicate.name, function, (probing[0], theirs[0]), (probing[1], theirs[1]), predicate.is_encoded
    )


class Regrouped:
    """Wraps a predicate of several streams so that one argument holds the columns of several streams.

    Parameters
    ----------
    name : str
        The name of the function.
    function : callable
        The function of the user, which takes one set of columns per alias.
    joined : str
        The argument that holds the columns of several streams.
    moved : tuple of (alias, ((argument column, column of ``joined``), ...))
        For each of these streams, the columns of ``joined`` that hold its columns.
    """

    def __init__(
        self,
        name: str,
        function: Any,
        joined: str,
        moved: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    ) -> None:
        self.__qualname__ = name
        self._function = function
        self._joined = joined
        self._moved = moved

    def __call__(self, **sides: Any) -> Any:
        """Call the function with a set of columns per stream."""
        together = sides.pop(self._joined)
        apart = {
            alias: SimpleNamespace(**{name: getattr(together, column) for name, column in columns})
            for alias, columns in self._moved
        }
        return self._function(**apart, **sides)
