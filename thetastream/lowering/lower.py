"""Lowers a query to a physical plan: keys, dimensions, window, index and archive period.

    equalities and a dimension    hash_sorted      equalities               hash
    two bands                     grid             one dimension            sorted
    overlap of intervals          intervals        nothing                  scan
    a window alone                sorted by time

``rewrite`` turns conjuncts into keys and bounds, and ``dimensions`` turns the bounds into dimensions and a
window. The index of stored tuples is the strongest shape that fits, or the shape that the user names. Each
shape defines when it fits and how strong it is (``thetastream.index.Shape``). So this table describes the
shapes of this package, and a shape that a user registers needs no change here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from thetastream.conditions import Predicate
from thetastream.core.columns import CHANGE_TYPE, DELETE, INSERT, PASSES, RANKED, SIGN
from thetastream.core.condition import (
    SUBINDEXES_PER_WINDOW,
    VALUE,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    MeasuredPair,
    PythonPredicate,
    RankedPair,
    SideSpec,
)
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import MeasuredRanking, PairRanking
from thetastream.core.sides import Side
from thetastream.core.spans import spell
from thetastream.index import REGISTRY
from thetastream.index.base import Indexable, IndexSpec
from thetastream.lowering.conjunct import Check, Measured, Note, Rewritten
from thetastream.lowering.dimensions import build_dimensions, build_window, is_empty
from thetastream.lowering.domains import quote, write_literal
from thetastream.lowering.physical import Filter, PhysicalPlan, SidePlan, compute_lifetimes
from thetastream.lowering.query import (
    Query,
    Resolver,
    Stream,
    find_type,
    list_conditions,
    warn_of_cross_join,
    warn_of_unbounded_state,
)
from thetastream.lowering.ranking import LoweredMeasure, LoweredRanking, lower_ranking
from thetastream.lowering.rewrite import rewrite
from thetastream.lowering.side_keys import SideKeys
from thetastream.lowering.versions import compute_version, find_versions_problem

SHORTEST_PERIOD_US = 1_000_000
"""The shortest default archive period. Windows of milliseconds would otherwise have too many subindexes."""


@dataclass(frozen=True)
class Lowered:
    """A physical plan, with notes on the conjuncts and the reason for the index shape."""

    physical: PhysicalPlan
    notes: tuple[Note, ...]
    shape_reason: str


def lower(
    query: Query, resolver: Resolver, *, index: str | None = None, archive_period_us: int | None = None
) -> Lowered:
    """Choose keys, dimensions, index and archive period for a query.

    Parameters
    ----------
    query : Query
        A validated query.
    resolver : Resolver
        It resolves types and constants.
    index : str, optional
        The name of an index shape. None means that the planner chooses.
    archive_period_us : int, optional
        The span of a subindex, in microseconds. None means a tenth of the window.

    Raises
    ------
    QueryError
        UNKNOWN_INDEX, INDEX_NOT_APPLICABLE or ARCHIVE_PERIOD if a value is unknown or does not fit the query.
        VERSIONS if right tuples are versions, and the condition is not that of an as-of join.
    """
    # 1. Rewrite conjuncts as keys and bounds.
    rewritten = rewrite(remove_event_times(query) if query.counts else query, resolver)
    nearest = query.how.nearest
    ranked = None if nearest is None else lower_ranking(nearest, query, resolver)
    if isinstance(ranked, LoweredMeasure):
        for keys, phrase in zip(rewritten.keys, ranked.arguments, strict=True):
            keys.add_values(phrase, is_nullable=True)
    for keys in rewritten.keys:
        keys.sort_computed()
    if not rewritten.ties and not query.predicates and nearest is None:
        warn_of_cross_join(
            f"no conjunct ties {query.aliases[0]} and {query.aliases[1]}: every pair "
            + ("inside the window" if query.within_us or query.counts else "of tuples")
            + " is a result"
        )
    # 2. Turn bounds into dimensions and a window.
    window = build_window(query, rewritten)
    dimensions = build_dimensions(rewritten)
    equalities = tuple(Equality(left, right, text) for left, right, text in rewritten.equalities)
    if window is not None and is_empty(window):
        # No tuple has a partner, so each preserved tuple is answered in the epoch in which it arrives.
        for filters in rewritten.filters:
            filters.append(Filter("false"))
        rewritten.notes.append(Note(window.text, "nothing", "the bounds contradict each other"))
    # The first measure is that of the index, and near pairs are fewer.
    measured = tuple(
        _build_measured(one, rewritten)
        for one in sorted(rewritten.measured, key=lambda one: (one.limit.is_far, one.limit.measure.is_cheap))
    )
    condition = Condition(
        sides=(
            build_side_spec(query.streams[0], rewritten.keys[0]),
            build_side_spec(query.streams[1], rewritten.keys[1]),
        ),
        equalities=equalities,
        dimensions=dimensions,
        window=window,
        predicates=(
            *(_build_check(check, rewritten) for check in rewritten.checks),
            *(one.check for one in measured),
            *(_build_predicate(predicate, query, resolver) for predicate in query.predicates),
        ),
        same=tuple(rewritten.same),
        measured=measured,
    )
    drops_replaced = _can_drop_replaced(query, rewritten, condition, ranked)
    problem = find_versions_problem(query, resolver, drops_replaced)
    if problem is not None:
        raise problem
    if query.counts is None:
        left_us, right_us = compute_lifetimes(window)
        warn_of_unbounded_state(query.streams, (left_us, 0 if drops_replaced else right_us))
    ranking, values = _build_ranking(ranked, rewritten)
    if isinstance(ranking, MeasuredRanking) and not (condition.predicates or rewritten.residual):
        condition = replace(condition, ranked=ranking.pair)
    # 3. Choose the index shape.
    chosen, reason = choose_index(condition, index)
    physical = PhysicalPlan(
        sides=(
            _plan_side(query, rewritten, Side.LEFT, window, values[0]),
            _plan_side(query, rewritten, Side.RIGHT, window, values[1]),
        ),
        condition=condition,
        indexes=(chosen, chosen),
        residual=tuple(rewritten.residual),
        archive_period_us=choose_archive_period(compute_lifetimes(condition.window), archive_period_us),
        counts=query.counts,
        on=list_conditions(query.on, query.predicates),
        how=query.how,
        ranking=ranking,
        drops_replaced=drops_replaced,
        versions=query.streams[1].versions,
        unit_checks=tuple(
            (text, tuple(_build_check(check, rewritten) for check in checks))
            for text, checks in rewritten.replaceable.items()
        ),
        hashed=tuple(rewritten.hashed),
    )
    return Lowered(physical, tuple(rewritten.notes), reason)


def remove_event_times(query: Query) -> Query:
    """Remove the event times of a query. With a count window, they are ordinary columns."""
    return replace(query, streams=tuple(replace(stream, event_time=None) for stream in query.streams))


# Sides


def build_side_spec(stream: Stream, keys: SideKeys) -> SideSpec:
    """Build the spec of a stream for the engine."""
    time = None
    if stream.event_time is not None:
        column = next(c.block_column for c in stream.carried if c.field == stream.event_time)
        time = Key(column, Domain.INT)
    return SideSpec(
        alias=stream.alias,
        columns=tuple(c.block_column for c in stream.carried),
        computed=(
            *keys.computed.values(),
            *([] if stream.change_type is None else [SIGN]),
            *(name for name, _ in compute_version(stream)),
        ),
        keys=tuple(keys.keys),
        time=time,
        rules=stream.rules,
    )


def _plan_side(
    query: Query, rewritten: Rewritten, side: Side, window: Dimension | None, ranked: str | None
) -> SidePlan:
    keys = rewritten.keys[side]
    stream = keys.stream
    filters = [*rewritten.filters[side], *keys.not_null]
    if window is not None:
        filters.append(Filter.require(f"{quote(stream.alias)}.{quote(stream.event_time or '')}"))
    filters = list(dict.fromkeys(filters))
    computed = [(column, text) for text, column in keys.computed.items()]
    computed += [] if ranked is None else [(RANKED, ranked)]
    if filters and (query.counts or side in query.how.preserved):
        # The unit needs the tuples that fail a filter too. In a count window, they count as well.
        # In a preserved stream, they are answered without a partner.
        computed, filters = guard_computed(filters, computed), []
    computed += [*compute_sign(stream), *compute_version(stream)]
    # Otherwise preserved tuples would wait for tuples of this stream that pass the filters.
    moves_watermark = query.how.waits and stream.is_streaming
    return SidePlan(stream.alias, tuple(filters), tuple(computed), stream.carried, moves_watermark)


def compute_sign(stream: Stream) -> list[tuple[str, str]]:
    """Return the block column with the sign of a tuple, and its SQL. There is none without deletes."""
    if stream.inserts_only:
        return [(SIGN, "CAST(1 AS TINYINT)")]
    return [] if stream.change_type is None else [(SIGN, write_sign(stream.alias, stream.change_type))]


def write_sign(alias: str, change_type: str) -> str:
    """Write the sign of a tuple: 1 if it was inserted, and -1 if it was deleted.

    Any other type of change is an error. It comes from a union with rows that ``th.changes`` has not read.
    """
    column = f"{quote(alias)}.{quote(change_type)}"
    what = f"a row of {alias} is no {INSERT} and no {DELETE}; give each part of a union to th.changes"
    error = write_literal(str(ThetastreamError("CHANGES_VALUE", what)))
    inserted, deleted = write_literal(INSERT), write_literal(DELETE)
    other = f"CAST(raise_error({error}) AS INT)"
    return f"CAST(CASE {column} WHEN {inserted} THEN 1 WHEN {deleted} THEN -1 ELSE {other} END AS TINYINT)"


def write_change_type() -> str:
    """Write what happened to a row, by the sign of its tuple. It undoes ``write_sign``.

    >>> write_change_type()
    "CASE WHEN w > 0 THEN 'insert' ELSE 'delete' END AS `_change_type`"
    """
    inserted, deleted = write_literal(INSERT), write_literal(DELETE)
    return f"CASE WHEN {SIGN} > 0 THEN {inserted} ELSE {deleted} END AS {quote(CHANGE_TYPE)}"


def guard_computed(filters: Sequence[Filter], computed: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Write computed columns for units that need the tuples that fail the filters too. These columns are
    then NULL, and so is one more column."""
    return [(column, write_guarded(filters, text)) for column, text in [*computed, (PASSES, "1")]]


def write_guarded(filters: Sequence[Filter], text: str) -> str:
    """Write an expression that is NULL unless all filters are true.

    A filter is evaluated only if the filters before it are true. The CASEs are nested because of Spark:
    before an AND, it computes what the operands have in common, even if this raises an error.

    >>> write_guarded([Filter("x > 0"), Filter("10 / x > 2")], "y")
    'CASE WHEN x > 0 THEN CASE WHEN 10 / x > 2 THEN y END END'
    """
    for passed in reversed(filters):
        text = f"CASE WHEN {passed.text} THEN {text} END"
    return text


def _build_predicate(predicate: Predicate, query: Query, resolver: Resolver) -> PythonPredicate:
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
        predicate.adapt(lambda alias, name: find_type(query.streams, alias, name, resolver) == "timestamp"),
        (spelled[0], spelled[1]),
        (columns[0], columns[1]),
        predicate.is_encoded,
        predicate.version,
    )


def _build_check(check: Check, rewritten: Rewritten) -> PythonPredicate:
    """Build the predicate that evaluates an exact comparison on the values of two keys."""
    left, right = (
        keys.keys[key].column for keys, key in zip(rewritten.keys, (check.left, check.right), strict=True)
    )
    name = f"{left} {right} {check.comparison}".replace(".", "_")  # a dot would end the name of a module
    return PythonPredicate(name, check.comparison, ("left", "right"), (((VALUE, left),), ((VALUE, right),)))


def _can_drop_replaced(
    query: Query, rewritten: Rewritten, condition: Condition, ranked: LoweredRanking | LoweredMeasure | None
) -> bool:
    """Whether a right tuple is no partner any more when later ones with its keys are before the watermark.

    This is so if the latest partner before a left tuple is its nearest one, and equal keys are all that a
    pair needs: later left tuples then find the later right tuples, which are nearer.
    """
    window, (left, right) = condition.window, query.streams
    if query.counts is not None or window is None or window.point is not Side.LEFT or window.low is None:
        return False
    if condition.dimensions or condition.predicates or rewritten.residual or right.change_type is not None:
        return False
    is_latest = isinstance(ranked, LoweredRanking) and ranked.prefers_latest(left, right)
    return is_latest and window.low.delta >= 0


def _build_ranking(
    ranked: LoweredRanking | LoweredMeasure | None, rewritten: Rewritten
) -> tuple[PairRanking | None, tuple[str | None, str | None]]:
    """Build the ranking of pairs, and the SQL of the values by which it ranks."""
    if ranked is None:
        return None, (None, None)
    if isinstance(ranked, LoweredRanking):
        return ranked.ranking, ranked.texts
    left, right = (
        keys.find_values(phrase) for keys, phrase in zip(rewritten.keys, ranked.arguments, strict=True)
    )
    pair = RankedPair(ranked.k, (left, right), ranked.measure, ranked.is_descending)
    return MeasuredRanking(pair), (None, None)


def _build_measured(measured: Measured, rewritten: Rewritten) -> MeasuredPair:
    left, right = (
        keys.find_values(phrase)
        for keys, phrase in zip(rewritten.keys, (measured.f, measured.g), strict=True)
    )
    mine, theirs = (
        None if phrase is None else keys.find_values(phrase)
        for keys, phrase in zip(rewritten.keys, measured.thresholds, strict=True)
    )
    return MeasuredPair((left, right), measured.limit, (mine, theirs))


# State


def choose_archive_period(lifetimes_us: Iterable[int | None], asked_us: int | None) -> int | None:
    """Choose the event time that a subindex spans, from the lifetimes of the streams' tuples.

    Return None if all tuples live for ever.

    Raises
    ------
    QueryError
        ARCHIVE_PERIOD if the period that the user asks for is too short or too long.
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


def choose_index(condition: Condition, asked: str | None = None) -> tuple[IndexSpec, str]:
    """Return the index of both sides and the reason for the choice.

    Parameters
    ----------
    condition : Condition
        The condition of the join.
    asked : str, optional
        The name of the shape to use. If it is None, the strongest shape that fits is used.

    Raises
    ------
    QueryError
        UNKNOWN_INDEX or INDEX_NOT_APPLICABLE if the named shape is unknown or does not fit.
    """
    offer = Indexable.of(condition)
    if asked is not None:
        return _choose_asked_index(asked, offer), "forced by index="
    by_strength = sorted(REGISTRY.values(), key=lambda shape: shape.strength, reverse=True)
    fits = ((shape, shape.fit(offer, is_asked=False)) for shape in by_strength)
    shape, fit = next((shape, fit) for shape, fit in fits if fit is not None)  # a scan always fits
    return IndexSpec(shape, fit.equalities, fit.dimensions), fit.reason


def _choose_asked_index(name: str, offer: Indexable) -> IndexSpec:
    if name not in REGISTRY:
        raise QueryError("UNKNOWN_INDEX", f"index ({name!r}) must be one of {', '.join(REGISTRY)}")
    shape = REGISTRY[name]
    fit = shape.fit(offer, is_asked=True)
    if fit is None:
        raise QueryError(
            "INDEX_NOT_APPLICABLE",
            f"index {name!r} needs {shape.needs}; the condition has {len(offer.equalities)} equalities and "
            f"{len(offer.comparisons)} comparisons, {len(offer.bands)} of them bands",
        )
    return IndexSpec(shape, fit.equalities, fit.dimensions)
