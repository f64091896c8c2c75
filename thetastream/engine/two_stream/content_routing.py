"""Content-sensitive routing: a tuple has a place, an integer, and its partners lie in an interval of places.

Routers send a tuple only to the units that may store its partners (BiStream, SIGMOD 2015, section 3.2.2).
There are two kinds of places:

* by hash: the place is the hash of the values that the equalities of the condition compare. Partners have the
  same hash.
* by range: for a band  low <= point - bound <= high  the place is the cell of the key, floor(key / width).
  Partners lie in the cells from floor((key + low) / width) to floor((key + high) / width).

The cells form a grid that is fixed with the query; the paper instead cuts ranges at quantiles of the keys
seen so far. A cell is ``CELL_BANDS`` bands wide, so few probes touch two cells. Cells are assigned to
subgroups round robin. Therefore units are filled evenly wherever the keys lie, if the keys spread over many
bands. The grid does not depend on the data, so routers need no agreement, and the place of a stored tuple
never changes.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetastream.core.condition import Condition, Dimension, Domain
from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s, combine_keys, decode_floats, encode, scramble
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan, build_box, encode_key_rows, locate_key_column
from thetastream.index.base import IndexSpec
from thetastream.index.scan import Scan
from thetastream.models.base import Model, Places

CELL_BANDS = 8
_FLOATING = (Domain.FLOAT, Domain.WIDE_DECIMAL)
_LARGEST = float(2**61)


class Placing(Protocol):
    """A function from the tuples of a block to their places. Picklable."""

    def find_places(self, side: Side, batch: pa.RecordBatch) -> Places: ...
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class ByHash:
    """The places are hashes of the values that the equalities compare."""

    condition: Condition

    def find_places(self, side: Side, batch: pa.RecordBatch) -> Places:
        spec = self.condition.sides[side]
        chosen = [spec.key((equality.left, equality.right)[side]) for equality in self.condition.equalities]
        columns = [encode(batch.column(key.column), key.domain, key.offset) for key in chosen]
        hashes = scramble(combine_keys(columns))
        return Places(hashes, hashes, hashes)

    def __str__(self) -> str:
        return f"hash of {', '.join(equality.text for equality in self.condition.equalities)}"


@dataclass(frozen=True)
class ByRange:
    """The places are cells of the keys of a band."""

    condition: Condition
    dimension: int
    """The position of the band in ``Condition.dimensions``."""

    @property
    def band(self) -> Dimension:
        return self.condition.dimensions[self.dimension]

    @property
    def width(self) -> int | float:
        """The width of a cell, in the unit of the keys of the band."""
        return measure_reach(self.band) * CELL_BANDS

    def find_places(self, side: Side, batch: pa.RecordBatch) -> Places:
        rows = encode_key_rows(side, self.condition, batch)
        alone = Condition(self.condition.sides, dimensions=(self.band,))
        reach = build_box(IndexPlan(alone, side.other, IndexSpec(Scan())), rows).spans[
            self._column(side.other)
        ]
        own = np.ascontiguousarray(rows[:, self._column(side)])
        return Places(*(self._cells(keys) for keys in (own, reach.low, reach.high)))

    def __str__(self) -> str:
        return f"range of {self.band.text}, in cells of {CELL_BANDS} bands"

    def _column(self, side: Side) -> int:
        bound = self.band.low
        assert bound is not None  # a band has both ends, on one key
        return locate_key_column(self.band.key if self.band.point is side else bound.key)

    def _cells(self, keys: Int64s) -> Int64s:
        domain = self.condition.sides[self.band.point].key(self.band.key).domain
        if domain not in _FLOATING:
            return keys // np.int64(self.width)
        with np.errstate(invalid="ignore", over="ignore"):
            cells = np.floor(decode_floats(keys) / self.width)
        # NaN is the largest value. Values beyond the integers share the first or the last cell.
        inside = np.clip(np.nan_to_num(cells, nan=np.inf), -_LARGEST, _LARGEST)
        return np.asarray(inside, dtype=np.int64)


def measure_reach(band: Dimension) -> int | float:
    """Compute the width of the interval in which the partners of a key lie; 0 if ranges cannot route by the
    band.

    Ranges can route by a band if both of its bounds use the same key of the other side.
    """
    if band.low is None or band.high is None or band.low.key != band.high.key:
        return 0
    distance = band.high.delta - band.low.delta
    return distance if 0 < distance * CELL_BANDS < 2**62 else 0


def find_routable_band(condition: Condition) -> int | None:
    """Find the position of the first band that ranges can route by."""
    for position, dimension in enumerate(condition.dimensions):
        domain = condition.sides[dimension.point].key(dimension.key).domain
        if measure_reach(dimension) and domain is not Domain.TEXT:
            return position
    return None


def find_placing(condition: Condition, routing: str = "auto") -> Placing | None:
    """Find the places that a condition gives to tuples; None if it has none for this routing."""
    by_hash, band = ByHash(condition) if condition.equalities else None, find_routable_band(condition)
    by_range = None if band is None else ByRange(condition, band)
    return {"hash": by_hash, "range": by_range, "auto": by_hash or by_range}[routing]


def choose_placing(model: Model, condition: Condition) -> Placing | None:
    """Choose the places by which a model routes under this condition; None if the model does not use places.

    Raises
    ------
    QueryError
        NOT_ROUTABLE if the condition has no equality or band that the model could use.
    """
    routing = model.needs_places
    if routing is None:
        return None
    found = find_placing(condition, routing)
    if found is None:
        needs = {"hash": "an equality", "range": "a band of one width on one key, as in abs(a.x - b.x) <= 3"}
        needs["auto"] = " or ".join(needs.values())
        raise QueryError(
            "NOT_ROUTABLE",
            f"{model!r} routes by what the condition compares, and needs {needs[routing]}; "
            "the condition has none, so leave subgroups out",
        )
    return found
