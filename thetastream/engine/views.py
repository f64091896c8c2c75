"""The engine of online aggregation: units of a two-stream join that fold their matches into local views.

    view(m1 + m2)  =  merge(view(m1) + view(m2))
    is followed:      bound of the watermark after the epoch > watermark + 1 ms
    waits:            is followed, and watermark - watermark of the oldest waiting view < every

A view has the measures of one epoch's matches, one row per group (BiStream, SIGMOD 2015, section 3.4.2). It
reads only the columns that its groups and measures need, in pieces of about ten thousand matches, and no
joined row leaves the unit. The measure functions that made the rows of a view also merge them: counts and
sums are added up, and of extremes the least or greatest is kept. If streams have deletes, a count is the sum
of the signs of matches, and a sum is that of their signed values.

A view may wait in the store of its unit, so that groups are updated less often. It must not wait for ever, so
it waits only if Spark is certain to run another epoch, with or without data. Spark does so if the watermark
rises after the epoch. The watermark rises if each stream brought a tuple that is later than the watermark by
more than the stream's delay. If an input is the result of other joins, its rows say this of the streams
behind it (``thetastream.engine.two_stream.watermark_bound``). An epoch that brings no tuples releases waiting
views.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.aggregates.base import Call, Measure
from thetastream.aggregates.operands import Operand, list_columns
from thetastream.core.blocks import Matches
from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import OpenStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit
from thetastream.engine.two_stream.watermark_bound import BoundSource, find_watermark_bound

_TIME = "time"
"""The column of a view with the latest result time of the row's matches."""
ROWS_HELD = 1 << 16
"""Number of unmerged rows at which a view merges its rows."""
_PANE = "pane"
_ALL = "all"
"""The key column of a view whose matches are all one group."""


@dataclass(frozen=True)
class Pane:
    """Panes of the result time: [offset + k * span, offset + (k + 1) * span), in microseconds."""

    span_us: int
    offset_us: int = 0


@dataclass(frozen=True)
class ViewDelays:
    """The longest time that views wait, and the watermark delay of each input, in milliseconds."""

    every_ms: int
    delays_ms: tuple[int, int]
    bounds: tuple[str | None, str | None] = (None, None)
    """For each input, the block column with the bound of the watermark. It is None if the input is a stream.
    """


@dataclass(frozen=True)
class Fold:
    """The groups and measures of a view. It is picklable.

    The rows of the view have the columns ``g0, g1, ...`` (groups) and ``m0, m1, ...`` (measures). A measure
    that needs several columns has ``m0_n`` and so on. With event times, the rows also have the column
    ``time``. With a pane, matches of different panes belong to different groups.
    """

    groups: tuple[tuple[Side, str], ...] = ()
    measures: tuple[Measure, ...] = ()
    times: tuple[str, str] | None = None
    """The event-time columns of the left and the right stream."""
    pane: Pane | None = None
    lazy: ViewDelays | None = None
    """How long views wait. It is None with a pane, because the pane's window could close meanwhile."""
    where: Operand | None = None
    """The condition of the matches that are folded. If it is None, all are folded."""
    has_deletes: bool = False
    """Whether matches have signs. A deleted match is then taken out of the measures."""

    def columns(self, side: Side) -> tuple[str, ...]:
        """Return the columns of one side that the view reads."""
        read = [column for at, column in self.groups if at is side]
        operands = [self.where, *(measure.operand for measure in self.measures)]
        read += list_columns([operand for operand in operands if operand is not None], side)
        if self.times is not None:
            read.append(self.times[side])
        return tuple(dict.fromkeys(read))


class LocalView:
    """Folds matches into one row per group.

    Examples
    --------
    >>> from thetastream.aggregates.operands import SideColumn
    >>> from thetastream.core.sides import Side
    >>> from thetastream.aggregates.simple import MatchCount
    >>> from thetastream.aggregates.simple import Total
    >>> measures = Measure(MatchCount()), Measure(Total(), SideColumn(Side.RIGHT, "x"))
    >>> view = LocalView(Fold(((Side.LEFT, "k"),), measures))
    >>> left = pa.RecordBatch.from_pydict({"k": ["u", "v", "u"]})
    >>> view.add(Matches(left, pa.RecordBatch.from_pydict({"x": [1.0, 2.0, 3.0]})))
    >>> view.rows()[0].to_pylist()
    [{'g0': 'u', 'm0': 2, 'm1': 4.0}, {'g0': 'v', 'm0': 1, 'm1': 2.0}]
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._keys = [f"g{n}" for n in range(len(fold.groups))] + [_PANE] * (fold.pane is not None)
        self._keys = self._keys or [_ALL]
        self._measures = [
            measure.function.build_signed(f"m{n}")
            if fold.has_deletes
            else measure.function.build_accumulator(f"m{n}")
            for n, measure in enumerate(fold.measures)
        ]
        self._held: list[pa.Table] = []
        self._most_held = ROWS_HELD

    def add(self, matches: Matches) -> None:
        """Fold the matches that satisfy the condition of the fold into the view."""
        if self._fold.where is not None:
            holds, signs = self._fold.where.read(matches), matches.signs
            signs = None if signs is None else signs.filter(holds)
            matches = Matches(matches.left.filter(holds), matches.right.filter(holds), signs)
        if not matches.left.num_rows:
            return
        table = pa.table(self._build_columns(matches))
        if self._fold.pane is not None:  # a result without a time belongs to no window
            table = table.filter(table.column(_TIME).is_valid())
            if not table.num_rows:
                return
        self._held.append(self._group(table, is_view=False))
        if sum(part.num_rows for part in self._held) > self._most_held:
            self._held = [self._merge_held()]
            # A large view is merged less often, so that the total work stays linear.
            self._most_held = max(ROWS_HELD, 2 * self._held[0].num_rows)

    def merge(self, rows: pa.RecordBatch) -> None:
        """Merge the rows of another view with the same fold, which must have no pane."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for measure in self._measures:
            for name in measure.columns:
                columns[name] = measure.read(columns[name])
        if _ALL in self._keys:
            columns[_ALL] = np.zeros(rows.num_rows, dtype=np.int8)
        self._held.append(
            pa.table(columns).select([*self._keys, *(c for c in columns if c not in self._keys)])
        )

    def rows(self) -> list[pa.RecordBatch]:
        """Return the rows of the view: one batch, or several if one cannot hold all their text."""
        if not self._held:
            return []
        table = self._merge_held()
        for measure in self._measures:
            for name in measure.columns:
                column = measure.show(table.column(name))
                table = table.set_column(table.schema.get_field_index(name), name, column)
        table = table.drop_columns([name for name in self._keys if name in (_PANE, _ALL)])
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return batches

    def _build_columns(self, matches: Matches) -> dict[str, Any]:
        fold, sides = self._fold, (matches.left, matches.right)
        columns: dict[str, Any] = {
            f"g{n}": sides[side].column(column) for n, (side, column) in enumerate(fold.groups)
        }
        signs = None if matches.signs is None else matches.signs.to_numpy()
        for n, (measure, made) in enumerate(zip(fold.measures, self._measures, strict=True)):
            values = None if measure.operand is None else measure.operand.read(matches)
            if signs is not None:
                columns[f"m{n}"] = made.read_signed(values, signs)
            elif values is not None:
                columns[f"m{n}"] = made.read(values)
        if fold.times is not None:
            left, right = (batch.column(time) for batch, time in zip(sides, fold.times, strict=True))
            columns[_TIME] = latest = pc.max_element_wise(left, right, skip_nulls=False)
            if fold.pane is not None:
                micros = latest.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
                columns[_PANE] = (micros - fold.pane.offset_us) // fold.pane.span_us
        if _ALL in self._keys:
            columns[_ALL] = np.zeros(matches.left.num_rows, dtype=np.int8)
        return columns

    def _merge_held(self) -> pa.Table:
        if len(self._held) == 1:
            return self._held[0]
        return self._group(pa.concat_tables(self._held), is_view=True)

    def _group(self, table: pa.Table, is_view: bool) -> pa.Table:
        """Group matches, or rows of views, into one row per group."""
        latest: list[Call] = [(_TIME, "max")] if self._fold.times is not None else []
        calls = [measure.of_views if is_view else measure.of_matches for measure in self._measures]
        every = [*chain.from_iterable(calls), *latest]
        grouped = table.group_by(self._keys, use_threads=False).aggregate(every)
        columns = {name: grouped.column(name) for name in self._keys}
        for measure, called in zip(self._measures, calls, strict=True):
            found = [grouped.column(_name_result(call)) for call in called]
            made = measure.merge(found) if is_view else measure.count(found)
            columns.update(zip(measure.columns, made, strict=True))
        for call in latest:
            columns[_TIME] = grouped.column(_name_result(call))
        return pa.table(columns)


def _name_result(call: Call) -> str:
    """Return the name that Arrow gives to the column with the result of a call."""
    column, function = call
    return f"{column}_{function}" if column else function


def fold_matches(fold: Fold, matches: Iterable[Matches]) -> LocalView:
    """Fold matches into a new view."""
    view = LocalView(fold)
    for piece in matches:
        view.add(piece)
    return view


def is_followed(lazy: ViewDelays, condition: Condition, inbox: Inbox, watermark_ms: int) -> bool:
    """Whether an epoch with a later watermark is certain to follow the epoch that brought ``inbox``."""
    sources = []
    for side in Side:
        time = condition.sides[side].time
        if time is None:
            return False
        sources.append(BoundSource(lazy.bounds[side] or time.column, lazy.delays_ms[side]))
    bound_ms = find_watermark_bound(inbox, (sources[0], sources[1]))
    # A timer is set one millisecond after the watermark.
    return bound_ms is not None and bound_ms > watermark_ms + 1


@dataclass
class FoldedState:
    """State of a unit: the state of the join and the waiting views."""

    unit: UnitState = field(default_factory=UnitState)
    since_ms: int = 0
    """Watermark of the epoch that made the oldest waiting view, in milliseconds."""
    views: list[tuple[str, int]] = field(default_factory=list)
    """The waiting views: the name of each view's block in the store and its number of rows."""


class FoldedUnit:
    """A unit of a join that returns views: one row per group instead of one row per match."""

    messages: Sequence[Message] = ()
    is_waiting = False

    def __init__(self, spec: "FoldedSpec", slot: int, state: FoldedState, open_store: OpenStore) -> None:
        join = spec.join
        self._spec = spec
        self._store = open_store(join.unit.plans)
        self._unit = Unit(join.unit, join.model, slot, state.unit, self._store)
        self._since_ms = state.since_ms
        self._views = state.views
        self.counters = self._unit.counters

    @property
    def state(self) -> FoldedState:
        """The state after all epochs run so far."""
        return FoldedState(self._unit.state, self._since_ms, self._views)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the view, which includes the views that waited."""
        # 1. Fold this epoch's matches and the views that waited into one view.
        fold, now_ms = self._spec.fold, (clock.watermark_us or 0) // 1000
        view = fold_matches(fold, self._unit.matches(inbox, clock))
        if not self._views:
            self._since_ms = now_ms
        for name, n_rows in self._views:
            view.merge(self._store.get_block(name, n_rows))
            self._store.drop_block(name)
        self._views = []
        rows = view.rows()
        # 2. Release the view, unless it may wait.
        if rows and self._may_wait(inbox, now_ms):
            self._keep(rows)
            return
        for batch in rows:
            yield batch.columns

    def _may_wait(self, inbox: Inbox, now_ms: int) -> bool:
        """Whether the view is not due and another epoch is certain to follow."""
        lazy = self._spec.fold.lazy
        if lazy is None or now_ms - self._since_ms >= lazy.every_ms:
            return False
        return is_followed(lazy, self._spec.join.unit.condition, inbox, now_ms)

    def _keep(self, rows: Sequence[pa.RecordBatch]) -> None:
        for batch in rows:
            name = uuid.uuid4().hex
            self._store.put_block(name, batch)
            self._views.append((name, batch.num_rows))


@dataclass(frozen=True)
class FoldedSpec(ExtendedSpec):
    """Spec of a two-stream join whose units fold their matches."""

    fold: Fold

    state_type: ClassVar[type[FoldedState]] = FoldedState

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs; None if they can."""
        if self.fold.lazy is not None:
            return "every= keeps views in the units, and a unit that leaves would take them along"
        return super().scaling_obstacle

    def open(self, slot: int, state: FoldedState, open_store: OpenStore) -> FoldedUnit:
        """Open the unit with number ``slot``."""
        return FoldedUnit(self, slot, state, open_store)
