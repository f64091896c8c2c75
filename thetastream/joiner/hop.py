"""A hop: partial results of an m-way join look for their partners among one more stream's stored tuples.

PSP (EDBT 2009): a tuple visits the slices of the other streams in turn, and what it has been joined with so
far travels with it. To the index a partial result is a probing tuple like any other, with the keys of all its
members: so a hop is a binary condition, members on the left, the stored stream on the right, and two things
more.

*Time.* Every member m bounds the stored event time t: low <= m.ts - t <= high. The box needs one interval,
from the latest of the lower ends to the earliest of the upper ones.

*Order.* A partial result meets only what comes before its origin, the tuple it began with, in the global
order (epochs in sequence, in an epoch stream after stream), however much has been stored since. So every
combination is found once: by its last tuple. That is PSP-I's visibility (StateStart, StateEnd) as one more
dimension, ``born``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    IndexSpec,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.joiner.box import Plan, key_rows
from thetastream.joiner.graph import Edge, GraphPredicate, JoinGraph
from thetastream.keys import HIGHEST, LOWEST, Int64s, encode, shift
from thetastream.types import Side

BORN = "born"
"""Block column: place in the global order, of a stored tuple or of the tuple a partial result began with."""
EARLIEST, LATEST = "earliest", "latest"
"""Columns of a probing batch: the interval of event time in which partners lie."""


def members_columns(graph: JoinGraph, members: Sequence[int]) -> list[str]:
    """The block columns of a partial result: payload and computed keys of its members."""
    return [column for i in members for column in (*graph.sides[i].columns, *graph.sides[i].computed)]


@dataclass(frozen=True)
class Hop:
    """Partial results over ``members`` meet the stored tuples of ``target``."""

    members: tuple[int, ...]
    target: int
    plan: Plan
    clocks: tuple[tuple[Key, int | None, int | None], ...]
    """Per member that bounds the stored event time: its event time, and low and high of their difference."""

    def probes(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """Partial results with all that they are asked by, and their key rows."""
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
                if void is not None:  # beyond int64 on the far side: an empty interval
                    earliest, latest = np.where(void, HIGHEST, earliest), np.where(void, LOWEST, latest)
        batch = batch.append_column(EARLIEST, pa.array(earliest)).append_column(LATEST, pa.array(latest))
        return batch, key_rows(Side.LEFT, self.plan.condition, batch)


def stored_side(graph: JoinGraph, stream: int) -> SideSpec:
    """A stored tuple: its keys, and its place in the global order behind them."""
    side = graph.sides[stream]
    return replace(side, keys=(*side.keys, Key(BORN, Domain.INT)))


def condition_of(graph: JoinGraph, members: Sequence[int], target: int) -> Condition:
    """What partial results over ``members`` ask of the stored tuples of ``target``."""
    # 1. The members' keys one behind the other, then the interval of time and the place of the origin.
    keys: list[Key] = []
    edges: list[Edge] = []
    for member in members:
        edges.append(graph.edge(member, target).behind(len(keys)))
        keys += graph.sides[member].keys
    earliest, latest, born = range(len(keys), len(keys) + 3)
    keys += [Key(name, Domain.INT) for name in (EARLIEST, LATEST, BORN)]
    probing = SideSpec(
        "+".join(graph.sides[i].alias for i in members),
        tuple(members_columns(graph, members)),
        keys=tuple(keys),
    )
    # 2. What their edges say, together.
    is_timed = any(edge.window.low is not None or edge.window.high is not None for edge in edges)
    before = Dimension(
        Side.RIGHT, len(graph.sides[target].keys), None, Bound(born, is_strict=True), "comes before"
    )
    found = [p for p in graph.predicates if target in p.streams and p.streams <= {*members, target}]
    return Condition(
        (probing, stored_side(graph, target)),
        tuple(equality for edge in edges for equality in edge.equalities),
        (*(dimension for edge in edges for dimension in edge.dimensions), before),
        Dimension(Side.RIGHT, TIME, Bound(earliest), Bound(latest), "window") if is_timed else None,
        tuple(_over_members(predicate, members, target) for predicate in found),
        tuple(columns for edge in edges for columns in edge.same),
    )


def hop(graph: JoinGraph, members: Sequence[int], target: int, stored: Plan | None = None) -> Hop:
    """How partial results ask for the tuples of ``target``, which are indexed as ``stored`` says."""
    condition = condition_of(graph, members, target)
    index = IndexSpec("scan") if stored is None else usable(stored, condition)
    clocks = []
    for member in members:
        time, window = graph.sides[member].time, graph.edge(member, target).window
        if time is not None and window != (None, None):
            clocks.append((time, *window))
    return Hop(tuple(members), target, Plan(condition, Side.RIGHT, index), tuple(clocks))


def usable(stored: Plan, condition: Condition) -> IndexSpec:
    """The index of the stored tuples as another condition can use it; a scan if it can not.

    It can if it compares the same columns: of two members with a key equal to the stored one, either does.
    """
    equalities = []
    for column in stored.access.group:
        keys = [n for n, e in enumerate(condition.equalities) if e.right + 1 == column]
        equalities += keys[:1]
    places = [*range(len(condition.dimensions) - 1), *([TIME] if condition.window is not None else [])]
    ranges = []
    for column, width in zip(stored.access.ranges, stored.widths, strict=True):
        for place in places:
            plan = Plan(condition, Side.RIGHT, IndexSpec("sorted", (), (place,)))
            if plan.access.ranges == (column,) and plan.widths == (width,):
                ranges.append(place)
                break
    has_group, has_ranges = (
        len(found) == len(asked)
        for found, asked in ((equalities, stored.access.group), (ranges, stored.access.ranges))
    )
    if has_group and has_ranges:
        return IndexSpec(stored.index.kind, tuple(equalities), tuple(ranges))
    if has_group and stored.access.group:
        return IndexSpec("hash", tuple(equalities))  # its buckets, not their order
    return IndexSpec("scan")


def _over_members(predicate: GraphPredicate, members: Sequence[int], target: int) -> PythonPredicate:
    """A predicate as one over the two sides of a hop."""
    mine = tuple((alias, columns) for stream, alias, columns in predicate.columns if stream in members)
    theirs = next((alias, columns) for stream, alias, columns in predicate.columns if stream == target)
    function, probing = predicate.function, mine[0]
    if len(mine) > 1:
        flat = tuple((f"{alias}.{name}", block) for alias, columns in mine for name, block in columns)
        mine = tuple(
            (alias, tuple((name, f"{alias}.{name}") for name, _ in columns)) for alias, columns in mine
        )
        joined = "_".join((*(alias for alias, _ in mine), theirs[0]))  # longer than any alias of theirs
        function = Regrouped(predicate.name, predicate.function, joined, mine)
        probing = (joined, flat)
    return PythonPredicate(
        predicate.name, function, (probing[0], theirs[0]), (probing[1], theirs[1]), predicate.is_encoded
    )


class Regrouped:
    """A function of several streams that finds the columns of some of them in one set of columns.

    Parameters
    ----------
    name : str
        Of the function.
    function : callable
        As it was written: a set of columns per alias.
    joined : str
        The argument that holds the columns of several streams.
    moved : tuple of (alias, ((argument column, column there), ...))
        Where each of them is there.
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
