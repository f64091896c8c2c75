"""Computes the shares of a stream's tuples that each unit of a model receives, stores and probes with.

share(u) = tuples that unit u receives, stores, probes with / all tuples of the stream

The shares are counted from the routes that the model returns for evenly distributed hashes. This module knows
no model by name, so it computes the shares of a new model without a change.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thetastream.core.sides import Role, Side
from thetastream.engine.two_stream.content_routing import CELL_BANDS
from thetastream.models.base import Model
from thetastream.models.routes import Hashes, Places

PerUnit = npt.NDArray[np.float64]
"""One share per unit."""
_N = 5_040
"""Number of sample tuples. It is divisible by all numbers up to 10 and by 12, 14, 15, 16, 18 and 20."""
_GOLDEN = (1 + 5**0.5) / 2


class StreamShares(NamedTuple):
    """The shares of one stream's tuples that each unit of a model receives, stores and probes with."""

    received: PerUnit
    """Copies that cross the exchange. One copy may both be stored and probe."""
    stored: PerUnit
    probing: PerUnit

    @property
    def sends(self) -> float:
        """Number of copies of a tuple that cross the exchange."""
        return float(self.received.sum())

    @property
    def copies(self) -> float:
        """Number of copies of a tuple that are stored."""
        return float(self.stored.sum())

    @property
    def probes(self) -> float:
        """Number of units at which a tuple looks for partners."""
        return float(self.probing.sum())


def compute_shares(
    model: Model, has_one_key: bool = False, is_ranged: bool = False
) -> tuple[StreamShares, StreamShares]:
    """Compute the shares of left and of right tuples of each unit.

    Parameters
    ----------
    model : Model
        The model. Only its routes are used.
    has_one_key : bool
        Whether all tuples have the same key, which is the worst case of skew.
    is_ranged : bool
        Whether keys are cells of a band. One of ``CELL_BANDS`` probes then reaches into a second cell.

    Examples
    --------
    >>> from thetastream.models import Biclique
    >>> left, right = compute_shares(Biclique((1, 2)))
    >>> left.sends, right.sends, right.stored.tolist()
    (3.0, 2.0, [0.0, 0.5, 0.5])
    """
    # n and floor(n * golden ratio) are evenly distributed together: all combinations of remainders occur.
    numbers = np.arange(_N, dtype=np.int64)
    tuples = np.floor(numbers * _GOLDEN).astype(np.int64)
    keys = np.zeros_like(numbers) if has_one_key else numbers
    reach = keys + (tuples % CELL_BANDS == 0) if is_ranged else keys
    hashes = Hashes(tuples, Places(keys, keys, reach))
    left, right = (_count_shares(model, side, hashes, numbers) for side in Side)
    return left, right


def _count_shares(model: Model, side: Side, hashes: Hashes, numbers: npt.NDArray[np.int64]) -> StreamShares:
    # A unit that receives every tuple decides by its number in the stream whether to store it.
    keeps = model.keeps if model.sees_all else None
    counts = np.zeros((3, model.n_units))
    received, stored, probing = counts
    for unit, role, rows in model.route(side, _N, hashes):
        n_rows = _N if rows is None else len(rows)
        received[unit] += n_rows
        if Role.PROBE in role.parts:
            probing[unit] += n_rows
        if Role.STORE in role.parts:
            stored[unit] += n_rows if keeps is None else int(keeps(unit, numbers, numbers).sum())
    return StreamShares(*(counts / _N))
