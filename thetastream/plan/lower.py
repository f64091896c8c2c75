"""Logical query to physical plan: THE place where a strategy is chosen.

orderings on one point        -> dimensions, two ends of one point paired into a band
equalities and a dimension    -> hash_sorted      equalities               -> hash
two bands                     -> grid             one dimension            -> sorted
a window alone                -> sorted by time   nothing                  -> scan
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thetastream.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    IndexSpec,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.errors import QueryError
from thetastream.index import REGISTRY
from thetastream.joiner.chain import joinable_us
from thetastream.joiner.unit import PASSES, SUBINDEXES_PER_WINDOW
from thetastream.plan.domains import quoted
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.plan.query import CrossJoinWarning, Query, Resolver, Stream
from thetastream.plan.rewrite import rewrite
from thetastream.plan.rewritten import Note, Ordering, Rewritten
from thetastream.plan.side_keys import SideKeys
from thetastream.predicate import Predicate
from thetastream.types import Side
from thetastream.windows import spell

SHORTEST_PERIOD_US = 1_000_000
"""By default; windows of milliseconds would otherwise be cut into more subindexes than tuples."""


@dataclass(frozen=True)
class Lowered:
    """A physical plan and how it came about."""

    physical: PhysicalPlan
    notes: tuple[Note, ...]
    shape_reason: str


def lower(query: Query, resolver: Resolver, settings: Mapping[str, Any]) -> Lowered:
    """Choose keys, dimensions, index and archive period for a query.

    Parameters
    ----------
    query : Query
        Validated.
    resolver : Resolver
        Answers types and constants.
    settings : mapping
        ``index`` forces an index shape, ``archive_period_us`` the span of a subindex; None chooses.

    Raises
    ------
    QueryError
        INDEX_NOT_APPLICABLE, ARCHIVE_PERIOD.
    """
    # 1. Conjuncts to keys and bounds.
    rewritten = rewrite(_untimed(query) if query.counts else query, resolver)
    if not rewritten.ties and not query.predicates:
        warnings.warn(
            f"no conjunct ties {query.aliases[0]} and {query.aliases[1]}: every pair "
            + ("inside the window" if query.within_us or query.counts else "of tuples")
            + " is a result",
            CrossJoinWarning,
            stacklevel=4,
        )
    # 2. Bounds to dimensions and a window.
    window, is_empty = _window(query, rewritten)
    dimensions = dimensions_of(rewritten)
    equalities = tuple(Equality(left, right, text) for left, right, text in rewritten.equalities)
    if is_empty:
        for filters in rewritten.filters:
            filters.append("false")
    condition = Condition(
        sides=(
            side_spec(query.streams[0], rewritten.keys[0]),
            side_spec(query.streams[1], rewritten.keys[1]),
        ),
        equalities=equalities,
        dimensions=dimensions,
        window=window,
        predicates=tuple(_predicate(predicate, query, resolver) for predicate in query.predicates),
        same=tuple(rewritten.same),
    )
    # 3. Shape.
    index, reason = choose_index(condition, settings.get("index"))
    physical = PhysicalPlan(
        sides=(
            _side_plan(query, rewritten, Side.LEFT, window),
            _side_plan(query, rewritten, Side.RIGHT, window),
        ),
        condition=condition,
        indexes=(index, index),
        residual=tuple(rewritten.residual),
        archive_period_us=archive_period(lifetimes(condition.window), settings.get("archive_period_us")),
        counts=query.counts,
    )
    return Lowered(physical, tuple(rewritten.notes), reason)


def _untimed(query: Query) -> Query:
    """The query with event times as columns like any other: a count window does not bound them."""
    left, right = (replace(stream, event_time=None) for stream in query.streams)
    return replace(query, streams=(left, right))


# Dimensions


def window_ends(query: Query, rewritten: Rewritten) -> tuple[int | None, int | None]:
    """Bounds of left.ts - right.ts in microseconds, of ``within`` and of the condition."""
    low, high = rewritten.window
    if query.within_us is not None:
        left, right = query.within_us
        low = -left if low is None else max(low, -left)
        high = right if high is None else min(high, right)
    return low, high


def _window(query: Query, rewritten: Rewritten) -> tuple[Dimension | None, bool]:
    """The window as a dimension over event time, and whether it holds nothing."""
    low, high = window_ends(query, rewritten)
    if low is None and high is None:
        return None, False
    is_empty = low is not None and high is not None and low > high
    if is_empty:
        high = low
    a, b = query.streams
    ends = [f"{spell(low)} <= "] * (low is not None)
    text = f"{''.join(ends)}{a.alias}.{a.event_time} - {b.alias}.{b.event_time}"
    text += f" <= {spell(high)}" if high is not None else ""
    dimension = Dimension(
        Side.LEFT,
        TIME,
        None if low is None else Bound(TIME, low),
        None if high is None else Bound(TIME, high),
        text,
    )
    return dimension, is_empty


def dimensions_of(rewritten: Rewritten) -> tuple[Dimension, ...]:
    """Bands, and orderings two by two where they share a point."""
    found = [
        Dimension(
            Side.LEFT, band.left, Bound(band.right, -band.delta), Bound(band.right, band.delta), band.text
        )
        for band in rewritten.bands
    ]
    orderings = list(rewritten.orderings)
    # The two ends of one BETWEEN first, then any two comparisons that share a point.
    for is_same_conjunct in (True, False):
        n = 0
        while n < len(orderings):
            pair = _partner(orderings, n, is_same_conjunct)
            if pair is None:
                n += 1
                continue
            partner, point = pair
            found.append(_paired(orderings[n], orderings[partner], point))
            del orderings[partner], orderings[n]
    return (*found, *(_inequality(ordering) for ordering in orderings))


def _partner(orderings: list[Ordering], n: int, is_same_conjunct: bool) -> tuple[int, Side] | None:
    first = orderings[n]
    for m in range(n + 1, len(orderings)):
        other = orderings[m]
        if first.op[0] == other.op[0] or (is_same_conjunct and first.conjunct != other.conjunct):
            continue
        if first.left == other.left:
            return m, Side.LEFT
        if first.right == other.right:
            return m, Side.RIGHT
    return None


def _paired(first: Ordering, second: Ordering, point: Side) -> Dimension:
    # left < right bounds the left from above, the right from below.
    upper, lower_ = (first, second) if (first.op[0] == "<") is (point is Side.LEFT) else (second, first)
    text = first.text if first.text == second.text else f"{first.text} AND {second.text}"
    key = first.left if point is Side.LEFT else first.right
    return Dimension(point, key, _bound(lower_, point), _bound(upper, point), text)


def _inequality(ordering: Ordering) -> Dimension:
    bound = _bound(ordering, Side.LEFT)
    is_upper = ordering.op[0] == "<"
    return Dimension(
        Side.LEFT, ordering.left, None if is_upper else bound, bound if is_upper else None, ordering.text
    )


def _bound(ordering: Ordering, point: Side) -> Bound:
    key = ordering.right if point is Side.LEFT else ordering.left
    delta = ordering.delta if point is Side.LEFT else -ordering.delta
    return Bound(key, delta, is_strict=len(ordering.op) == 1)


# Sides


def side_spec(stream: Stream, keys: SideKeys) -> SideSpec:
    """What the engine sees of a stream."""
    time = None
    if stream.event_time is not None:
        column = next(c.block_column for c in stream.carried if c.field == stream.event_time)
        time = Key(column, Domain.INT)
    return SideSpec(
        alias=stream.alias,
        columns=tuple(c.block_column for c in stream.carried),
        computed=tuple(keys.computed.values()),
        keys=tuple(keys.keys),
        time=time,
    )


def _side_plan(query: Query, rewritten: Rewritten, side: Side, window: Dimension | None) -> SidePlan:
    keys = rewritten.keys[side]
    stream = keys.stream
    filters = [*rewritten.filters[side], *keys.not_null]
    if window is not None:
        filters.append(f"({quoted(stream.alias)}.{quoted(stream.event_time or '')}) IS NOT NULL")
    filters = list(dict.fromkeys(filters))
    computed = [(column, text) for text, column in keys.computed.items()]
    if query.counts and filters:
        # A tuple that does not pass is one of the last n all the same: it is numbered, then dropped.
        computed = [(column, guarded(filters, text)) for column, text in [*computed, (PASSES, "1")]]
        filters = []
    return SidePlan(stream.alias, tuple(filters), tuple(computed), stream.carried)


def guarded(filters: Sequence[str], text: str) -> str:
    """An expression that is NULL unless all filters are true, each looked at only if those before it are.

    Nested, because Spark computes what operands of an AND have in common before any, whatever it raises.

    >>> guarded(["x > 0", "10 / x > 2"], "y")
    'CASE WHEN x > 0 THEN CASE WHEN 10 / x > 2 THEN y END END'
    """
    for condition in reversed(filters):
        text = f"CASE WHEN {condition} THEN {text} END"
    return text


def _predicate(predicate: Predicate, query: Query, resolver: Resolver) -> PythonPredicate:
    given = {alias.casefold(): (alias, names) for alias, names in predicate.columns}
    spelled, columns = [], []
    for stream in query.streams:
        alias, names = given.get(stream.alias.casefold(), (stream.alias, ()))
        blocks = {carried.field: carried.block_column for carried in stream.carried}
        found = {name: stream.find(name, resolver.is_case_sensitive) for name in names}
        spelled.append(alias)
        columns.append(tuple((name, blocks[column]) for name, column in found.items() if column))
    return PythonPredicate(
        predicate.name,
        predicate.function,
        (spelled[0], spelled[1]),
        (columns[0], columns[1]),
        predicate.is_encoded,
    )


# Shape


def choose_index(condition: Condition, forced: str | None = None) -> tuple[IndexSpec, str]:
    """The index of both sides, and why this one."""
    equalities = tuple(range(len(condition.equalities)))
    every = range(len(condition.dimensions))
    bands = tuple(n for n in every if condition.dimensions[n].is_two_sided)
    ordered = (*bands, *(n for n in every if n not in bands))
    window = (TIME,) if condition.window is not None else ()
    if forced is not None:
        return _forced(forced, equalities, bands, (*ordered, *window), condition), "forced by index="
    if equalities and ordered:
        return IndexSpec("hash_sorted", equalities, ordered[:1]), "equalities, then a range inside a bucket"
    if equalities:
        return IndexSpec("hash", equalities), "equalities"
    if len(bands) >= 2:
        return IndexSpec("grid", (), bands[:2]), "two bands"
    if ordered:
        return IndexSpec("sorted", (), ordered[:1]), "one band" if bands else "one inequality"
    if window:
        return IndexSpec("sorted", (), window), "only the window bounds the partners of a tuple"
    return IndexSpec("scan"), "nothing in the condition is indexable"


def _forced(
    kind: str,
    equalities: tuple[int, ...],
    bands: tuple[int, ...],
    ordered: tuple[int, ...],
    condition: Condition,
) -> IndexSpec:
    if kind not in REGISTRY:
        raise QueryError("UNKNOWN_INDEX", f"index ({kind!r}) must be one of {', '.join(REGISTRY)}")
    window = condition.window
    cells = (*bands, *((TIME,) if window is not None and window.is_two_sided else ()))
    specs = {
        "scan": IndexSpec("scan"),
        "sorted": IndexSpec("sorted", (), ordered[:1]) if ordered else None,
        "hash": IndexSpec("hash", equalities) if equalities else None,
        "hash_sorted": IndexSpec("hash_sorted", equalities, ordered[:1]) if equalities and ordered else None,
        "grid": IndexSpec("grid", (), cells[:2]) if len(cells) >= 2 else None,
    }
    spec = specs[kind]
    if spec is None:
        needs = {
            "sorted": "a comparison or a window",
            "hash": "an equality",
            "hash_sorted": "an equality and a comparison or a window",
            "grid": "two bands (BETWEEN, abs, or the window)",
        }
        raise QueryError(
            "INDEX_NOT_APPLICABLE",
            f"index {kind!r} needs {needs[kind]}; the condition has {len(equalities)} equalities and "
            f"{len(condition.dimensions)} comparisons, {len(bands)} of them bands",
        )
    return spec


# State


def lifetimes(window: Dimension | None) -> tuple[int | None, int | None]:
    """How long left and right tuples stay joinable, in microseconds; None: for ever.

    >>> lifetimes(Dimension(Side.LEFT, TIME, Bound(TIME, -5), Bound(TIME, 3)))
    (5, 3)
    """
    left, right = (joinable_us(window, side) for side in Side)
    return None if left is None else max(0, left), None if right is None else max(0, right)


def archive_period(lifetimes_us: Iterable[int | None], asked_us: int | None) -> int | None:
    """Event time that a subindex spans, of streams whose tuples live so long; None if all live for ever.

    Raises
    ------
    QueryError
        ARCHIVE_PERIOD.
    """
    lives = [life for life in lifetimes_us if life is not None]
    if not lives:
        return None
    longest = max(lives)
    if asked_us is None:
        return max(SHORTEST_PERIOD_US, -(-longest // SUBINDEXES_PER_WINDOW))
    if asked_us < 1:
        raise QueryError(
            "ARCHIVE_PERIOD", f"archive_period ({spell(asked_us)}) must be at least a microsecond"
        )
    if asked_us > max(longest, 1):
        raise QueryError(
            "ARCHIVE_PERIOD",
            f"archive_period ({spell(asked_us)}) must be <= window ({spell(longest)}): "
            "expired tuples would stay in memory",
        )
    return asked_us
