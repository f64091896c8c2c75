"""Excludes the loaded libraries from garbage collection in Spark's Python workers.

After every Spark task, a worker runs ``gc.collect()``, which visits every object that NumPy, pandas, Arrow
and Numba created on import. This takes 0.1 to 0.2 s, more than a small epoch. The collector does not visit
frozen objects.
"""

import gc
from functools import cache


@cache
def settle() -> None:
    """Freeze all objects that exist now; every Spark task calls this, and only the first call acts."""
    gc.collect()
    gc.freeze()
