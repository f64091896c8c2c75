"""Where a model sends tuples, on average: its own routes, asked for hashes that lie evenly.

share(u) = tuples that unit u receives, stores, probes with / all tuples of the stream

Nothing here knows a model by name, so a new one is costed before anyone writes a line about it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thetastream.joiner.placing import CELL_BANDS
from thetastream.models.base import Hashes, Model, Places
from thetastream.types import Role, Side

Shares = npt.NDArray[np.float64]
"""One share per unit."""
_N = 5_040
"""Divided by all numbers up to 10, and by 12, 14, 15, 16, 18, 20."""
_GOLDEN = (1 + 5**0.5) / 2


class Spread(NamedTuple):
    """One stream's tuples over the units of a model."""

    received: Shares
    """Copies that cross the exchange: one may be stored and probe."""
    stored: Shares
    probing: Shares

    @property
    def sends(self) -> float:
        """Copies of a tuple that cross the exchange."""
        return float(self.received.sum())

    @property
    def copies(self) -> float:
        """Copies of a tuple that are stored."""
        return float(self.stored.sum())

    @property
    def probes(self) -> float:
        """Units at which a tuple looks for partners."""
        return float(self.probing.sum())


def spread(model: Model, has_one_key: bool = False, is_ranged: bool = False) -> tuple[Spread, Spread]:
    """Shares of left and of right tuples by unit.

    Parameters
    ----------
    model : Model
        The router.
    has_one_key : bool
        Whether all tuples have the same key, the worst that skew can do.
    is_ranged : bool
        Whether keys are cells of a band: of ``CELL_BANDS`` probes one reaches into a second cell.

    Examples
    --------
    >>> from thetastream.models import Biclique
    >>> left, right = spread(Biclique((1, 2)))
    >>> left.sends, right.sends, right.stored.tolist()
    (3.0, 2.0, [0.0, 0.5, 0.5])
    """
    # n and floor(n * golden ratio) are even together: every remainder of one meets all of the other.
    numbers = np.arange(_N, dtype=np.int64)
    tuples = np.floor(numbers * _GOLDEN).astype(np.int64)
    keys = np.zeros_like(numbers) if has_one_key else numbers
    reach = keys + (tuples % CELL_BANDS == 0) if is_ranged else keys
    hashes = Hashes(tuples, Places(keys, keys, reach))
    left, right = (_spread(model, side, hashes, numbers) for side in Side)
    return left, right


def _spread(model: Model, side: Side, hashes: Hashes, numbers: npt.NDArray[np.int64]) -> Spread:
    # Units that see every tuple choose by its number in the stream which of them they keep.
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
    return Spread(*(counts / _N))
