"""One unit of a join that answers each tuple, if a part of the condition is evaluated behind the units.

    candidate pairs    { (l, r) : l, r satisfy the part of the condition that the units evaluate }
    decided tuples     { l in L : all candidate pairs of l have left the unit }

Both leave the unit as rows with the number that the unit gives to each preserved tuple. Behind the units,
Spark drops the pairs that fail the rest of the condition. A second unit (``deciding``) gets the other rows.
There is a second unit for each slot, because the units of several generations may give the same number to
different tuples.

Spark may bring the tuples of an epoch in another order if it runs a task again. They must get the same
numbers then, because the second unit may know the numbers already. Therefore new tuples are sorted before
they are numbered. Only tuples with equal columns may change places.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_floating, is_nested

from thetastream.core.blocks import Matches
from thetastream.core.columns import DECIDED, KEY, NUMBERS, SENDER, SIGN, SIGNS, TUPLE
from thetastream.core.how import How, PairRanking
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Side
from thetastream.engine.answers.unit import AnsweringUnit, AnswersState, read_sign_column
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox
from thetastream.engine.matching import match
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.spec import TwoStreamSpec


@dataclass(frozen=True)
class CandidateColumns:
    """The columns of the rows that leave the unit. Picklable."""

    how: How
    payload: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns of left and of right tuples."""
    ranking: PairRanking | None = None
    """How the partners of a tuple are ranked, if only the nearest are results."""
    signed: tuple[bool, bool] = (False, False)
    """Whether left and right tuples may be deleted."""

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns behind the payload, and their types.

        ``sender`` is the slot of the unit. ``decided`` is the side of a decided tuple, and NULL for a pair.
        There is a number for each preserved stream. It is NULL if the row has no tuple of this stream, and
        for a tuple that has no candidate pair at all. It is negative if another unit answers the tuple.
        ``key`` ranks pairs. If a stream has deletes, there is the sign of each tuple of the row.
        """
        numbers = {NUMBERS[side]: pa.int64() for side in self.how.preserved}
        key = {} if self.ranking is None else {KEY: pa.int64()}
        signs = dict.fromkeys(SIGNS, pa.int8()) if any(self.signed) else {}
        return {SENDER: pa.int32(), DECIDED: pa.int8(), **numbers, **key, **signs}

    def build(self, n: int, payload: Iterable[pa.Array], values: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Build ``n`` rows of the payload and these values. Values that are left out are NULL."""
        return [*payload, *(values.get(name, pa.nulls(n, type_)) for name, type_ in self.types.items())]


class CandidatesUnit(AnsweringUnit):
    """One unit of a join that answers each tuple. It hands out candidate pairs and decided tuples."""

    def __init__(
        self,
        join: TwoStreamSpec,
        columns: CandidateColumns,
        slot: int,
        state: AnswersState,
        store: SegmentStore,
    ) -> None:
        super().__init__(join, columns.how, slot, state, store)
        self._rows = columns
        self._sender = slot

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield candidate pairs and decided tuples."""
        if inbox.peers.slot is not None:
            self._sender = inbox.peers.slot
        yield from super().epoch(inbox, clock)

    def _number(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        time = self._spec.condition.sides[side].time
        return super()._number(side, sort_tuples(batch, None if time is None else time.column))

    def _counts_partners(self, side: Side) -> bool:
        return False  # the second unit does

    def _needs_one(self, side: Side) -> bool:
        return False  # the rest of the condition decides

    def _gather_deletes(self, side: Side) -> pa.RecordBatch | None:
        # If some pairs of equal tuples cancelled each other here, they would differ in their partners.
        return None

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Yield the candidate pairs. None of them closes a tuple."""
        yield from match(side, payload, candidates, self._residual, self._columns, self.counters)

    @property
    def _columns(self) -> tuple[Sequence[str], Sequence[str]]:
        ranking = self._rows.ranking
        left, right = (
            [*dict.fromkeys([*payload, *([] if ranking is None else ranking.list_columns(side))])]
            + [TUPLE] * (side in self._open)
            + [SIGN] * self._signed[side]
            for side, payload in zip(Side, self._rows.payload, strict=True)
        )
        return left, right

    def _answer_matched(self, matches: Matches) -> list[pa.Array]:
        n, payload = matches.left.num_rows, []
        values = {SENDER: self._name_sender(n)}
        for side, batch in zip(Side, (matches.left, matches.right), strict=True):
            payload += batch.select(self._rows.payload[side]).columns
            if side in self._open:
                values[NUMBERS[side]] = batch.column(TUPLE)
            if any(self._signed):
                values[SIGNS[side]] = read_sign_column(batch)
        if self._rows.ranking is not None:
            rows = np.arange(n)
            values[KEY] = pa.array(self._rows.ranking.rank_pairs(matches.left, rows, matches.right, rows))
        return self._rows.build(n, payload, values)

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Yield the tuples whose partners are all known, each with its number."""
        for batch, was_open in self._take_due(side, clock):
            if was_open.any():
                yield from self._answer_unmatched(side, batch.take(np.flatnonzero(was_open)))

    def _drop_cancelled(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield stored tuples that have cancelled each other as decided ones.

        The second unit forgets their numbers, and they cancel each other there too.
        """
        was_open = self._open[side].close(batch.column(TUPLE).to_numpy())
        yield from self._answer_unmatched(side, batch.take(np.flatnonzero(was_open)))

    def _answer_unmatched(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield decided tuples of a preserved stream. The second unit knows whether they have a partner."""
        has_number, n = TUPLE in batch.schema.names, batch.num_rows
        if not (has_number or self._how.has_unmatched):
            return
        is_shown = self._how.waits
        payload = [
            batch.column(name) if mine is side and is_shown else pa.nulls(n)
            for mine, names in zip(Side, self._rows.payload, strict=True)
            for name in names
        ]
        values = {SENDER: self._name_sender(n), DECIDED: pa.array(np.full(n, side, np.int8))}
        if has_number:
            values[NUMBERS[side]] = batch.column(TUPLE)
        if any(self._signed):
            values[SIGNS[side]] = read_sign_column(batch)
        yield self._rows.build(n, payload, values)

    def _name_sender(self, n: int) -> Any:
        return pa.array(np.full(n, self._sender, np.int32))


def sort_tuples(batch: pa.RecordBatch, time: str | None) -> pa.RecordBatch:
    """Sort tuples by all their columns.

    ``time`` is the column of the event time, if there is one. It comes first because event times differ most:
    sorting by a text first takes 14 times as long.

    >>> batch = pa.RecordBatch.from_pydict({"x": [2, 1, 1, 1], "tags": [[], ["b"], None, ["a"]]})
    >>> sort_tuples(batch, None).column("tags").to_pylist()
    [None, ['a'], ['b'], []]
    """
    flat = [field.name for field in batch.schema if not is_nested(field.type)]
    nested = [field.name for field in batch.schema if is_nested(field.type)]
    flat.sort(key=lambda name: name != time)
    if flat:
        batch = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in flat]))
    if not nested or batch.num_rows < 2:
        return batch
    # Arrow cannot sort by nested columns. They decide among tuples that are equal in all other columns.
    equal = _find_equal_to_next([batch.column(name) for name in flat], batch.num_rows)
    ties = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if not len(ties):
        return batch
    groups = np.cumsum(np.append(True, ~equal))[ties].tolist()
    texts = map(repr, zip(*(batch.column(name).take(ties).to_pylist() for name in nested), strict=True))
    order: Int64s = np.arange(batch.num_rows)
    order[ties] = [row for *_, row in sorted(zip(groups, texts, ties.tolist(), strict=True))]
    return batch.take(order)


def _find_equal_to_next(columns: Sequence[pa.Array], n: int) -> Mask:
    """Return for each of ``n`` rows but the last one whether it equals the next one.

    NULLs are equal, and so are NaNs.
    """
    equal = np.ones(n - 1, np.bool_)
    for column in columns:
        mine, next_ = column.slice(0, n - 1), column.slice(1)
        same = pc.or_(pc.fill_null(pc.equal(mine, next_), False), pc.and_(mine.is_null(), next_.is_null()))
        if is_floating(column.type):
            same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(mine), pc.is_nan(next_)), False))
        equal &= same.to_numpy(zero_copy_only=False)
    return equal
