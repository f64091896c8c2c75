"""How a figure grows over the second half of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Growth:
    """The straight line through a figure over the second half of the run."""

    name: str
    mean: float
    share: float
    """By how much the line grows from its beginning to its end, as a share of the mean."""


def find_growth(name: str, seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """Fit a straight line to the second half of the run.

    >>> find_growth("files", range(10), [5.0] * 5 + [10, 11, 12, 13, 14])
    Growth(name='files', mean=12.0, share=0.333)
    """
    half = [n for n, second in enumerate(seconds) if second >= (seconds[0] + seconds[-1]) / 2]
    x, y = np.array([seconds[n] for n in half], float), np.array([values[n] for n in half], float)
    slope = float(np.polyfit(x, y, 1)[0]) if len(half) > 1 else 0.0
    mean = float(y.mean())
    return Growth(name, round(mean, 3), round(slope * float(x[-1] - x[0]) / mean, 3) if mean else 0.0)
