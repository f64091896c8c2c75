"""Candidates become matches: columns that must be the same, Python predicates."""

from types import SimpleNamespace
from typing import Any

import numpy as np
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


def _evaluate(
    predicate: PythonPredicate, sides: tuple[tuple[pa.RecordBatch, Int64s], tuple[pa.RecordBatch, Int64s]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    n = len(sides[0][1])
    arguments = {
        alias: SimpleNamespace(**{name: batch.column(column).take(rows) for name, column in columns})
        for alias, columns, (batch, rows) in zip(predicate.aliases, predicate.columns, sides, strict=True)
    }
    try:
        answer = predicate.function(**arguments)
    except Exception as error:
        raise PredicateError(
            "PREDICATE_RAISED",
            f"predicate {predicate.name!r} raised {type(error).__name__}: {error} (on {n} candidates)",
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
