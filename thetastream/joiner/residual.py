"""Candidates become matches: columns that must be the same, Python predicates."""

import reprlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.condition import Condition, PythonPredicate
from thetastream.errors import PredicateError
from thetastream.keys import Int64s
from thetastream.types import Side


class Residual:
    """What the index leaves open of a condition."""

    def __init__(self, condition: Condition) -> None:
        self._same = condition.same
        self._predicates = condition.predicates

    def keep(
        self, side: Side, payload: pa.RecordBatch, found: Int64s, partner: pa.RecordBatch, stored: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Positions of the candidates for which everything is true.

        ``payload[found]`` are the probing tuples, of ``side``; ``partner[stored]`` the stored ones.
        """
        for columns in self._same:
            mine, theirs = payload.column(columns[side]), partner.column(columns[side.other])
            equal = pc.equal(mine.take(found), theirs.take(stored))
            if not pc.all(equal).as_py():
                kept = np.flatnonzero(equal.to_numpy(zero_copy_only=False))
                found, stored = found[kept], stored[kept]
        for predicate in self._predicates:
            if not len(found):
                break
            sides = ((payload, found), (partner, stored))
            if side is Side.RIGHT:
                sides = (sides[1], sides[0])
            kept = np.flatnonzero(_evaluate(predicate, sides))
            found, stored = found[kept], stored[kept]
        return found, stored


Candidates = tuple[tuple[pa.RecordBatch, Int64s], tuple[pa.RecordBatch, Int64s]]
"""Per side tuples and, candidate by candidate, the position of its tuple among them."""


def _evaluate(predicate: PythonPredicate, sides: Candidates) -> npt.NDArray[np.bool_]:
    n = len(sides[0][1])
    try:
        answer = _call(predicate, sides)
    except Exception as error:
        raise PredicateError(
            "PREDICATE_RAISED",
            f"predicate {predicate.name!r} raised {type(error).__name__}: {error} (on {n} candidates; "
            f"{_offender(predicate, sides)})",
        ) from error
    if isinstance(answer, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(answer.type):
        answer = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise PredicateError(
            "PREDICATE_RESULT",
            f"predicate {predicate.name!r} must return {n} booleans, one per candidate; "
            f"it returned {mask.dtype} of shape {mask.shape}",
        )
    return mask


def _call(predicate: PythonPredicate, sides: Candidates) -> Any:
    column = _encoded if predicate.is_encoded else _taken
    arguments = {
        alias: SimpleNamespace(**{name: column(batch.column(block), rows) for name, block in columns})
        for alias, columns, (batch, rows) in zip(predicate.aliases, predicate.columns, sides, strict=True)
    }
    return predicate.function(**arguments)


def _taken(values: pa.Array, rows: Int64s) -> pa.Array:
    return values.take(rows)


def _encoded(values: pa.Array, rows: Int64s) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(rows), values, safe=False)


def _offender(predicate: PythonPredicate, sides: Candidates) -> str:
    """The first candidate on which a function raises alone, found by halves."""
    low, high = 0, len(sides[0][1])

    def part(start: int, end: int) -> Candidates:
        (left, found), (right, stored) = sides
        return (left, found[start:end]), (right, stored[start:end])

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
            f"{_spelled(alias, name)} = {reprlib.repr(batch.column(block)[int(rows[low])].as_py())}"
            for alias, columns, (batch, rows) in zip(predicate.aliases, predicate.columns, sides, strict=True)
            for name, block in columns
        ]
        return "the first is " + ", ".join(values)
    return "on none of them alone"


def _spelled(alias: str, name: str) -> str:
    """A column as the user names it; where columns of several streams are one set, names say of which."""
    return name if "." in name else f"{alias}.{name}"
