"""SplitJoin (Najafi, Sadoghi and Jacobsen, USENIX ATC 2016).

Every tuple goes to all cores. Each core looks for its partners among the tuples that it stores (the
processing step), and one core stores it (the storing step). Storing is round robin by the number of the tuple
in its stream, which every core computes by itself. No tuple is stored twice or forwarded. Every core sees the
whole order of arrival, so windows may count tuples and results may be ordered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Route, is_positive


@dataclass(frozen=True)
class Split(Model):
    """SplitJoin: k cores, each with a k-th part of both windows.

    It runs any condition, count windows and ordered output.

    Parameters
    ----------
    cores : int
        Join cores. Each of these units gets every tuple.

    Raises
    ------
    QueryError
        BAD_UNITS if the count is not a positive integer.

    Examples
    --------
    >>> Split(cores=4).n_units
    4
    """

    cores: int = 1
    name: ClassVar[str] = "split"
    sizes: ClassVar[tuple[str, ...]] = ("cores",)

    def __post_init__(self) -> None:
        if not is_positive(self.cores):
            raise QueryError("BAD_UNITS", f"cores must be a positive integer, not {self.cores!r}")

    @property
    def n_units(self) -> int:
        return self.cores

    @property
    def sees_all(self) -> bool:
        return True

    def sees_partners(self, side: Side) -> bool:
        return self.cores == 1

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        for core in range(self.cores):
            yield Route(core, Role.BOTH, None)

    def counts(self, unit: int, side: Side) -> bool:
        return unit == 0

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = sequence % self.cores == unit
        return mine

    def describe(self) -> str:
        return f"split: {self.cores} core(s) get every tuple, one of them stores it, round robin"
