"""The one place that says how kernels are compiled.

``cache=True`` keeps machine code beside the package (or in NUMBA_CACHE_DIR), so only the first
worker of a machine compiles. Numba writes cache files under a temporary name and renames them:
many processes may fill one cache at once (``tests/test_kernels.py`` does it).
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile a kernel: no Python objects, no GIL, no fast-math (NaN rules are Spark's)."""
    return cast(F, numba.njit(function, cache=True, nogil=True))
