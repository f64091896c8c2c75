"""Compiles the kernels, and names the arrays that they take and return."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile a kernel without Python objects and without the GIL. Compiler options are set nowhere else.

    ``cache=True`` keeps machine code beside the package (or in NUMBA_CACHE_DIR), so only the first worker on
    a machine compiles. Numba writes cache files under a temporary name and renames them, so several processes
    may fill one cache at the same time (``tests/unit/kernels/test_kernels.py`` tests this). Fast-math stays
    off, because NaN must compare as Spark defines it.
    """
    return cast(F, numba.njit(function, cache=True, nogil=True))
