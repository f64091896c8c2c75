"""Select the matches among candidates: compare the columns that must be the same, and call Python
predicates.
"""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import Matches
from thetastream.core.cancellation import multiply_signs
from thetastream.core.condition import Condition, PythonPredicate
from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.counters import Counters
from thetastream.engine.predicate_time import count_predicate
from thetastream.engine.store.probing import Candidates

CandidateRows = Sequence[tuple[pa.RecordBatch, Int64s]]
"""For each alias, a batch of tuples and, for each candidate, the position of its tuple in this batch."""


def match(
    side: Side,
    payload: pa.RecordBatch,
    candidates: Iterable[Candidates],
    residual: "Residual",
    columns: tuple[Sequence[str], Sequence[str]],
    counters: Counters,
) -> Iterator[Matches]:
    """Yield the matches among the candidates that probing tuples have found, and count both.

    Parameters
    ----------
    side : Side
        The side of the probing tuples.
    payload : pyarrow.RecordBatch
        The probing tuples.
    candidates : iterable of Candidates
    residual : Residual
        The part of the condition that the index does not evaluate.
    columns : pair of sequences of str
        The columns of left tuples and of right tuples that matches have.
    counters : Counters
        Counters to which candidates and matches are added.
    """
    for one in candidates:
        counters.candidates += one.n_compared
        partner = one.payload
        found, stored = residual.keep(side, payload, one)
        if not len(found):
            continue
        counters.matched += len(found)
        mine = payload.select(columns[side]).take(found)
        theirs = partner.select(columns[side.other]).take(stored)
        signs = multiply_signs(payload, found, partner, stored)
        yield Matches(mine, theirs, signs) if side is Side.LEFT else Matches(theirs, mine, signs)


class Residual:
    """The part of a condition that the index does not evaluate: equal bytes and Python predicates."""

    def __init__(self, condition: Condition) -> None:
        self._same = condition.same
        self._predicates = condition.predicates
        proved = [one.check for one in condition.measured[:1]]
        self._unproved = tuple(one for one in condition.predicates if one not in proved)

    @property
    def is_empty(self) -> bool:
        """Whether each candidate is a match."""
        return not (self._same or self._predicates)

    def keep(self, side: Side, payload: pa.RecordBatch, candidates: Candidates) -> tuple[Int64s, Int64s]:
        """Return the positions of the candidates that satisfy the residual.

        ``payload`` has the probing tuples, which belong to ``side``.
        """
        found, partner, stored, _, is_proved = candidates
        for columns in self._same:
            mine, theirs = payload.column(columns[side]), partner.column(columns[side.other])
            # Of a candidate, both values are NULL or none is, because its keys are equal.
            equal = pc.fill_null(pc.equal(mine.take(found), theirs.take(stored)), True)
            if not pc.all(equal).as_py():
                kept = np.flatnonzero(equal.to_numpy(zero_copy_only=False))
                found, stored = found[kept], stored[kept]
        for predicate in self._unproved if is_proved else self._predicates:
            if not len(found):
                break
            sides = ((payload, found), (partner, stored))
            if side is Side.RIGHT:
                sides = (sides[1], sides[0])
            kept = np.flatnonzero(evaluate(predicate, sides))
            found, stored = found[kept], stored[kept]
        return found, stored


def evaluate(predicate: PythonPredicate, sides: CandidateRows) -> npt.NDArray[np.bool_]:
    """Call a predicate, and return one boolean per candidate.

    Raises
    ------
    PredicateError
        PREDICATE_RAISED or PREDICATE_RESULT; VECTOR_DIMENSION of a measure of vectors.
    """
    n = len(sides[0][1])
    try:
        with count_predicate():
            answer = _call(predicate, sides)
    except PredicateError:
        raise
    except Exception as error:
        raise PredicateError(
            "PREDICATE_RAISED",
            f"predicate {predicate.name!r} raised {type(error).__name__}: {error} (on {n} candidates; "
            f"{_find_offender(predicate, sides)})",
        ) from error
    return read_answer(predicate.name, answer, n)


def read_answer(name: str, answer: Any, n: int) -> npt.NDArray[np.bool_]:
    """Return what a predicate answered for ``n`` candidates as a mask; NULL counts as false.

    Raises
    ------
    PredicateError
        PREDICATE_RESULT if the answer is not ``n`` booleans.
    """
    if isinstance(answer, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(answer.type):
        answer = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise PredicateError(
            "PREDICATE_RESULT",
            f"predicate {name!r} must return {n} booleans, one per candidate; "
            f"it returned {mask.dtype} of shape {mask.shape}",
        )
    return mask


def _call(predicate: PythonPredicate, sides: CandidateRows) -> Any:
    column = _encode if predicate.is_encoded else _take
    arguments = {
        alias: SimpleNamespace(**{name: column(batch.column(block), rows) for name, block in columns})
        for alias, columns, (batch, rows) in zip(predicate.aliases, predicate.columns, sides, strict=True)
    }
    return predicate.function(**arguments)


def _take(values: pa.Array, rows: Int64s) -> pa.Array:
    return values.take(rows)


def _encode(values: pa.Array, rows: Int64s) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(rows), values, safe=False)


def _find_offender(predicate: PythonPredicate, sides: CandidateRows) -> str:
    """Describe the first candidate for which the predicate raises when it is called alone.

    The search halves the candidates until one is left.
    """
    low, high = 0, len(sides[0][1])

    def part(start: int, end: int) -> CandidateRows:
        return [(batch, rows[start:end]) for batch, rows in sides]

    while high - low > 1:
        middle = (low + high) // 2
        try:
            _call(predicate, part(low, middle))
            low = middle
        except Exception:
            high = middle
    try:
        _call(predicate, part(low, high))
    except Exception:
        values = [
            f"{_spell_column(alias, name)} = {reprlib.repr(batch.column(block)[int(rows[low])].as_py())}"
            for alias, columns, (batch, rows) in zip(predicate.aliases, predicate.columns, sides, strict=True)
            for name, block in columns
        ]
        return "the first is " + ", ".join(values)
    return "on none of them alone"


def _spell_column(alias: str, name: str) -> str:
    """Write a column as the user names it. Some names contain their alias already."""
    return name if "." in name else f"{alias}.{name}"
