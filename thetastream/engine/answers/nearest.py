"""One unit of a join that finds the nearest partners of each left tuple.

    { (l, r) : l, r match, the rank of r among the partners of l by the value of the pair is at most k }

The unit keeps the best partners of each undecided tuple (``best_partners``). Pairs leave it when their left
tuple is decided.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches
from thetastream.core.columns import TUPLE
from thetastream.core.how import How, PairRanking
from thetastream.core.sides import Side
from thetastream.engine.answers.best_partners import BestPartners, BestState, pair_with_best
from thetastream.engine.answers.unit import AnsweringUnit, AnswersState, build_pairs
from thetastream.engine.clock import Clock
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.spec import TwoStreamSpec


@dataclass
class NearestState:
    """The state of a unit: the state of its answers, and the best partners."""

    answers: AnswersState = field(default_factory=AnswersState)
    best: BestState = field(default_factory=BestState)


class NearestUnit(AnsweringUnit):
    """One unit of a join that finds the nearest partners of each left tuple."""

    def __init__(
        self,
        join: TwoStreamSpec,
        how: How,
        ranking: PairRanking,
        slot: int,
        state: NearestState,
        store: SegmentStore,
    ) -> None:
        super().__init__(join, how, slot, state.answers, store)
        self._ranking = ranking
        self._best = BestPartners(ranking.k, state.best, store)

    @property
    def state(self) -> Any:
        """The current state."""
        return NearestState(super().state, self._best.state)

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Keep the best of the matches. No match leaves the unit yet."""
        ranking, columns = self._ranking, self._spec.condition.sides[Side.RIGHT].columns
        for found, partner, stored, n_candidates in candidates:
            self.counters.candidates += n_candidates
            found, stored = self._residual.keep(side, payload, found, partner, stored)
            if not len(found):
                continue
            self.counters.matched += len(found)
            mine, theirs = (payload, found), (partner, stored)
            (left, left_rows), (right, right_rows) = (mine, theirs) if side is Side.LEFT else (theirs, mine)
            numbers = left.column(TUPLE).to_numpy()[left_rows]
            self._open[Side.LEFT].close(numbers)
            keys = ranking.rank_pairs(left, left_rows, right, right_rows)
            self._best.add(numbers, keys, right.select(columns), right_rows)
        yield from ()

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Yield the decided tuples: each with its nearest partners, or without a partner."""
        self._best.merge()
        interval = self._find_due(side, clock)
        if interval is None:
            return
        for batch in self._indexes[side].find_due(*interval):
            numbers = batch.column(TUPLE).to_numpy()
            was_open = self._open[side].close(numbers)
            if was_open.any():
                yield from self._answer_unmatched(side, batch.take(np.flatnonzero(was_open)))
            left = batch.select(self._spec.condition.sides[side].columns)
            for at, right in self._best.take(numbers):
                for columns in pair_with_best(left, at, right):
                    yield build_pairs(self._how, columns, len(columns[0]))
