"""Comparisons of two keys that units evaluate exactly, because the index only approximates them.

abs(f - g) <= c over floating-point values, whose difference Spark rounds
f OP g          over texts, and over decimals of more than 18 digits; <=> takes NULL for a value
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

VALUE = "value"
"""The name under which a comparison gets the values of each side."""
_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass(frozen=True)
class ExactBand:
    """``abs(left - right) <= limit``, computed as Spark does in double or in single precision.

    >>> left = SimpleNamespace(value=pa.array([0.3, float("nan")]))
    >>> right = SimpleNamespace(value=pa.array([0.1, 0.0]))
    >>> ExactBand(0.2, False, False)(left, right)
    array([ True, False])
    """

    limit: float
    is_strict: bool
    is_single: bool

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> npt.NDArray[np.bool_]:
        """Return for each candidate whether the comparison is true."""
        precision = np.float32 if self.is_single else np.float64
        f, g = (side.value.to_numpy(zero_copy_only=False).astype(precision) for side in (left, right))
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(f - g).astype(np.float64)
        found: npt.NDArray[np.bool_] = distance < self.limit if self.is_strict else distance <= self.limit
        return found


@dataclass(frozen=True)
class ExactOrder:
    """``left op right`` for values that Arrow orders as Spark does: texts by their bytes, and decimals."""

    op: str

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> pa.Array:
        """Return for each candidate whether the comparison is true."""
        if self.op == "<=>":
            equal = pc.fill_null(pc.equal(left.value, right.value), False)
            return pc.or_(equal, pc.and_(pc.is_null(left.value), pc.is_null(right.value)))
        return _COMPARE[self.op](left.value, right.value)
