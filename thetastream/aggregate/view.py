"""The local view of a unit: what its matches of an epoch come to, group by group.

BiStream (SIGMOD 2015) section 3.4.2. Of a match only the columns that groups and measures read are
looked at, a piece of some ten thousand matches at a time; no joined row leaves the unit. A view's rows
are merged by the functions that made them: counts and sums add up, least and greatest stay so.

    view(m1 + m2) = merge(view(m1) + view(m2))
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.joiner.unit import Matches
from thetastream.keys import decode_floats, encode_floats
from thetastream.types import Side

TIME = "time"
"""Column of a view: the latest result time of the row's matches."""
ROWS_HELD = 1 << 16
"""Rows of a view that wait to be merged."""
_PANE = "pane"
_INTEGER_SUM = pa.decimal128(38, 0)


@dataclass(frozen=True)
class Measure:
    """One accumulator: ``count``, ``sum``, ``min`` or ``max`` over a column of one side.

    Without a column it counts matches.
    """

    function: str
    side: Side | None = None
    column: str | None = None


@dataclass(frozen=True)
class Pane:
    """Result times are cut into panes [offset + k * span, offset + (k + 1) * span), in microseconds."""

    span_us: int
    offset_us: int = 0


@dataclass(frozen=True)
class Fold:
    """What a view groups by and measures; picklable.

    Its rows have the columns ``g0, g1, ...`` (groups), ``m0, m1, ...`` (measures), and with event times
    ``time``. With a pane, matches of different panes are different groups.
    """

    groups: tuple[tuple[Side, str], ...] = ()
    measures: tuple[Measure, ...] = ()
    times: tuple[str, str] | None = None
    """Event-time columns, left and right."""
    pane: Pane | None = None

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
        self._held: list[pa.Table] = []
        self._most_held = ROWS_HELD
        self._floats: dict[str, pa.DataType] = {}

    def add(self, matches: Matches) -> None:
        """Fold matches in."""
        if not matches.left.num_rows:
            return
        columns = self._columns(matches)
        names = [f"m{n}" for n in range(len(self._fold.measures))]
        functions = [
            ([], "count_all") if measure.column is None else (name, measure.function)
            for name, measure in zip(names, self._fold.measures, strict=True)
        ]
        table = pa.table(columns)
        if self._fold.pane is not None:  # no window holds a result without a time
            table = table.filter(table.column(TIME).is_valid())
        self._held.append(self._grouped(table, names, functions))
        if sum(part.num_rows for part in self._held) > self._most_held:
            self._held = [self._merged()]
            # A view that has grown is merged less often, so that the work stays linear.
            self._most_held = max(ROWS_HELD, 2 * self._held[0].num_rows)

    def rows(self) -> list[pa.RecordBatch]:
        """The view; of one batch unless it holds more text than Arrow puts into one."""
        if not self._held:
            return []
        table = self._merged().drop_columns([_PANE] * (self._fold.pane is not None))
        for name, type_ in self._floats.items():
            position = table.schema.get_field_index(name)
            table = table.set_column(position, name, _as_floats(table.column(name), type_))
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return batches

    def _columns(self, matches: Matches) -> dict[str, Any]:
        fold, sides = self._fold, (matches.left, matches.right)
        columns: dict[str, Any] = {
            f"g{n}": sides[side].column(column) for n, (side, column) in enumerate(fold.groups)
        }
        for n, measure in enumerate(fold.measures):
            if measure.side is not None and measure.column is not None:
                columns[f"m{n}"] = self._measured(
                    f"m{n}", measure, sides[measure.side].column(measure.column)
                )
        if fold.times is not None:
            left, right = (batch.column(time) for batch, time in zip(sides, fold.times, strict=True))
            columns[TIME] = latest = pc.max_element_wise(left, right, skip_nulls=False)
            if fold.pane is not None:
                micros = latest.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
                columns[_PANE] = (micros - fold.pane.offset_us) // fold.pane.span_us
        if not columns:  # matches are counted by rows, and a table of no columns has none
            columns["rows"] = np.zeros(matches.left.num_rows, dtype=np.int8)
        return columns

    def _measured(self, name: str, measure: Measure, array: pa.Array) -> pa.Array:
        """The column in a type whose Arrow function gives Spark's answer."""
        type_ = array.type
        if measure.function == "sum":
            if pa.types.is_integer(type_):
                return array.cast(_INTEGER_SUM)  # exact, where int64 would wrap around
            return array.cast(pa.float64()) if pa.types.is_floating(type_) else array
        if measure.function in ("min", "max") and pa.types.is_floating(type_):
            self._floats[name] = type_
            return _as_ordered(array)  # NaN is the greatest number in Spark, and none in Arrow
        return array

    def _grouped(self, table: pa.Table, names: list[str], functions: list[tuple[Any, str]]) -> pa.Table:
        if self._fold.times is not None:
            names, functions = [*names, TIME], [*functions, (TIME, "max")]
        grouped = table.group_by(self._keys, use_threads=False).aggregate(functions)
        made = ["count_all" if column == [] else f"{column}_{function}" for column, function in functions]
        arrays = [grouped.column(name) for name in [*self._keys, *made]]
        return pa.table(arrays, names=[*self._keys, *names])

    def _merged(self) -> pa.Table:
        if len(self._held) == 1:
            return self._held[0]
        names = [f"m{n}" for n in range(len(self._fold.measures))]
        functions = [
            (name, "sum" if measure.function == "count" else measure.function)
            for name, measure in zip(names, self._fold.measures, strict=True)
        ]
        return self._grouped(pa.concat_tables(self._held), names, functions)


def view_of(fold: Fold, matches: Iterable[Matches]) -> LocalView:
    """The view of all these matches."""
    view = LocalView(fold)
    for piece in matches:
        view.add(piece)
    return view


def _as_ordered(array: pa.Array) -> pa.Array:
    values = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(encode_floats(values), mask=mask)


def _as_floats(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = column.combine_chunks()
    values = decode_floats(array.fill_null(0).to_numpy(zero_copy_only=False))
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, mask=mask).cast(type_)
