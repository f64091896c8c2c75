"""Ordered results: relaxed adjustable punctuation, RAP (SplitJoin, ATC 2016, section 5).

A punctuation follows every ``interval`` arrivals. It promises that no result of an earlier arrival follows
it. Between two punctuations, results come in any order. So an interval of 1 gives outer order, and longer
intervals give less order. Inner precision orders the results of one arrival too: those with older stored
tuples come first, in any order inside ``inner`` stored tuples. All units reach the same punctuation at the
end of an epoch. So results are gathered when the epoch ends, and they never wait longer. A result has two
arrival numbers, those of its left and its right tuple. The later arrival is that of the tuple that found the
result, and the earlier one is that of the stored tuple. A punctuation is a row in which all columns are NULL
except the number of the arrival that it follows, which stands in the column of the stream of this arrival. So
a punctuation carries its stream (figure 9). Rows in which both arrivals are NULL are not results; they come
first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.arrival import Numbers
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox
from thetastream.engine.protocol import EngineSpec, OpenStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit

ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 16, 1 << 25
"""The largest number of rows that are taken together, and about their largest number of bytes."""
MOST_ARRIVALS = 1 << 48
INNER = "inner "
"""The beginning of a setting with an inner precision, as in ``inner 64``."""
OrderOption: TypeAlias = str | int | None
"""The setting ``order``: None, ``"outer"``, ``"strict"``, ``"inner n"``, or the punctuation interval."""
ARRIVAL_LEFT, ARRIVAL_RIGHT = "arrival_left", "arrival_right"
"""Columns of ordered results with the arrival numbers of the left and the right tuple of a pair."""


@dataclass(frozen=True)
class Order:
    """The order of results."""

    interval: int = 1
    """Number of arrivals between two punctuations."""
    inner: int | None = None
    """Inner precision: the results of one arrival are ordered by the arrival of the stored tuple, in any
    order inside so many arrivals. None leaves the results of one arrival in any order; 1 is strict order."""
    is_punctuated: bool = False
    """Whether punctuations are rows of the output."""

    def list_punctuations(self, first: int, end: int) -> Int64s:
        """Return the last arrivals of the intervals that end in [first, end).

        >>> Order(interval=10).list_punctuations(5, 40).tolist()
        [9, 19, 29, 39]
        """
        return np.arange(first // self.interval + 1, end // self.interval + 1) * self.interval - 1

    def __str__(self) -> str:
        if self.inner is not None:
            inside = "" if self.inner == 1 else f", any order inside {self.inner} stored arrivals"
            return f"by arrival, then by age of the stored tuple{inside}"
        if self.interval == 1:
            return "by arrival"
        return f"by arrival, any order inside {self.interval} arrivals"


def read_order(asked: OrderOption, is_punctuated: bool) -> Order | None:
    """Check the options ``order`` and ``punctuations``, and return the order of results or None.

    Raises
    ------
    QueryError
        BAD_ORDER if an option is not valid.

    Examples
    --------
    >>> read_order("outer", False)
    Order(interval=1, inner=None, is_punctuated=False)
    >>> read_order("inner 64", False).inner
    64
    """
    if asked is None:
        if is_punctuated:
            raise QueryError(
                "BAD_ORDER", 'punctuations need an order of results; add order="outer" or an interval'
            )
        return None
    if asked in ("outer", "strict"):
        return Order(inner=1 if asked == "strict" else None, is_punctuated=is_punctuated)
    is_inner = isinstance(asked, str) and asked.startswith(INNER)
    given = asked.removeprefix(INNER) if isinstance(asked, str) else asked
    interval = int(given) if isinstance(given, str) and given.isdecimal() else given
    if isinstance(interval, bool) or not isinstance(interval, int) or not 1 <= interval <= MOST_ARRIVALS:
        raise QueryError(
            "BAD_ORDER",
            f'order must be "outer", "strict", "inner n" or a punctuation interval n, with n from 1 to '
            f"{MOST_ARRIVALS} arrivals, not {asked!r}",
        )
    if is_inner:
        return Order(inner=interval, is_punctuated=is_punctuated)
    return Order(interval, is_punctuated=is_punctuated)


def sort_results(
    batches: Iterable[pa.RecordBatch], order: Order, places: tuple[int, int]
) -> Iterator[pa.Table]:
    """Yield the rows of an epoch in order, ``ROWS_AT_ONCE`` at a time, or fewer if they are wide.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        The results of all units, in any order. They have one schema.
    order : Order
        The order of results.
    places : (int, int)
        Positions of the int64 columns with the arrivals of the left and of the right tuple.
    """
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    left, right = (table.column(place) for place in places)
    is_punctuation = left.is_null().to_numpy() != right.is_null().to_numpy()
    sorted_rows = rank(left.fill_null(-1).to_numpy(), right.fill_null(-1).to_numpy(), is_punctuation, order)
    n_rows = min(ROWS_AT_ONCE, max(1, len(table) * BYTES_AT_ONCE // max(table.nbytes, 1)))
    for start in range(0, len(sorted_rows), n_rows):
        yield table.take(sorted_rows[start : start + n_rows])


def rank(left: Int64s, right: Int64s, is_punctuation: npt.NDArray[np.bool_], order: Order) -> Int64s:
    """Return the positions of the rows in the order of results.

    >>> rank(np.array([7, 2, 5]), np.array([3, 5, 1]), np.zeros(3, dtype=bool), Order(inner=1))
    array([2, 1, 0])
    """
    interval = np.maximum(left, right) // order.interval
    keys = [is_punctuation, interval]
    if order.inner is not None:
        keys.insert(0, np.minimum(left, right) // order.inner)
    return np.lexsort(keys)


class PunctuatedUnit(Unit):
    """A unit of a join with punctuations. Unit 0 adds the punctuations of the epoch to its results."""

    def __init__(self, spec: "PunctuatedSpec", slot: int, state: UnitState, open_store: OpenStore) -> None:
        super().__init__(spec.join.unit, spec.join.model, slot, state, open_store(spec.join.unit.plans))
        self._punctuations = spec if slot == 0 else None
        self._left_arrivals = np.zeros(0, dtype=np.int64)

    def number(self, times: tuple[Int64s, Int64s]) -> tuple[Numbers, ...]:
        """Number the tuples of an epoch, and keep the arrivals of the left tuples."""
        numbers = super().number(times)
        self._left_arrivals = np.sum(numbers[Side.LEFT].seen, axis=0)
        return numbers

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the matches, then those of the punctuations."""
        before = sum(self._arrived)
        yield from super().epoch(inbox, clock)
        if self._punctuations is not None and inbox.peers.is_newest(clock.epoch):
            numbers = self._punctuations.order.list_punctuations(before, sum(self._arrived))
            is_left = np.isin(numbers, self._left_arrivals)
            yield build_punctuations(numbers, is_left, self._punctuations.columns)


@dataclass(frozen=True)
class PunctuatedSpec(ExtendedSpec):
    """Spec of a two-stream join whose results include punctuations."""

    order: Order
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The schema of the results. It is told before a unit opens (``tell_columns``)."""

    state_type: ClassVar[type[UnitState]] = UnitState

    def open(self, slot: int, state: UnitState, open_store: OpenStore) -> PunctuatedUnit:
        """Open the unit with number ``slot``."""
        return PunctuatedUnit(self, slot, state, open_store)


def tell_columns(columns: pa.Schema, spec: EngineSpec) -> PunctuatedSpec:
    """Return the spec of a join with punctuations that knows the schema of its results."""
    assert isinstance(spec, PunctuatedSpec)
    return replace(spec, columns=columns)


def build_punctuations(numbers: Int64s, is_left: npt.NDArray[np.bool_], columns: pa.Schema) -> list[pa.Array]:
    """Build punctuations as columns of results: only the number of the arrival that they follow is not NULL.

    ``is_left`` says whether the arrivals are those of left tuples.
    """
    arrivals = {
        ARRIVAL_LEFT: pa.array(numbers, mask=~is_left),
        ARRIVAL_RIGHT: pa.array(numbers, mask=is_left),
    }
    return [arrivals.get(field.name, pa.nulls(len(numbers), field.type)) for field in columns]
