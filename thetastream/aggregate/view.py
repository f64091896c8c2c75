"""The local view of a unit: what its matches of an epoch come to, group by group.

BiStream (SIGMOD 2015) section 3.4.2. Of a match only the columns that groups and measures read are
looked at, a piece of some ten thousand matches at a time; no joined row leaves the unit. A view's rows
are merged by the functions that made them: counts and sums add up, least and greatest stay so.

    view(m1 + m2) = merge(view(m1) + view(m2))
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.aggregate.accumulator import Call, Measure, accumulator
from thetastream.aggregate.lazy import Lazy
from thetastream.joiner.unit import Matches
from thetastream.types import Side

TIME = "time"
"""Column of a view: the latest result time of the row's matches."""
ROWS_HELD = 1 << 16
"""Rows of a view that wait to be merged."""
_PANE = "pane"
_ALL = "all"
"""The key of matches that are one group."""


@dataclass(frozen=True)
class Pane:
    """Result times are cut into panes [offset + k * span, offset + (k + 1) * span), in microseconds."""

    span_us: int
    offset_us: int = 0


@dataclass(frozen=True)
class Fold:
    """What a view groups by and measures; picklable.

    Its rows have the columns ``g0, g1, ...`` (groups), ``m0, m1, ...`` (measures; one that needs more than
    one column has ``m0_n`` and so on), and with event times ``time``. With a pane, matches of different panes
    are different groups.
    """

    groups: tuple[tuple[Side, str], ...] = ()
    measures: tuple[Measure, ...] = ()
    times: tuple[str, str] | None = None
    """Event-time columns, left and right."""
    pane: Pane | None = None
    lazy: Lazy | None = None
    """When views wait; never with a pane, whose window might close meanwhile."""

    def columns(self, side: Side) -> tuple[str, ...]:
        """The columns of one side that a view is made of."""
        read = [column for at, column in self.groups if at is side]
        read += [m.column for m in self.measures if m.side is side and m.column is not None]
        if self.times is not None:
            read.append(self.times[side])
        return tuple(dict.fromkeys(read))


class LocalView:
    """Matches in, one row per group out.

    Examples
    --------
    >>> from thetastream.types import Side
    >>> view = LocalView(Fold(((Side.LEFT, "k"),), (Measure("count"), Measure("sum", Side.RIGHT, "x"))))
    >>> left = pa.RecordBatch.from_pydict({"k": ["u", "v", "u"]})
    >>> view.add(Matches(left, pa.RecordBatch.from_pydict({"x": [1.0, 2.0, 3.0]})))
    >>> view.rows()[0].to_pylist()
    [{'g0': 'u', 'm0': 2, 'm1': 4.0}, {'g0': 'v', 'm0': 1, 'm1': 2.0}]
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._keys = [f"g{n}" for n in range(len(fold.groups))] + [_PANE] * (fold.pane is not None)
        self._keys = self._keys or [_ALL]
        self._measures = [accumulator(f"m{n}", measure) for n, measure in enumerate(fold.measures)]
        self._held: list[pa.Table] = []
        self._most_held = ROWS_HELD

    def add(self, matches: Matches) -> None:
        """Fold matches in."""
        if not matches.left.num_rows:
            return
        table = pa.table(self._columns(matches))
        if self._fold.pane is not None:  # no window holds a result without a time
            table = table.filter(table.column(TIME).is_valid())
            if not table.num_rows:
                return
        self._held.append(self._grouped(table, is_view=False))
        if sum(part.num_rows for part in self._held) > self._most_held:
            self._held = [self._merged()]
            # A view that has grown is merged less often, so that the work stays linear.
            self._most_held = max(ROWS_HELD, 2 * self._held[0].num_rows)

    def merge(self, rows: pa.RecordBatch) -> None:
        """Fold in what ``rows`` of another view of this fold gave; of one without panes."""
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
        """The view; of one batch unless it holds more text than Arrow puts into one."""
        if not self._held:
            return []
        table = self._merged()
        for measure in self._measures:
            for name in measure.columns:
                column = measure.shown(table.column(name))
                table = table.set_column(table.schema.get_field_index(name), name, column)
        table = table.drop_columns([name for name in self._keys if name in (_PANE, _ALL)])
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return batches

    def _columns(self, matches: Matches) -> dict[str, Any]:
        fold, sides = self._fold, (matches.left, matches.right)
        columns: dict[str, Any] = {
            f"g{n}": sides[side].column(column) for n, (side, column) in enumerate(fold.groups)
        }
        for n, (measure, made) in enumerate(zip(fold.measures, self._measures, strict=True)):
            if measure.side is not None and measure.column is not None:
                columns[f"m{n}"] = made.read(sides[measure.side].column(measure.column))
        if fold.times is not None:
            left, right = (batch.column(time) for batch, time in zip(sides, fold.times, strict=True))
            columns[TIME] = latest = pc.max_element_wise(left, right, skip_nulls=False)
            if fold.pane is not None:
                micros = latest.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
                columns[_PANE] = (micros - fold.pane.offset_us) // fold.pane.span_us
        if _ALL in self._keys:
            columns[_ALL] = np.zeros(matches.left.num_rows, dtype=np.int8)
        return columns

    def _merged(self) -> pa.Table:
        if len(self._held) == 1:
            return self._held[0]
        return self._grouped(pa.concat_tables(self._held), is_view=True)

    def _grouped(self, table: pa.Table, is_view: bool) -> pa.Table:
        """One row per group of matches, or of rows of views."""
        latest: list[Call] = [(TIME, "max")] if self._fold.times is not None else []
        calls = [measure.of_views if is_view else measure.of_matches for measure in self._measures]
        every = [*chain.from_iterable(calls), *latest]
        grouped = table.group_by(self._keys, use_threads=False).aggregate(every)
        columns = {name: grouped.column(name) for name in self._keys}
        for measure, called in zip(self._measures, calls, strict=True):
            found = [grouped.column(_name(call)) for call in called]
            made = measure.merged(found) if is_view else measure.counted(found)
            columns.update(zip(measure.columns, made, strict=True))
        for call in latest:
            columns[TIME] = grouped.column(_name(call))
        return pa.table(columns)


def _name(call: Call) -> str:
    """What Arrow names the result."""
    column, function = call
    return f"{column}_{function}" if column else function


def view_of(fold: Fold, matches: Iterable[Matches]) -> LocalView:
    """The view of all these matches."""
    view = LocalView(fold)
    for piece in matches:
        view.add(piece)
    return view
