"""Content-sensitive routing: where on a line a tuple lies, and on which stretch its partners do.

Routers send a tuple only to the units whose places its partners can be at (BiStream, SIGMOD 2015, section
3.2.2). Two lines are known:

* by hash: the hash of the values that the condition's equalities compare; partners have the same.
* by range: of a band  low <= point - bound <= high  the key's cell, floor(key / width); partners are in the
  cells from floor((key + low) / width) to floor((key + high) / width).

Cells are a grid fixed with the query, where the paper cuts ranges at quantiles of what has been seen. A cell
is ``CELL_BANDS`` bands wide, so few probes touch two, and cells are dealt out in turn, so that units are
filled evenly wherever the keys lie, as long as they spread over many bands. Nothing is learnt, so nothing has
to be agreed upon between routers, and a tuple stored long ago is where it always was.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetastream.condition import Condition, Dimension, Domain, IndexSpec
from thetastream.errors import QueryError
from thetastream.joiner.box import Plan, box, key_rows, row_column
from thetastream.keys import Int64s, decode_floats, encode, fold, scramble
from thetastream.models.base import Model, Places
from thetastream.types import Side

CELL_BANDS = 8
_FLOATING = (Domain.FLOAT, Domain.WIDE_DECIMAL)
_LARGEST = float(2**61)


class Placing(Protocol):
    """Places of the tuples of a block; picklable."""

    def places(self, side: Side, batch: pa.RecordBatch) -> Places: ...
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class ByHash:
    """By the values that the equalities compare."""

    condition: Condition

    def places(self, side: Side, batch: pa.RecordBatch) -> Places:
        spec = self.condition.sides[side]
        chosen = [spec.key((equality.left, equality.right)[side]) for equality in self.condition.equalities]
        columns = [encode(batch.column(key.column), key.domain, key.offset) for key in chosen]
        hashes = scramble(fold(columns))
        return Places(hashes, hashes, hashes)

    def __str__(self) -> str:
        return f"hash of {', '.join(equality.text for equality in self.condition.equalities)}"


@dataclass(frozen=True)
class ByRange:
    """By cells of a band's keys."""

    condition: Condition
    dimension: int
    """Position of the band in ``Condition.dimensions``."""

    @property
    def band(self) -> Dimension:
        return self.condition.dimensions[self.dimension]

    @property
    def width(self) -> int | float:
        """Of a cell, in the unit of the band's keys."""
        return span(self.band) * CELL_BANDS

    def places(self, side: Side, batch: pa.RecordBatch) -> Places:
        rows = key_rows(side, self.condition, batch)
        alone = Condition(self.condition.sides, dimensions=(self.band,))
        reach = box(Plan(alone, side.other, IndexSpec("scan")), rows).spans[self._column(side.other)]
        own = np.ascontiguousarray(rows[:, self._column(side)])
        return Places(*(self._cells(keys) for keys in (own, reach.low, reach.high)))

    def __str__(self) -> str:
        return f"range of {self.band.text}, in cells of {CELL_BANDS} bands"

    def _column(self, side: Side) -> int:
        bound = self.band.low
        assert bound is not None  # a band has both ends, on one key
        return row_column(self.band.key if self.band.point is side else bound.key)

    def _cells(self, keys: Int64s) -> Int64s:
        domain = self.condition.sides[self.band.point].key(self.band.key).domain
        if domain not in _FLOATING:
            return keys // np.int64(self.width)
        with np.errstate(invalid="ignore", over="ignore"):
            cells = np.floor(decode_floats(keys) / self.width)
        # NaN is the largest value; whatever is beyond the integers shares the last cells.
        inside = np.clip(np.nan_to_num(cells, nan=np.inf), -_LARGEST, _LARGEST)
        return np.asarray(inside, dtype=np.int64)


def span(band: Dimension) -> int | float:
    """How far apart partners in a band can be, in the keys' unit; 0 if ranges cannot route by it.

    A band has both ends on one key of the other side, a constant distance apart.
    """
    if band.low is None or band.high is None or band.low.key != band.high.key:
        return 0
    distance = band.high.delta - band.low.delta
    return distance if 0 < distance * CELL_BANDS < 2**62 else 0


def band_to_route_by(condition: Condition) -> int | None:
    """The first band that ranges can route by."""
    for position, dimension in enumerate(condition.dimensions):
        domain = condition.sides[dimension.point].key(dimension.key).domain
        if span(dimension) and domain is not Domain.TEXT:
            return position
    return None


def placing(model: Model, condition: Condition) -> Placing | None:
    """How a model's subgroups are named, under this condition; None if it does not ask.

    Raises
    ------
    QueryError
        NOT_ROUTABLE if the condition has nothing of that kind.
    """
    if not model.needs_places:
        return None
    by_hash, band = ByHash(condition) if condition.equalities else None, band_to_route_by(condition)
    by_range = None if band is None else ByRange(condition, band)
    found = {"hash": by_hash, "range": by_range, "auto": by_hash or by_range}[model.routing]
    if found is None:
        needs = {"hash": "an equality", "range": "a band of one width on one key, as in abs(a.x - b.x) <= 3"}
        needs["auto"] = " or ".join(needs.values())
        raise QueryError(
            "NOT_ROUTABLE",
            f"{model!r} routes by what the condition compares, and needs {needs[model.routing]}; "
            "the condition has none, so leave subgroups out",
        )
    return found
